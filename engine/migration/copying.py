"""Copying a partition: every counted command at its own position, in large batches, each checked where it landed.

A copy can be broken off anywhere and goes on: what the target holds is first compared with the source, record by
record, and only what is missing is written. So nothing but the target itself has to remember how far it came. When all
is written, the target is read once more from its beginning: what a broker lost meanwhile shows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.logs.interface import LogEntry
from engine.migration.errors import CopyWentWrong
from engine.migration.pieces import Gathering, Piece
from engine.migration.walking import Command, walk
from projections.position_rule import PositionRule
from projections.rebuild import Source

Progress = Callable[[int], None]
"""Told the offset up to which the partition has been dealt with."""


class Target(Protocol):
    """What is copied to."""

    async def end(self, partition: int) -> int:
        """The offset after the last record."""
        ...

    async def read(self, partition: int, offset: int) -> Sequence[LogEntry]:
        """Entries at an offset and after, some of them; none only at the end."""
        ...

    def between(self, begin: int, end: int) -> list[LogEntry]:
        """What this target holds where the source has a hole: fillers, or nothing."""
        ...

    async def write(self, partition: int, piece: Piece) -> None:
        """Store a piece at its positions, whole or not at all.

        Raises `CopyWentWrong` where it landed elsewhere, or `MigrationStopped`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Copied:
    """What a partition came to: its counted records, where they end, and what of the target was written just now.

    `digest` is over every record that the target holds, fillers too, with its offset.
    """

    records: int
    end: int
    digest: bytes
    records_written: int
    bytes_written: int


async def copy_partition(
    source: Source, rule: PositionRule, target: Target, partition: int, end: int, progress: Progress
) -> Copied:
    """Bring the target to hold what counts in the source before the offset `end`, and nothing else.

    `rule` is of the source, and has read nothing. Raises `CopyWentWrong`, `MigrationStopped`, `HistoryBroken`, or what
    reading does.
    """
    copy = _Copy(target, partition, await target.end(partition))
    async for commands in walk(source, rule, partition, end):
        for command in commands:
            await copy.take(command)
        progress(rule.end)
    return await copy.finish()


async def check_copy(target: Target, partition: int, copied: Copied, progress: Progress) -> bool:
    """Read the target from its beginning: True when it holds exactly what was copied, and ends there."""
    digest, position = hashlib.sha256(), 0
    while position < copied.end:
        entries = [entry for entry in await target.read(partition, position) if entry.offset < copied.end]
        if not entries:
            return False
        for entry in entries:
            _add(digest, entry)
        position = entries[-1].offset + 1
        progress(position)
    return digest.digest() == copied.digest and await target.end(partition) == copied.end


class _Copy:
    """One partition on its way: what the target held at first is compared, what follows is written."""

    def __init__(self, target: Target, partition: int, existing_end: int) -> None:
        self._target = target
        self._partition = partition
        self._existing = _Existing(target, partition, existing_end)
        self._gathering = Gathering()
        self._digest = hashlib.sha256()
        self._records = 0
        self._end = 0
        self._records_written = 0
        self._bytes_written = 0

    async def take(self, command: Command) -> None:
        """Compare the next counted command, or write it."""
        hole = self._target.between(self._end, command.position)
        entries = [LogEntry(at, data) for at, data in enumerate(command.data, command.position)]
        for entry in (*hole, *entries):
            _add(self._digest, entry)
        self._records += len(entries)
        self._end = command.end
        existing = self._existing
        if command.position < existing.end:
            await existing.compare([*hole, *entries])
            return
        held = [entry for entry in hole if entry.offset < existing.end]
        await existing.compare(held)
        for entry in hole[len(held) :]:
            await self._write(self._gathering.add(entry.offset, [(None, entry.data)]))
        await self._write(self._gathering.add(command.position, list(zip(command.keys, command.data, strict=True))))

    async def finish(self) -> Copied:
        """Write what waits, and see that the target ends where the source does."""
        await self._write(self._gathering.rest())
        if self._end < self._existing.end:
            raise CopyWentWrong(self._partition, self._end, "the target goes on where the source ends")
        return Copied(self._records, self._end, self._digest.digest(), self._records_written, self._bytes_written)

    async def _write(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            await self._target.write(self._partition, piece)
            self._records_written += len(piece.records)
            self._bytes_written += piece.bytes


class _Existing:
    """What the target held at first, read along with the source."""

    def __init__(self, target: Target, partition: int, end: int) -> None:
        self.end = end
        self._target = target
        self._partition = partition
        self._position = 0
        self._read: list[LogEntry] = []

    async def compare(self, expected: Sequence[LogEntry]) -> None:
        """Raise `CopyWentWrong` unless the target goes on with these."""
        for entry in expected:
            found = await self._next()
            if found != entry:
                raise CopyWentWrong(self._partition, entry.offset, _difference(found, entry))

    async def _next(self) -> LogEntry | None:
        if not self._read and self._position < self.end:
            # Last first, so that each can be taken from the end.
            self._read = list(reversed(await self._target.read(self._partition, self._position)))
        if not self._read:
            return None
        entry = self._read.pop()
        self._position = entry.offset + 1
        return entry


def _difference(found: LogEntry | None, expected: LogEntry) -> str:
    if found is None:
        return "the target ends in the middle of a command"
    if found.offset != expected.offset:
        return f"the target holds nothing there, and its next record at {found.offset}"
    return "the target holds another record there"


def _add(digest: hashlib._Hash, entry: LogEntry) -> None:
    digest.update(b"%d,%d;" % (entry.offset, len(entry.data)))
    digest.update(entry.data)
