"""The simulated log: in memory, with the faults that the others can have, for tests and simulations.

Basics
  `SimulatedLogStorage` is what survives: the records of each partition. `SimulatedLog` is one client of it. Two clients
  of one storage are two processes, one of them perhaps a zombie.
  Like Kafka it stores a batch whole, wherever the partition ends, and answers where that was. With `exclusive` it is
  like the embedded log: a batch lands at its position or not at all.
  A client asks its `Faults` at each call what shall go wrong. It waits by `Environment.sleep` alone and draws nothing,
  so that a run is repeated by repeating its environment and faults.

Caveats
  A batch on its way lands whatever became of its client: gone, killed, or stopped and woken later. Before comparing
  anything, wait for `settle`.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from engine.environment import Environment
from engine.logs.interface import AppendRefused, LogClosed, LogCorrupt, LogEntry, LogUnavailable, OutcomeUnknown

T = TypeVar("T")


class Answer(Enum):
    """Which copy of a batch its writer hears of."""

    FIRST = "first"
    LAST = "last"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class AppendFault:
    """What becomes of one append; by default, what should."""

    refused: bool = False
    copies: int = 1
    """How often the batch lands; 0 loses it, and `OutcomeUnknown` is raised."""
    answer: Answer = Answer.FIRST
    delay_seconds: float = 0.0
    """Before the batch lands."""
    answer_delay_seconds: float = 0.0
    """After the batch has landed."""
    late_seconds: float | None = None
    """The writer gets `OutcomeUnknown`, and the batch lands so much later."""


@dataclass(frozen=True, slots=True)
class ReadFault:
    """What becomes of one read, or one question for the end; by default, what should."""

    unavailable: bool = False
    delay_seconds: float = 0.0
    records_max: int | None = None
    """Return no more than this (at least one), to split a read anywhere."""


class Faults:
    """What goes wrong, asked at each call. This one lets nothing go wrong; override what shall."""

    def on_append(self, partition: int, position: int, batch: Sequence[bytes]) -> AppendFault:
        """Return what becomes of an append."""
        del partition, position, batch
        return AppendFault()

    def on_read(self, partition: int, position: int) -> ReadFault:
        """Return what becomes of a read."""
        del partition, position
        return ReadFault()

    def on_end(self, partition: int) -> ReadFault:
        """Return what becomes of a question for the end."""
        del partition
        return ReadFault()


class SeededFaults(Faults):
    """Every fault, each as likely as the next, in `rate` of all calls; delays are below `delay_seconds_max`."""

    def __init__(self, source: random.Random, rate: float, delay_seconds_max: float = 1.0) -> None:
        self._random = source
        self._rate = rate
        self._delay_seconds_max = delay_seconds_max

    def on_append(self, partition: int, position: int, batch: Sequence[bytes]) -> AppendFault:
        """See `Faults`."""
        del partition, position, batch
        if self._random.random() >= self._rate:
            return AppendFault()
        seconds = self._seconds()
        return self._random.choice(
            (
                AppendFault(refused=True),
                AppendFault(copies=0),
                AppendFault(copies=2),
                AppendFault(copies=2, answer=Answer.LAST),
                AppendFault(answer=Answer.NONE),
                AppendFault(late_seconds=seconds),
                AppendFault(late_seconds=seconds, copies=2),
                AppendFault(delay_seconds=seconds),
                AppendFault(answer_delay_seconds=seconds),
            )
        )

    def on_read(self, partition: int, position: int) -> ReadFault:
        """See `Faults`."""
        del partition, position
        if self._random.random() >= self._rate:
            return ReadFault()
        return self._random.choice(
            (
                ReadFault(unavailable=True),
                ReadFault(delay_seconds=self._seconds()),
                ReadFault(records_max=self._random.randint(1, 5)),
            )
        )

    def on_end(self, partition: int) -> ReadFault:
        """See `Faults`."""
        return self.on_read(partition, 0)

    def _seconds(self) -> float:
        return self._random.random() * self._delay_seconds_max


class SimulatedLogStorage:
    """The records of each partition, shared by the clients that are given it."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self._entries: list[list[LogEntry]] = [[] for _ in range(partitions)]
        self._ends = [0] * partitions
        self._travelling: dict[asyncio.Task[object], None] = {}
        self.on_land: Callable[[int, int, Sequence[bytes]], None] | None = None
        """Told of each batch that lands: partition, offset, records."""

    def end(self, partition: int) -> int:
        """Return the offset that the next record will get."""
        return self._ends[partition]

    def entries(self, partition: int, position: int = 0, records_max: int | None = None) -> list[LogEntry]:
        """Return the entries at `position` and after, all of them unless `records_max` says how many."""
        index = self._index(partition, position)
        return self._entries[partition][index : None if records_max is None else index + records_max]

    def land(self, partition: int, batch: Sequence[bytes], offset: int | None = None) -> int:
        """Store a batch whole at the end, or above it at `offset`, which leaves a hole. Return where it landed."""
        landed = self._ends[partition] if offset is None else offset
        assert landed >= self._ends[partition]
        self._entries[partition] += [LogEntry(landed + index, bytes(data)) for index, data in enumerate(batch)]
        self._ends[partition] = landed + len(batch)
        if self.on_land is not None:
            self.on_land(partition, landed, batch)
        return landed

    def truncate(self, partition: int, end: int) -> None:
        """Forget what is at `end` and after, as a log does that lost acknowledged records."""
        del self._entries[partition][self._index(partition, end) :]
        self._ends[partition] = min(end, self._ends[partition])

    def rewrite(self, partition: int, position: int, data: bytes) -> None:
        """Put other bytes where a record is."""
        index = self._index(partition, position)
        assert self._entries[partition][index].offset == position
        self._entries[partition][index] = LogEntry(position, data)

    def travel(self, landing: Coroutine[None, None, T]) -> asyncio.Task[T]:
        """Let a batch travel by itself, whatever becomes of its client."""
        # In a context of its own: a simulation tells by the context which process a step belongs to.
        nobody = contextvars.Context()
        task = asyncio.get_running_loop().create_task(landing, context=nobody)
        self._travelling[task] = None
        task.add_done_callback(self._arrived, context=nobody)
        return task

    async def settle(self) -> None:
        """Wait until every batch on its way has landed."""
        while self._travelling:
            await asyncio.wait(list(self._travelling))

    def drop_travelling(self) -> None:
        """Lose every batch on its way, as an exclusive log does when its one process dies."""
        for task in self._travelling:
            task.cancel()

    def _arrived(self, task: asyncio.Task[object]) -> None:
        self._travelling.pop(task, None)

    def _index(self, partition: int, position: int) -> int:
        return bisect_left(self._entries[partition], position, key=lambda entry: entry.offset)


class SimulatedLog:
    """One client of a `SimulatedLogStorage`: a `Log`."""

    def __init__(
        self,
        partitions: int,
        environment: Environment,
        faults: Faults | None = None,
        *,
        exclusive: bool = False,
        storage: SimulatedLogStorage | None = None,
    ) -> None:
        """Without a `storage` of another client this one has its own."""
        self.storage = storage or SimulatedLogStorage(partitions)
        assert self.storage.partitions == partitions
        self._environment = environment
        self._faults = faults or Faults()
        self._exclusive = exclusive
        self._in_flight: set[int] = set()
        self._closed = False

    @property
    def partitions(self) -> int:
        """See `Log`."""
        return self.storage.partitions

    @property
    def exclusive(self) -> bool:
        """See `Log`."""
        return self._exclusive

    async def append(self, partition: int, position: int, batch: Sequence[bytes], run_ids: Sequence[str] = ()) -> int:
        """See `Log`. A second batch of a partition in flight is refused."""
        del run_ids
        if self._closed:
            raise LogClosed("the log is closed", partition=partition, position=position)
        if partition in self._in_flight or not batch:
            raise AppendRefused(
                "no records, or another batch of this partition is in flight", partition=partition, position=position
            )
        self._in_flight.add(partition)
        try:
            return await self._append(partition, position, batch)
        finally:
            self._in_flight.discard(partition)

    async def _append(self, partition: int, position: int, batch: Sequence[bytes]) -> int:
        fault = self._faults.on_append(partition, position, batch)
        if fault.refused:
            await self._environment.sleep(fault.delay_seconds)
            raise AppendRefused("refused by a fault", partition=partition, position=position)
        if fault.late_seconds is not None:
            await self._environment.sleep(fault.delay_seconds)
            self.storage.travel(self._land_later(fault.late_seconds, fault.copies, partition, position, batch))
            raise OutcomeUnknown("the batch is late by a fault", partition=partition, position=position)
        if fault.delay_seconds:
            landing = self._land_later(fault.delay_seconds, fault.copies, partition, position, batch)
            landed = await asyncio.shield(self.storage.travel(landing))
        else:
            await self._environment.sleep(0)
            landed = self._land(fault.copies, partition, position, batch)
        if landed is None:
            raise AppendRefused(
                f"the partition ends at {self.storage.end(partition)}", partition=partition, position=position
            )
        await self._environment.sleep(fault.answer_delay_seconds)
        if not landed or fault.answer is Answer.NONE:
            raise OutcomeUnknown("lost by a fault", partition=partition, position=position)
        return landed[0] if fault.answer is Answer.FIRST else landed[-1]

    async def _land_later(
        self, seconds: float, copies: int, partition: int, position: int, batch: Sequence[bytes]
    ) -> list[int] | None:
        await self._environment.sleep(seconds)
        return self._land(copies, partition, position, batch)

    def _land(self, copies: int, partition: int, position: int, batch: Sequence[bytes]) -> list[int] | None:
        """Store as many copies as may land and return where; None when the position of an exclusive log is taken."""
        if not self._exclusive:
            return [self.storage.land(partition, batch) for _ in range(copies)]
        if position < self.storage.end(partition):
            return None
        return [self.storage.land(partition, batch, position)] if copies else []

    async def read(self, partition: int, position: int, records_max: int = 1000) -> list[LogEntry]:
        """See `Log`."""
        fault = self._faults.on_read(partition, position)
        await self._ask(fault, partition)
        if fault.records_max is not None:
            records_max = max(1, min(records_max, fault.records_max))
        return self.storage.entries(partition, position, records_max)

    def fetch(self, partition: int, positions: Sequence[int]) -> list[bytes]:
        """See `Log`."""
        found: list[bytes] = []
        for position in positions:
            entries = self.storage.entries(partition, position, 1)
            if not entries or entries[0].offset != position:
                raise LogCorrupt(f"there is no record at {position}", partition=partition, position=position)
            found.append(entries[0].data)
        return found

    def stored(self, partition: int, position: int, end: int, records_max: int) -> list[LogEntry]:
        """See `Log`."""
        return [entry for entry in self.storage.entries(partition, position, records_max) if entry.offset < end]

    async def start(self, partition: int) -> int:
        """See `Log`."""
        assert 0 <= partition < self.partitions
        return 0

    async def end(self, partition: int) -> int:
        """See `Log`."""
        await self._ask(self._faults.on_end(partition), partition)
        return self.storage.end(partition)

    def lost(self, partition: int) -> int:
        """See `Log`. What a test takes away is not noticed here."""
        del partition
        return 0

    async def close(self) -> None:
        """See `Log`. Batches on their way land all the same."""
        self._closed = True

    async def _ask(self, fault: ReadFault, partition: int) -> None:
        await self._environment.sleep(fault.delay_seconds)
        if self._closed or fault.unavailable:
            raise LogUnavailable("the log is closed" if self._closed else "unavailable by a fault", partition=partition)
