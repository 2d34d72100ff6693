"""Keeping the local copy of a log: what is read and appended goes into it, gaps and damage are mended from the log.

The log is the truth. What is read of it and differs from what the copy holds shows that the log was cut or written
again; what the copy held from there on is written down as lost, and then forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from engine.environment import Environment
from engine.logs.interface import LogCorrupt, LogEntry, LogError, LogUnavailable
from engine.logs.local_copy import LocalCopy, pieces
from engine.logs.lost import LostRecords

_log = logging.getLogger("runstore.copy")

retry_seconds_first: Final = 0.1
retry_seconds_max: Final = 5.0
write_delay_seconds: Final = 0.005
"""How long a batch that was appended may wait to be written with others, while its callers have their answers."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a log: entries in order, and the offset to read on at."""

    entries: Sequence[LogEntry]
    following: int


class Source(Protocol):
    """Reads the log itself: at an offset and after; an empty piece only at the end. Raises a `LogError`."""

    def __call__(self, partition: int, offset: int) -> Awaitable[Piece]:
        """Read."""
        ...


class Copying:
    """The copy of all partitions, kept up with the log. Belongs to one event loop."""

    def __init__(self, copy: LocalCopy, read: Source, lost: LostRecords, environment: Environment) -> None:
        self._copy = copy
        self._read = read
        self._lost = lost
        self._environment = environment
        self._locks: dict[int, asyncio.Lock] = {}
        self._menders: dict[int, asyncio.Task[None]] = {}
        self._missing: dict[int, set[int]] = {}
        self._writing: asyncio.Task[None] | None = None
        self._ends: dict[int, int] = {}
        """Up to where each partition must be copied at least."""
        self._closed = False

    def end(self, partition: int) -> int:
        """Up to where the copy holds all that the log does."""
        return self._copy.end(partition)

    def lost(self, partition: int) -> int:
        """How many lost records of a partition are written down."""
        return self._lost.count(partition)

    def fetch(self, partition: int, positions: Sequence[int]) -> list[bytes]:
        """The records at these positions.

        Raises `LogCorrupt` for one that was never copied, and `LogUnavailable` for one that must be copied again, which
        is then under way.
        """
        try:
            values = self._copy.fetch(partition, positions)
        except LogError as error:
            raise LogUnavailable(f"partition {partition}: the copy of the log cannot be read: {error}") from error
        missing = [position for position, value in zip(positions, values, strict=True) if value is None]
        if missing:
            self._report_missing(partition, missing)
        return [value for value in values if value is not None]

    def stored(self, partition: int, position: int, end: int, records_max: int) -> list[LogEntry]:
        """Entries from a position to before an end, where the copy is whole. Raises as `fetch` does."""
        whole = min(end, self._copy.end(partition))
        if position >= whole:
            if position < end:
                self._mend(partition)
                raise LogUnavailable(
                    f"partition {partition}: the copy from position {position} on is not whole, and is read again",
                    partition=partition,
                    position=position,
                )
            return []
        try:
            found = self._copy.stored(partition, position, whole, records_max)
        except LogError:
            # A damaged block fails them all.
            positions = range(position, min(whole, position + records_max))
            values = self._copy.fetch(partition, positions)
            found = list(zip(positions, values, strict=True))
        missing = [offset for offset, value in found if value is None]
        if missing:
            self._report_missing(partition, missing)
        return [LogEntry(offset, value) for offset, value in found if value is not None]

    def _report_missing(self, partition: int, missing: Sequence[int]) -> None:
        known = max(self._copy.end(partition), self._ends.get(partition, 0))
        for position in missing:
            if position >= known:
                raise LogCorrupt(
                    f"partition {partition}: there is no record at position {position}",
                    partition=partition,
                    position=position,
                )
        self._missing.setdefault(partition, set()).update(missing)
        self._mend(partition)
        raise LogUnavailable(
            f"partition {partition}: the copy of position {missing[0]} is missing or damaged, and is read again",
            partition=partition,
            position=missing[0],
        )

    async def up_to(self, partition: int, position: int) -> None:
        """Copy what is missing before a position. Raises a `LogError`."""
        self._need(partition, position)
        if self._copy.end(partition) >= position:
            return
        async with self._lock(partition):
            while (begin := self._copy.end(partition)) < position:
                piece = await self._read(partition, begin)
                if piece.following <= begin:
                    return  # The log ends before: who reads at the position will see that.
                await self._keep(partition, piece, begin)

    async def keep(self, partition: int, piece: Piece, begin: int) -> None:
        """Hold what was read at `begin`. Raises `LogUnavailable`."""
        self._need(partition, piece.following)
        if not piece.entries and piece.following <= begin:
            return
        async with self._lock(partition):
            await self._keep(partition, piece, begin)

    async def landed(self, partition: int, offset: int, batch: Sequence[bytes]) -> None:
        """Hold a batch that was appended, where nothing before it is missing; else it is copied with that."""
        end = offset + len(batch)
        self._need(partition, end)
        if self._copy.end(partition) != offset:
            self._mend(partition)
            return
        entries = [LogEntry(offset + index, data) for index, data in enumerate(batch)]
        try:
            if len(list(pieces(entries))) > 1:
                await self._write(partition, entries, end)
                return
            self._copy.hold(partition, entries, end)
        except LogError as error:
            # The batch is in the log all the same.
            self._not_written(error)
        if self._writing is None and not self._closed:
            self._writing = asyncio.create_task(self._write_soon())

    def cut(self, partition: int, end: int) -> None:
        """The log has turned out to end here: what was held from there on is lost. Raises `LogUnavailable`."""
        self._ends[partition] = min(end, self._ends.get(partition, end))
        self._lose(partition, end)

    async def close(self) -> None:
        """Stop mending and close the copy. Safe to repeat."""
        if self._closed:
            return
        self._closed = True
        menders = list(self._menders.values())
        if self._writing is not None:
            menders.append(self._writing)
        for mender in menders:
            mender.cancel()
        await asyncio.gather(*menders, return_exceptions=True)
        self._copy.close()

    # -- holding

    async def _keep(self, partition: int, piece: Piece, begin: int) -> None:
        """Compare with what is held, and hold the rest. The partition's lock is taken."""
        end = self._copy.end(partition)
        entries = piece.entries
        if entries and entries[0].offset < end:
            entries = await self._compared(partition, entries)
        # A copy that was begun anew meanwhile is not whole up to here.
        end = self._copy.end(partition)
        await self._write(partition, entries, piece.following if begin <= end else end)

    async def _compared(self, partition: int, entries: Sequence[LogEntry]) -> Sequence[LogEntry]:
        """The entries that are not held yet; what differs from what is held has that forgotten from there on."""
        held = self._copy.fetch(partition, [entry.offset for entry in entries])
        for entry, data in zip(entries, held, strict=True):
            if data is not None and data != entry.data:
                begin = await self._first_difference(partition, entry.offset)
                self._lose(partition, begin, await self._still_there(partition, begin))
                return [each for each in entries if each.offset >= self._copy.end(partition)]
        return [entry for entry, data in zip(entries, held, strict=True) if data is None]

    async def _first_difference(self, partition: int, different: int) -> int:
        """Where log and copy part, at an offset where they differ or before: what follows a difference differs too."""
        same = 0
        while same < different:
            probe = (same + different) // 2
            piece = await self._read(partition, probe)
            if not piece.entries or piece.entries[0].offset >= different:
                different = probe
                continue
            entry = piece.entries[0]
            (held,) = self._copy.fetch(partition, [entry.offset])
            if held in {None, entry.data}:
                same = entry.offset + 1
            else:
                different = probe
        return different

    async def _still_there(self, partition: int, begin: int) -> set[int]:
        """Where the log holds what the copy does, from a position on: some of the new history was copied already."""
        there: set[int] = set()
        while begin < self._copy.end(partition):
            piece = await self._read(partition, begin)
            if piece.following <= begin:
                break
            held = self._copy.fetch(partition, [entry.offset for entry in piece.entries])
            pairs = zip(piece.entries, held, strict=True)
            there.update(entry.offset for entry, data in pairs if data == entry.data)
            begin = piece.following
        return there

    def _lose(self, partition: int, position: int, there: Collection[int] = ()) -> None:
        """Write down what is held from a position on, but for what is there still, and forget all of it."""
        held = (entry for entry in self._copy.held(partition, position) if entry.offset not in there)
        try:
            self._lost.write(partition, position, held)
            self._copy.cut(partition, position)
        except (OSError, LogError) as error:
            raise LogUnavailable(
                f"partition {partition}: what the log has lost from position {position} on cannot be written down: "
                f"{error}"
            ) from error

    async def _write(self, partition: int, entries: Sequence[LogEntry], end: int) -> None:
        """Hold entries in writes within the bounds; the end changes with the last. Raises `LogUnavailable`."""
        parts = list(pieces(entries)) or [()]
        for part in parts[:-1]:
            self._write_part(partition, part, None)
            await self._environment.sleep(0)
        self._write_part(partition, parts[-1], end if end > self._copy.end(partition) else None)

    def _write_part(self, partition: int, entries: Sequence[LogEntry], end: int | None) -> None:
        if not entries and end is None:
            return
        try:
            self._copy.write(partition, entries, end)
        except LogCorrupt as error:
            self._not_written(error)
            raise LogUnavailable(f"the copy of the log was damaged: {error}", partition=partition) from error
        except LogError as error:
            raise LogUnavailable(f"the copy of the log cannot be written: {error}", partition=partition) from error

    async def _write_soon(self) -> None:
        """Write what has been held, after a while in which more may come."""
        await self._environment.sleep(write_delay_seconds)
        self._writing = None
        try:
            self._copy.flush()
        except LogError as error:
            self._not_written(error)

    def _not_written(self, error: LogError) -> None:
        """What is missing now is read again."""
        if isinstance(error, LogCorrupt):
            # RocksDB takes no write any more.
            _log.error("the copy of the log is damaged, and made anew from the log: %s", error)
            with contextlib.suppress(OSError, LogError):
                self._copy.begin_anew()
        else:
            _log.error("batches could not be copied, and are read again: %s", error)
        self._mend_all()

    def _lock(self, partition: int) -> asyncio.Lock:
        return self._locks.setdefault(partition, asyncio.Lock())

    def _need(self, partition: int, end: int) -> None:
        self._ends[partition] = max(end, self._ends.get(partition, 0))

    # -- mending

    def _mend_all(self) -> None:
        for partition in self._ends:
            self._mend(partition)

    def _mend(self, partition: int) -> None:
        """Copy in the background what is missing, until nothing is."""
        if partition not in self._menders and not self._closed:
            mender = asyncio.create_task(self._keep_mending(partition))
            self._menders[partition] = mender
            mender.add_done_callback(lambda _: self._menders.pop(partition, None))

    async def _keep_mending(self, partition: int) -> None:
        wait = retry_seconds_first
        while True:
            try:
                await self._mend_once(partition)
            except LogError as error:
                _log.warning("partition %d: the copy cannot be mended yet: %s", partition, error)
            else:
                if not self._missing.get(partition) and self._copy.end(partition) >= self._ends.get(partition, 0):
                    return
            await self._environment.sleep(wait)
            wait = min(2 * wait, retry_seconds_max)

    async def _mend_once(self, partition: int) -> None:
        missing = self._missing.get(partition, set())
        end = self._copy.end(partition)
        await self.up_to(partition, self._ends.get(partition, 0))
        # What was missing from the end on has come with that.
        missing.difference_update([position for position in missing if position >= end])
        while missing:
            async with self._lock(partition):
                position = min(missing)
                piece = await self._read(partition, position)
                found = [entry for entry in piece.entries if entry.offset in missing]
                await self._write(partition, found, 0)
            missing.difference_update({position, *(entry.offset for entry in found)})
