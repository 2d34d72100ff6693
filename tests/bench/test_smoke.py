"""The benchmarks still run: every part of Runstore's side, briefly, without the rivals."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.reading_back import VIEWS
from tests.kafka.machine import require_brokers

ROOT: Final = Path(__file__).resolve().parents[2]


def test_every_part_reports_a_rate_and_leaves_nothing_behind(tmp_path: Path) -> None:
    rows = (("three records", 3), ("any run ID", 3), ("one record", 3), ("append_record", 1), ("rebuild", 1))
    printed = _check(tmp_path, "--no-kafka", rows)
    views = re.findall(r"^(\w+) +[\d.]+ \[[\d.]+ to [\d.]+\] +([\d.]+) ", printed, re.MULTILINE)
    found = {name: float(milliseconds) for name, milliseconds in views if name in VIEWS}
    assert list(found) == list(VIEWS)
    assert all(milliseconds > 0 for milliseconds in found.values())


def test_what_runs_on_kafka_reports_rates_and_leaves_nothing_behind(tmp_path: Path) -> None:
    require_brokers()
    _check(tmp_path, "--kafka", (("on Kafka, three records", 3), ("on Kafka, one record", 3), ("from Kafka", 1)))


def _check(tmp_path: Path, part: str, rows: Sequence[tuple[str, int]]) -> str:
    """Run a part, and find so many rates of each name; give what it printed."""
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    data.mkdir()
    elsewhere.mkdir()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bench", part, "--smoke", "--alone", "--folder", str(data)],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(elsewhere)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name, count in rows:
        found = re.findall(rf"^ *{name} .*?([\d,]+) \[[\d,]+ to [\d,]+\]", done.stdout, re.MULTILINE)
        assert len(found) == count, done.stdout
        assert all(int(rate.replace(",", "")) > 0 for rate in found)
    assert not list(data.iterdir())
    assert not list(elsewhere.iterdir())
    return done.stdout
