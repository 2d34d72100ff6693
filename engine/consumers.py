"""Named consumers over the partitions of one store: made, listed, committed, deleted, and where each reads on.

A consumer lives in the partition of its name. What it reads may live elsewhere, and is looked up before it is made.

A cursor of a consumer holds what one of its scope's own stream does, for a subject of the consumer's own. The log and
the projection hold it as positions to read on at, eight bytes each: of every partition in order, or of the one where
the session or run lives. Nothing at all is the start.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

from engine.cursors import ALL_SUBJECT, Cursors, consumer_subject, run_subject, session_subject
from engine.decide.common import run_not_found
from engine.decide.consumers import (
    CommitConsumer,
    ConsumerCommand,
    DeleteConsumer,
    PutConsumer,
    consumer_not_found,
    foreign_cursor,
)
from engine.decide.state import NOTHING_ELSEWHERE, NOTHING_PREPARED, ConsumerState
from engine.environment import Environment
from engine.partition import Partition, PartitionUnavailable
from engine.reads import Reader
from engine.router import Router
from engine.streams import Streams
from engine.streams.places import pack_place, unpack_place
from engine.streams.stream import Stream
from projections import layout
from projections.layout import number_bytes, read_number, read_numbers
from projections.queries import consumer_row, live_run
from projections.rows import ConsumerRow
from projections.view import View
from schemas import limits
from schemas.consumers import Consumer, Scope, ScopeKind, StartAt
from schemas.refusals import Refusal, invalid
from schemas.streams import Portion, StreamRecord
from schemas.text import check_id, check_type
from schemas.values import Done

generation_bytes: Final = 16
_SCAN_ROWS: Final = 1000


@dataclass(frozen=True, slots=True)
class Reading:
    """What a consumer reads, and from where: a cursor of its scope's own stream, empty for the start.

    `translated` makes a cursor of the consumer's own of one of that stream.
    """

    scope: Scope
    types: tuple[str, ...]
    begin: str
    translated: Callable[[str], str]


class ConsumerStream:
    """The stream of a consumer's scope with the consumer's own cursors. Must be closed by who opened it."""

    def __init__(self, under: Stream[Any], translated: Callable[[str], str]) -> None:
        self._under = under
        self._translated = translated

    async def take(self) -> Portion | None:
        """See `engine.streams.stream.Stream`."""
        portion = await self._under.take()
        if portion is None:
            return None
        records = tuple(StreamRecord(self._translated(each.cursor), each.record) for each in portion.records)
        return Portion(records, portion.end)

    async def wait(self) -> None:
        """See `engine.streams.stream.Stream`."""
        await self._under.wait()

    def wake(self) -> None:
        """See `engine.streams.stream.Stream`."""
        self._under.wake()

    async def waiting_bytes(self, bytes_max: int) -> int:
        """See `engine.streams.stream.Stream`."""
        return await self._under.waiting_bytes(bytes_max)

    def close(self) -> None:
        """See `engine.streams.stream.Stream`."""
        self._under.close()


class Consumers:
    """The named consumers of one store."""

    def __init__(
        self,
        partitions: Sequence[Partition],
        router: Router,
        cursors: Cursors,
        environment: Environment,
        streams: Streams,
        bounded: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        """`bounded` ends what takes longer than a caller waits."""
        self._partitions = partitions
        self._router = router
        self._cursors = cursors
        self._environment = environment
        self._streams = streams
        self._bounded = bounded

    async def put(self, name: str, scope: Scope, types: Sequence[str], start_at: StartAt) -> Consumer | Refusal:
        """Make a consumer; the same again is answered as it stands, another of that name is `consumer_conflict`."""
        if (refusal := _shape(name, scope, types)) is not None:
            return refusal
        try:
            async with self._bounded():
                generation = self._environment.random_bytes(generation_bytes).hex()
                command = PutConsumer(name, scope, tuple(sorted(set(types))), start_at, generation, b"")
                row = await self._row(name)
                if row is None or row.deleted:
                    place = await self._begin(scope, start_at)
                    if isinstance(place, Refusal):
                        return place
                    command = dataclasses.replace(command, place=place)
                return self._shown(await self._submit(command))
        except PartitionUnavailable as error:
            return error.refusal

    async def commit(self, name: str, cursor: str) -> Consumer | Refusal:
        """Note that all up to a cursor of the consumer's own stream is dealt with; backwards changes nothing."""
        if (problem := check_id(name, "name")) is not None:
            return invalid(problem)
        try:
            async with self._bounded():
                row = await self._row(name)
                if row is None or row.deleted:
                    return consumer_not_found(name)
                place = self._place(name, row, cursor)
                if isinstance(place, Refusal):
                    return place
                return self._shown(await self._submit(CommitConsumer(name, row.generation, place)))
        except PartitionUnavailable as error:
            return error.refusal

    async def delete(self, name: str) -> Done | Refusal:
        """Remove a consumer, with what it has committed; its name may be used again."""
        if (problem := check_id(name, "name")) is not None:
            return invalid(problem)
        try:
            async with self._bounded():
                found = await self._submit(DeleteConsumer(name))
                return found if isinstance(found, Refusal) else Done()
        except PartitionUnavailable as error:
            return error.refusal

    async def list(self) -> tuple[Consumer, ...] | Refusal:
        """Every consumer, by name."""
        try:
            async with self._bounded():
                found = await asyncio.gather(*(each.read(_rows) for each in self._partitions))
        except PartitionUnavailable as error:
            return error.refusal
        rows = sorted((name.encode(), name, row) for each in found for name, row in each)
        return tuple(self._consumer(name, row) for _, name, row in rows)

    async def reading(self, name: str, cursor: str = "") -> Reading | Refusal:
        """What a consumer reads, from a cursor of its own, or where there is none from what it has committed."""
        if (problem := check_id(name, "name")) is not None:
            return invalid(problem)
        try:
            async with self._bounded():
                row = await self._row(name)
        except PartitionUnavailable as error:
            return error.refusal
        if row is None or row.deleted:
            return consumer_not_found(name)
        place = self._place(name, row, cursor) if cursor else row.place
        if isinstance(place, Refusal):
            return place
        under, own = _subject(row.scope), consumer_subject(name, row.generation)

        def translated(text: str) -> str:
            place = self._cursors.read(under, text)
            assert not isinstance(place, Refusal), "the scope's own stream makes cursors of the scope"
            return self._cursors.make(own, place)

        begin = self._cursors.make(under, _as_in_cursor(row.scope, place)) if place else ""
        return Reading(row.scope, row.types, begin, translated)

    async def stream(self, name: str, cursor: str = "", *, follow: bool = True) -> ConsumerStream | Refusal:
        """What a consumer reads, from a cursor of its own, or where there is none from what it has committed."""
        reading = await self.reading(name, cursor)
        if isinstance(reading, Refusal):
            return reading
        scope, types, begin = reading.scope, reading.types, reading.begin
        opened: Stream[Any] | Refusal
        if scope.kind is ScopeKind.ALL:
            opened = await self._streams.everything(begin, types, follow=follow)
        elif scope.kind is ScopeKind.RUN:
            opened = await self._streams.run(scope.id, begin, types, follow=follow)
        else:
            opened = await self._streams.session(scope.id, begin, types, follow=follow)
        return opened if isinstance(opened, Refusal) else ConsumerStream(opened, reading.translated)

    # -- inside

    async def _row(self, name: str) -> ConsumerRow | None:
        return await self._home(name).read(lambda view: consumer_row(view, name))

    def _home(self, name: str) -> Partition:
        return self._router.home_of(f"consumer:{name}")

    async def _submit(self, command: ConsumerCommand) -> ConsumerState | Done | Refusal:
        outcome = await self._home(command.name).submit(command, NOTHING_ELSEWHERE, NOTHING_PREPARED)
        assert isinstance(outcome, ConsumerState | Done | Refusal), "nothing else comes of a consumer's command"
        return outcome

    async def _begin(self, scope: Scope, start_at: StartAt) -> bytes | Refusal:
        """Where a new consumer begins, in the log's form; refused where there is nothing that it could read."""
        if scope.kind is ScopeKind.ALL:
            if start_at is StartAt.START:
                return b""
            ends = await asyncio.gather(*(each.read(lambda view: view.applied().position) for each in self._partitions))
            return b"".join(map(number_bytes, ends))
        if scope.kind is ScopeKind.RUN:
            home = await self._router.run_home(scope.id)
        else:
            home = self._router.home_of(scope.id)

        def find(view: View) -> int | Refusal:
            if scope.kind is ScopeKind.RUN:
                return view.applied().position if live_run(view, scope.id) is not None else run_not_found(scope.id)
            row = Reader(view, home.opener, self._cursors).session_row(scope.id)
            return row if isinstance(row, Refusal) else view.applied().position

        end = await home.read(find)
        if isinstance(end, Refusal):
            return end
        return number_bytes(end) if start_at is StartAt.NOW else b""

    def _place(self, name: str, row: ConsumerRow, cursor: str) -> bytes | Refusal:
        """The place of a cursor of this consumer, in the log's form."""
        found = self._cursors.read(consumer_subject(name, row.generation), cursor)
        if isinstance(found, Refusal):
            return foreign_cursor(name)
        if row.scope.kind is not ScopeKind.ALL:
            return number_bytes(read_number(found) + 1)
        positions = unpack_place(found, len(self._partitions))
        assert positions is not None, "the store made this cursor"
        return b"".join(map(number_bytes, positions))

    def _shown(self, outcome: ConsumerState | Done | Refusal) -> Consumer | Refusal:
        assert not isinstance(outcome, Done), "a consumer that was deleted is not shown"
        return outcome if isinstance(outcome, Refusal) else self._consumer(outcome.name, outcome.row)

    def _consumer(self, name: str, row: ConsumerRow) -> Consumer:
        cursor = ""
        if row.place:
            cursor = self._cursors.make(consumer_subject(name, row.generation), _as_in_cursor(row.scope, row.place))
        return Consumer(name, row.scope, row.types, StartAt(row.start_at), cursor)


def _shape(name: str, scope: Scope, types: Sequence[str]) -> Refusal | None:
    problem = check_id(name, "name")
    if problem is not None:
        return invalid(problem)
    if scope.kind is not ScopeKind.ALL:
        problem = check_id(scope.id, f"scope.{scope.kind}")
    if len(types) > limits.consumer_types_max:
        problem = problem or f"types must be at most {limits.consumer_types_max}, not {len(types)}"
    for index, each in enumerate(types):
        problem = problem or check_type(each, f"types.{index}")
    return None if problem is None else invalid(problem, name=name)


def _subject(scope: Scope) -> str:
    """The subject of the cursors of a scope's own stream."""
    if scope.kind is ScopeKind.ALL:
        return ALL_SUBJECT
    return run_subject(scope.id) if scope.kind is ScopeKind.RUN else session_subject(scope.id)


def _as_in_cursor(scope: Scope, place: bytes) -> bytes:
    """A place as cursors hold it: of one session or run they name the record that was read last."""
    if scope.kind is ScopeKind.ALL:
        return pack_place(read_numbers(place))
    return number_bytes(read_number(place) - 1)


def _rows(view: View) -> list[tuple[str, ConsumerRow]]:
    """Every consumer that lives in a partition."""
    found: list[tuple[str, ConsumerRow]] = []
    begin = layout.CONSUMER
    while page := view.scan(begin, layout.CONSUMER + b"\xff", _SCAN_ROWS):
        for key, _ in page:
            name = layout.read_consumer_key(key)
            row = consumer_row(view, name)
            if row is not None and not row.deleted:
                found.append((name, row))
        begin = page[-1][0] + b"\x00"
    return found
