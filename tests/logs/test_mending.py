"""How much of a log is read again to mend what its local copy has lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.environment import SystemEnvironment
from engine.logs.copying import Copying, Piece
from engine.logs.interface import LogEntry, LogUnavailable
from engine.logs.local_copy import LocalCopy
from engine.logs.lost import LostRecords

PIECE = 10


@pytest.mark.parametrize("anew", [False, True], ids=["some are missing", "all are missing"])
async def test_no_part_of_the_log_is_read_twice(tmp_path: Path, anew: bool) -> None:
    log = [LogEntry(offset, b"%d" % offset) for offset in range(40)]
    reads: list[int] = []

    async def read(partition: int, offset: int) -> Piece:
        assert partition == 0
        reads.append(offset)
        found = log[offset : offset + PIECE]
        return Piece(found, offset + len(found))

    copy = LocalCopy(tmp_path / "copy", 1)
    copying = Copying(copy, read, LostRecords(tmp_path / "lost"), SystemEnvironment(""))
    await copying.up_to(0, len(log))
    if anew:
        copy.begin_anew()
    else:
        for offset in (3, 5, 8, 12, 31, 39):
            copy._database.delete(b"\0\0" + offset.to_bytes(8, "big"))
    reads.clear()
    with pytest.raises(LogUnavailable):
        copying.fetch(0, range(len(log)))
    async with asyncio.timeout(5):
        await asyncio.gather(*copying._menders.values())
    assert copying.fetch(0, range(len(log))) == [entry.data for entry in log]
    # Each missing record had a read of its own, of which all but that record was thrown away.
    assert reads == ([0, 10, 20, 30] if anew else [3, 31])
    await copying.close()
