"""The campaigns' command line: what it refuses, how it ends, what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.command import KEPT_MAX, Kept, interruptible, verdict
from tests.faults.folders import ROOT


def faults(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.faults", *arguments],
        cwd=ROOT, env={**os.environ, "COLUMNS": "200"}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        *("power --points 0", "power --points -3", "power --minutes 0", "flips --flips 0", "flips --flips x"),
        *("flips --minutes nan", "flips --only nothing", "kill --kills 0", "other", ""),
        *("kafka", "kafka other", "kafka racing --seconds 0", "kafka network --plant nothing"),
    ],
)
def test_what_cannot_be_is_refused(arguments: str) -> None:
    done = faults(*arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("campaign", "option"),
    [
        *(("power", "--points"), ("flips", "--flips"), ("kill", "--kills"), ("kafka sleepers", "--sleeps")),
        ("kafka racing", "--seconds"),
    ],
)
def test_help_tells_the_defaults(campaign: str, option: str) -> None:
    done = faults(*campaign.split(), "--help")
    assert done.returncode == 0
    assert f"usage: bin/faults {campaign}" in done.stdout
    for name in (option, "--seed"):
        (line,) = (line for line in done.stdout.splitlines() if line.strip().startswith(name))
        assert "(default " in line


@pytest.mark.parametrize(
    ("failed", "done", "said", "status"),
    [
        (0, 5, "passed: 0 failures\n", 0),
        (1, 5, "FAILED: 1 failure\n", 1),
        (2, 3, "FAILED: 2 failures\n", 1),
        (0, 3, "not finished: 3 of 5 were done in the time, 0 failures\n", 1),
    ],
)
def test_the_last_line_is_the_verdict(
    capsys: pytest.CaptureFixture[str], failed: int, done: int, said: str, status: int
) -> None:
    assert verdict(failed, done, 5) == status
    assert capsys.readouterr().out == said


def test_no_more_is_kept_than_is_of_use_and_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    kept = Kept(tmp_path)
    said = [kept.keep(lambda folder: (folder / "file").touch(), "store") for _ in range(KEPT_MAX + 1)]
    assert f"{tmp_path / '2'}" in said[0]
    assert said[-1] == ""
    assert sorted(path.parent.name for path in tmp_path.rglob("file")) == sorted(str(n + 2) for n in range(KEPT_MAX))


def test_an_interrupted_campaign_ends_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    # No signal: a service that other tests have open in this process would stop at it.
    assert interruptible(interrupted) == 130
    assert capsys.readouterr().err == "\ninterrupted: nothing is said of what was not looked at\n"
