"""The benchmarks still run: every part of Runstore's side, briefly, without the rival."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.reading_back import VIEWS

ROOT: Final = Path(__file__).resolve().parents[2]


def test_every_part_reports_a_rate_and_leaves_nothing_behind(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    data.mkdir()
    elsewhere.mkdir()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bench", "--smoke", "--alone", "--folder", str(data)],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(elsewhere)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name, rows in (
        ("three records", 3),
        ("any run ID", 3),
        ("one record", 3),
        ("append_record", 1),
        ("rebuild", 1),
    ):
        found = re.findall(rf"^ *{name} .*?([\d,]+) \[[\d,]+ to [\d,]+\]", done.stdout, re.MULTILINE)
        assert len(found) == rows, done.stdout
        assert all(int(rate.replace(",", "")) > 0 for rate in found)
    views = re.findall(r"^(\w+) +[\d.]+ \[[\d.]+ to [\d.]+\] +([\d.]+) ", done.stdout, re.MULTILINE)
    assert [name for name, _ in views] == ["rebuild", *VIEWS]
    assert all(float(milliseconds) > 0 for _, milliseconds in views)
    assert not list(data.iterdir())
    assert not list(elsewhere.iterdir())
