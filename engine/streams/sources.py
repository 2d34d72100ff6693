"""What streams read: the records of a run or a session by its index, those of everything from the log.

A read is of one moment: it waits for nothing, so that what it finds, and whether its run or session is there, belong
together.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from engine.cursors import ALL_SUBJECT, Cursors, run_subject, session_subject
from engine.keys import KeyMissing
from engine.logs.interface import LogEntry
from engine.opener import content_of
from engine.partition import Partition, PartitionUnavailable
from engine.pending import unavailable
from engine.reads import Reader
from engine.streams.places import pack_place, unpack_place
from engine.streams.portions import Read, State, portion_bytes_max, portion_records_max
from engine.watchers import EVERYTHING, Watched
from projections import layout
from projections.layout import number_bytes, read_number
from projections.queries import live_run
from projections.view import View
from schemas.log_record import Kind, LogRecord, decode, record_id
from schemas.refusals import Code, Refusal, Refused, refuse
from schemas.streams import Ending, Portion, StreamEnd, StreamRecord, record_overhead_bytes
from schemas.values import Record

log = logging.getLogger("runstore.streams")

PlaceT = TypeVar("PlaceT")

_OPENED_TOGETHER_MAX: Final = 16
_SCANNED_ENTRIES_MAX: Final = 512
"""How many entries of a log one read looks at: few of them may be records that are asked for."""

_POSITION_MAX: Final = (1 << 63) - 1


def state_of(partitions: Sequence[Partition]) -> State:
    """How far these partitions are: while it is the same, reading again finds nothing else."""
    return tuple((each.watchers.resets, each.projection.rule.end) for each in partitions)


class NotProven(Exception):
    """A record could not be opened; a partition that has proved that it is not behind may know its key."""

    def __init__(self, partition: Partition) -> None:
        super().__init__(f"partition {partition.number} may not know all keys yet")
        self.partition = partition


class Source(Protocol[PlaceT]):
    """What a stream reads."""

    @property
    def partitions(self) -> Sequence[Partition]:
        """Where it is."""
        ...

    @property
    def watched(self) -> Watched:
        """What its readers wait for."""
        ...

    @property
    def name(self) -> object:
        """What is read, filters included: with a place it tells what a portion holds."""
        ...

    def start(self) -> PlaceT:
        """The place before everything."""
        ...

    def place(self, cursor: str) -> PlaceT | Refusal:
        """The place that a cursor names, or `invalid_cursor`."""
        ...

    def end(self) -> PlaceT:
        """The place after everything that is applied now."""
        ...

    def read(self, place: PlaceT, until: PlaceT | None, *, proven: bool) -> Read[PlaceT]:
        """What follows a place, not beyond `until`. Raises `PartitionUnavailable`, and `NotProven` once."""
        ...


@dataclass(frozen=True, slots=True)
class Owned:
    """What is found of a run or session: the prefixes of its indexes, or its end; a run's status, once terminal."""

    prefixes: Sequence[bytes]
    end: StreamEnd | None = None
    terminal: int = _POSITION_MAX
    """The position of a run's last record, once there is one."""


class IndexSource:
    """The records of one run or session; a place is the position to read on at."""

    def __init__(
        self,
        partition: Partition,
        cursors: Cursors,
        watched: Watched,
        types: Sequence[str],
        find: Callable[[View], Owned | None],
    ) -> None:
        """`find` answers None where the run or session is not there any more."""
        self.partitions = (partition,)
        self.watched = watched
        self.name = watched, tuple(types)
        self._partition = partition
        self._cursors = cursors
        self._subject = run_subject(watched.run_id) if watched.run_id else session_subject(watched.session_id)
        self._find = find

    def start(self) -> int:
        """See `Source`."""
        return 0

    def place(self, cursor: str) -> int | Refusal:
        """See `Source`."""
        place = self._cursors.read(self._subject, cursor)
        return place if isinstance(place, Refusal) else read_number(place) + 1

    def end(self) -> int:
        """See `Source`."""
        return self._partition.projection.rule.end

    def read(self, place: int, until: int | None, *, proven: bool) -> Read[int]:
        """See `Source`."""

        def read(view: View) -> Read[int]:
            try:
                return self._read(view, place, until)
            except KeyMissing as error:
                if proven:
                    raise Refused(unavailable(str(error))) from error
                raise NotProven(self._partition) from error

        return self._partition.look(read)

    def _read(self, view: View, place: int, until: int | None) -> Read[int]:
        state = state_of(self.partitions)
        owned = self._find(view)
        if owned is None:
            gone = StreamEnd(Ending.PURGED, run_id=self.watched.run_id, session_id=self.watched.session_id)
            return Read(Portion((), gone), place, whole=True, state=state)
        end = _POSITION_MAX if until is None else until
        found = [
            [
                read_number(key)
                for key, _ in view.scan(
                    prefix + number_bytes(place), prefix + number_bytes(end), portion_records_max + 1
                )
            ]
            for prefix in owned.prefixes
        ]
        positions = list(heapq.merge(*found))[: portion_records_max + 1]
        records = self._opened(Reader(view, self._partition.opener, self._cursors), positions[:portion_records_max])
        whole = len(records) == len(positions)
        following = positions[len(records) - 1] + 1 if records else place
        stream_end = None
        if whole and owned.end is not None and owned.terminal < end:
            stream_end = owned.end
        elif whole and until is not None:
            stream_end = StreamEnd(Ending.CAUGHT_UP)
        return Read(Portion(tuple(records), stream_end), following, whole=whole, state=state)

    def _opened(self, reader: Reader, positions: Sequence[int]) -> list[StreamRecord]:
        """Open records, at first one, then ever more at a time, until the portion is full."""
        records: list[StreamRecord] = []
        size, start, together = 0, 0, 1
        while start < len(positions) and size < portion_bytes_max:
            some = positions[start : start + together]
            for position, record in zip(some, reader.opener.records(some), strict=True):
                records.append(StreamRecord(self._cursors.make(self._subject, number_bytes(position)), record))
                size += len(record.content.payload) + record_overhead_bytes
                if size >= portion_bytes_max:
                    break
            start, together = start + together, min(2 * together, _OPENED_TOGETHER_MAX)
        return records


Places = tuple[int, ...]


class EverythingSource:
    """Every record of the store; a place is the position to read on at in each partition.

    Partitions take turns to be read first, so that a long history in one does not hold up the others. One that does
    not serve is passed over: its part of the place stays.
    """

    def __init__(self, partitions: Sequence[Partition], cursors: Cursors, types: Sequence[str]) -> None:
        self.partitions = partitions
        self.watched = EVERYTHING
        self.name = EVERYTHING, tuple(types)
        self._cursors = cursors
        self._types = frozenset(types)
        self._turn = 0

    def start(self) -> Places:
        """See `Source`."""
        return (0,) * len(self.partitions)

    def place(self, cursor: str) -> Places | Refusal:
        """See `Source`."""
        packed = self._cursors.read(ALL_SUBJECT, cursor)
        if isinstance(packed, Refusal):
            return packed
        place = unpack_place(packed, len(self.partitions))
        return refuse(Code.INVALID_CURSOR, "this cursor is of another number of partitions") if place is None else place

    def end(self) -> Places:
        """See `Source`."""
        return tuple(each.projection.rule.end for each in self.partitions)

    def read(self, place: Places, until: Places | None, *, proven: bool) -> Read[Places]:
        """See `Source`."""
        state = state_of(self.partitions)
        reached = list(place)
        records: list[StreamRecord] = []
        size = 0
        whole = True
        blocked: PartitionUnavailable | None = None
        count = len(self.partitions)
        self._turn = (self._turn + 1) % count
        for number in (*range(self._turn, count), *range(self._turn)):
            end = self.partitions[number].projection.rule.end if until is None else until[number]
            if reached[number] >= end:
                continue
            if size >= portion_bytes_max or len(records) >= portion_records_max:
                whole = False
                break
            reading = _Reading(self.partitions[number], reached[number], end, self._types, size, proven=proven)
            try:
                reading.partition.look(reading.read)
            except PartitionUnavailable as error:
                blocked = error
                continue
            for position, record in reading.found:
                reached[number] = position + 1
                records.append(StreamRecord(self._cursors.make(ALL_SUBJECT, pack_place(reached)), record))
            reached[number] = reading.reached
            size = reading.size
            whole = whole and reading.reached >= end
        following = tuple(reached)
        if blocked is not None and following == place:
            raise blocked
        whole = whole and blocked is None
        caught_up = until is not None and all(map(int.__ge__, following, until))
        return Read(
            Portion(tuple(records), StreamEnd(Ending.CAUGHT_UP) if caught_up else None), following, whole, state
        )


class _Reading:
    """Reads records of one partition from the log: those that count, are asked for, and are not purged."""

    def __init__(
        self, partition: Partition, reached: int, end: int, types: frozenset[str], size: int, *, proven: bool
    ) -> None:
        self.partition = partition
        self.reached = reached
        self.size = size
        self.found: list[tuple[int, Record]] = []
        self._end = end
        self._types = types
        self._proven = proven

    def read(self, view: View) -> None:
        """Read from `reached` until there is enough. Raises `NotProven` where nothing was read before it."""
        entries = self.partition.opener.stored(self.reached, self._end, _SCANNED_ENTRIES_MAX)
        for entry in entries:
            if self.size >= portion_bytes_max or len(self.found) >= portion_records_max:
                return
            if (record := self._counted(view, entry)) is not None and not self._take(record):
                return
            self.reached = entry.offset + 1
        if len(entries) < _SCANNED_ENTRIES_MAX and not self._more():
            self.reached = self._end

    def _more(self) -> bool:
        """Whether the log holds more before the end: it may have answered with less than it was asked for."""
        return self.reached < self._end and bool(self.partition.opener.stored(self.reached, self._end, 1))

    def _counted(self, view: View, entry: LogEntry) -> LogRecord | None:
        """The record in an entry, if it counts, is asked for, and its run is there.

        What counts is in its run's index, and a purge takes it out: so a void record, which may say that it belongs
        here, is told from one that does, without reading what comes before.
        """
        record = decode(entry.data)
        if record.kind != Kind.RECORD or record.position != entry.offset:
            return None
        if self._types and record.type not in self._types:
            return None
        row = live_run(view, record.run_id)
        if row is None:
            return None
        key = layout.run_records_prefix(row.owner, row.number) + number_bytes(entry.offset)
        return record if view.get(key) is not None else None

    def _take(self, record: LogRecord) -> bool:
        """Open a record; False where that must wait for its key. One that can never be opened is left out, loudly."""
        try:
            private = self.partition.opener.unseal(record)
        except KeyMissing as error:
            if self._proven and not self.found:
                log.error(
                    "partition %d: the record at position %d of run %r cannot be opened, and streams of everything go "
                    "on without it: %s",
                    self.partition.number,
                    record.position,
                    record.run_id,
                    error,
                )
                return True
            if self.found:
                return False
            raise NotProven(self.partition) from error
        content = content_of(record, private)
        self.found.append((record.position, Record(record_id(self.partition.number, record.position), content)))
        self.size += len(content.payload) + record_overhead_bytes
        return True
