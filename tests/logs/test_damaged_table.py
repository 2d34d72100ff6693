"""A damaged table is met by its readers, and holds up nobody else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.environment import SystemEnvironment
from engine.logs.embedded import EmbeddedLog
from engine.logs.files import LogFiles
from engine.logs.interface import LogCorrupt, LogError

pytestmark = pytest.mark.asyncio

TABLES = 6
"""More than RocksDB leaves unmerged."""


def written(path: Path) -> None:
    """A log of two partitions in many tables, the first of which has a flipped bit in a record of partition 0."""
    for position in range(TABLES):
        log = LogFiles(path, 2, merging=False)
        # Each record fills a block, so that the first one is nobody's neighbour when partition 1 is looked through.
        log.acknowledge(log.write([(0, 2 * position, [b"a" * 20_000] * 2), (1, position, [b"b" * 20_000])]))
        log.sync()
        log.close()
    first = min((path / "rocksdb").glob("*.sst"))
    data = bytearray(first.read_bytes())
    data[20] ^= 1
    first.write_bytes(data)


async def append(log: EmbeddedLog) -> bool:
    """Append to partition 1; False when the log is unavailable."""
    try:
        position = await log.end(1)
        await log.append(1, position, [b"new"])
    except LogError:
        return False
    return True


async def until(log: EmbeddedLog, *, appended: bool) -> None:
    while await append(log) is not appended:  # noqa: ASYNC110 # RocksDB merges when it likes
        await asyncio.sleep(0.001)


async def test_merging_that_meets_a_damaged_table_stops_no_other_partition(tmp_path: Path) -> None:
    # RocksDB took no write after it; the log was opened again, met the table again, and so on for ever: a flipped bit
    # in one record made every partition unavailable.
    written(tmp_path)
    log = EmbeddedLog(tmp_path, 2, SystemEnvironment(""))
    # What is in memory becomes the tables whose number makes RocksDB merge.
    await asyncio.wait_for(until(log, appended=False), 30)
    await asyncio.wait_for(until(log, appended=True), 30)
    for _ in range(50):
        assert await append(log)
        await asyncio.sleep(0.001)
    with pytest.raises(LogCorrupt, match=r"partition 0.*position 0"):
        await log.read(0, 0)
    assert [entry.data for entry in await log.read(1, TABLES)][-1] == b"new"
    await log.close()
