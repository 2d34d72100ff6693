"""What a local copy of a log answers at once, when it is not whole: never less than the log holds without saying so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from engine.environment import SystemEnvironment
from engine.logs import local_copy
from engine.logs.copying import Copying, Piece
from engine.logs.interface import LogEntry, LogUnavailable
from engine.logs.local_copy import LocalCopy
from engine.logs.lost import LostRecords

ENTRIES = [LogEntry(offset, b"record %d" % offset) for offset in range(20)]


class Kept:
    """A copy of `ENTRIES`, and the copy's files."""

    def __init__(self, folder: Path) -> None:
        self.copy = LocalCopy(folder / "copy", 1)
        self.copying = Copying(self.copy, self._read, LostRecords(folder / "lost"), SystemEnvironment(""))

    async def _read(self, partition: int, offset: int) -> Piece:
        del partition
        return Piece(ENTRIES[offset : offset + 6], min(offset + 6, len(ENTRIES)))

    def damage(self, offset: int, value: bytes | None) -> None:
        """Put something else where a record is copied, or nothing."""
        key = local_copy._KEY.pack(0, offset)
        if value is None:
            self.copy._database.delete(key)
        else:
            self.copy._database[key] = value

    async def mended(self) -> list[LogEntry]:
        """What is stored, a few at a time, each once it is."""
        found: list[LogEntry] = []
        async with asyncio.timeout(10):
            while len(found) < len(ENTRIES):
                try:
                    found += self.copying.stored(0, len(found), 20, 7)
                except LogUnavailable:
                    await asyncio.sleep(0.01)
        return found


@pytest_asyncio.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    found = Kept(tmp_path)
    yield found
    await found.copying.close()


async def test_what_is_copied_is_told(kept: Kept) -> None:
    await kept.copying.up_to(0, 20)
    assert kept.copying.stored(0, 0, 20, 100) == ENTRIES
    assert kept.copying.stored(0, 5, 9, 3) == ENTRIES[5:8]
    assert kept.copying.stored(0, 20, 20, 3) == []


@pytest.mark.parametrize("value", [b"", b"\x00\x00\x00\x00other", b"abc"])
async def test_a_damaged_record_is_not_left_out(kept: Kept, value: bytes) -> None:
    await kept.copying.up_to(0, 20)
    kept.damage(7, value)
    assert kept.copying.stored(0, 0, 7, 100) == ENTRIES[:7]
    with pytest.raises(LogUnavailable):
        kept.copying.stored(0, 0, 20, 100)
    assert await kept.mended() == ENTRIES


async def test_what_is_not_copied_yet_is_not_left_out(kept: Kept) -> None:
    await kept.copying.up_to(0, 6)
    await kept.copying.landed(0, 12, [entry.data for entry in ENTRIES[12:]])
    assert kept.copying.stored(0, 0, 20, 100) == ENTRIES[:6]
    with pytest.raises(LogUnavailable):
        kept.copying.stored(0, 6, 20, 100)
    assert await kept.mended() == ENTRIES
