"""Killed with SIGKILL at every step, the embedded log still holds all that it answered for, and only whole batches."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.environment import FAILPOINT_VARIABLE, SystemEnvironment
from engine.logs.embedded import EmbeddedLog
from tests.logs.crash_child import BATCH, PARTITIONS, record

pytestmark = pytest.mark.asyncio

ROOT = Path(__file__).parents[2]


def run_until_killed(path: Path, failpoint: str = "", lines: int | None = None) -> dict[int, int]:
    """Run the child until a failpoint, or until it has said so many lines. Return the end it said of each partition."""
    command = [sys.executable, "-m", "tests.logs.crash_child", str(path)]
    environment = {**os.environ, FAILPOINT_VARIABLE: failpoint}
    said: list[bytes] = []
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for line in child.stdout:
            said.append(line)
            if lines is not None and len(said) == lines:
                child.kill()
    assert child.returncode == -signal.SIGKILL
    ends: dict[int, int] = {}
    for line in said:
        if line.endswith(b"\n"):
            partition, end = map(int, line.split())
            ends[partition] = end
    return ends


async def check(path: Path, answered: dict[int, int]) -> dict[int, int]:
    """Check all that is in the log, and return the partitions' ends."""
    ends: dict[int, int] = {}
    log = EmbeddedLog(path, PARTITIONS, SystemEnvironment(""))
    for partition in range(PARTITIONS):
        end = await log.end(partition)
        assert end >= answered.get(partition, 0)
        # One batch at most was in flight, and it is there whole or not at all.
        assert end - answered.get(partition, 0) in (0, BATCH)
        position = 0
        while entries := await log.read(partition, position):
            for entry in entries:
                assert entry.offset == position
                assert entry.data == record(partition, position)
                position += 1
        assert position == end
        ends[partition] = end
    await log.close()
    return ends


@pytest.mark.parametrize("failpoint", ["log.before_write", "log.after_write", "log.after_fsync"])
async def test_killed_at_a_failpoint(tmp_path: Path, failpoint: str) -> None:
    assert run_until_killed(tmp_path / "log", f"{failpoint}:1") == {}
    ends = await check(tmp_path / "log", {})
    for passes in (2, 30):
        answered = run_until_killed(tmp_path / "log", f"{failpoint}:{passes}")
        assert answered
        ends = await check(tmp_path / "log", ends | answered)


async def test_killed_anywhere_again_and_again(tmp_path: Path) -> None:
    ends: dict[int, int] = {}
    for lines in (1, 50, 333):
        answered = run_until_killed(tmp_path / "log", lines=lines)
        assert answered
        ends = await check(tmp_path / "log", ends | answered)


async def test_killed_after_killed_without_a_clean_close_between(tmp_path: Path) -> None:
    answered: dict[int, int] = {}
    for passes in (20, 5, 1, 40):
        answered |= run_until_killed(tmp_path / "log", f"log.after_write:{passes}")
    log = EmbeddedLog(tmp_path / "log", PARTITIONS, SystemEnvironment(""))
    for partition, end in answered.items():
        # Each kill may have spared the batch in flight; the next process went on from there.
        assert await log.end(partition) >= end
        assert log.fetch(partition, range(end)) == [record(partition, at) for at in range(end)]
    await asyncio.wait_for(log.close(), 10)
