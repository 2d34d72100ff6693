"""The log on Kafka: one topic, a batch of records for a batch, no transactions; the position rule does the rest.

Basics
  A batch is handed to the partition's leader as one record batch, which Kafka stores whole or not at all, and is
  answered when all in-sync replicas have it. Where no answer comes it is handed over again, within the time limit: a
  copy of it elsewhere than at its position is void.
  Records are read from the topic, and fetched from a copy on this machine (see `engine.logs.copying`).
  Nothing takes longer than its time limit, whatever the brokers do. While they are known not to answer, calls fail at
  once.

Caveats
  Acknowledged means replicated, not fsynced.
  A leader that has been deposed and does not know it tells an end that is too low. One that is lower than what was
  known before is believed only when it is told again after `shorter_believed_seconds`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from engine.environment import Environment
from engine.kafka.client import KafkaClient
from engine.kafka.errors import CannotConnect, KafkaFailed, NotAnswered, NotReached, NotSent, OutOfRange, Refused
from engine.logs.copying import Copying, Piece
from engine.logs.interface import (
    AppendRefused,
    LogClosed,
    LogCorrupt,
    LogEntry,
    LogUnavailable,
    LogUnreachable,
    OutcomeUnknown,
)
from engine.logs.local_copy import LocalCopy
from engine.logs.lost import LostRecords

_log = logging.getLogger("runstore.log")

T = TypeVar("T")

append_seconds_max: Final = 2.5
attempt_seconds_max: Final = 2.0
read_seconds_max: Final = 2.0
retry_seconds: Final = 0.05
shorter_believed_seconds: Final = 3.0
ahead_seconds_max: Final = 1.0
"""How long what was read ahead may be handed out: the log may have been cut since."""


class KafkaLog:
    """A `Log` in a topic, which others may write to at any time. Belongs to one event loop."""

    def __init__(
        self,
        client: KafkaClient,
        topic: str,
        partitions: int,
        copy: LocalCopy,
        lost: LostRecords,
        environment: Environment,
    ) -> None:
        """The topic must be there and fit (see `engine.kafka.topics`). The log closes client and copy with itself."""
        self._client = client
        self._topic = topic
        self._partitions = partitions
        self._environment = environment
        self._copying = Copying(copy, self._read_topic, lost, environment)
        self._known = [copy.end(partition) for partition in range(partitions)]
        self._shorter_since: dict[int, float] = {}
        self._ahead: dict[int, _Ahead] = {}
        self._in_flight: dict[int, asyncio.Future[None]] = {}
        self._closed = False

    @property
    def partitions(self) -> int:
        """See `Log`."""
        return self._partitions

    @property
    def exclusive(self) -> bool:
        """False: whoever reaches the brokers can append."""
        return False

    async def append(self, partition: int, position: int, batch: Sequence[bytes], run_ids: Sequence[str] = ()) -> int:
        """See `Log`. A second batch of a partition in flight is refused; so is, for good, one that the topic's
        `max.message.bytes` does not take."""  # noqa: D205, D209
        where = {"partition": partition, "position": position}
        if self._closed:
            raise LogClosed(f"the log {self._topic} is closed", **where)
        if partition in self._in_flight or not batch:
            raise AppendRefused("no records, or another batch of this partition is in flight", **where)
        landed = self._in_flight[partition] = asyncio.get_running_loop().create_future()
        try:
            offset = await self._append(partition, position, batch, run_ids)
            self._known[partition] = max(self._known[partition], offset + len(batch))
            await self._copying.landed(partition, offset, batch)
        finally:
            del self._in_flight[partition]
            landed.set_result(None)
        return offset

    async def _append(self, partition: int, position: int, batch: Sequence[bytes], run_ids: Sequence[str]) -> int:
        where = {"partition": partition, "position": position}
        keys = [run_id.encode() or None for run_id in run_ids] or [None] * len(batch)
        records = list(zip(keys, batch, strict=True))
        deadline = self._environment.monotonic() + append_seconds_max
        handed_over, why = False, "it took too long"
        while (left := deadline - self._environment.monotonic()) > 0:
            try:
                return await self._client.produce(
                    self._topic, partition, records, self._environment.wall_ms(), min(left, attempt_seconds_max)
                )
            except NotReached as error:
                why = str(error)
                break
            except NotSent as error:
                why = str(error)
            except NotAnswered as error:
                handed_over, why = True, str(error)
            except (Refused, CannotConnect) as error:
                why = str(error)
                break
            await self._environment.sleep(retry_seconds)
        what = f"partition {partition}, batch at {position}: {why}"
        raise OutcomeUnknown(what, **where) if handed_over else AppendRefused(what, **where)

    async def read(self, partition: int, position: int, records_max: int = 1000) -> list[LogEntry]:
        """See `Log`. What was read is in the local copy when this returns, and all before it."""
        self._check_open()
        await self._copying.up_to(partition, position)
        ahead = self._ahead.pop(partition, None)
        now = self._environment.monotonic()
        if ahead is None or ahead.begin != position or ahead.read_at + ahead_seconds_max < now:
            piece = await self._read_topic(partition, position)
            await self._copying.keep(partition, piece, position)
            ahead = _Ahead(position, piece.entries, now)
        entries = list(ahead.entries[:records_max])
        if len(ahead.entries) > records_max:
            self._ahead[partition] = _Ahead(entries[-1].offset + 1, ahead.entries[records_max:], ahead.read_at)
        return entries

    async def _read_topic(self, partition: int, offset: int) -> Piece:
        """Read the topic at an offset and after; an empty piece only at the end."""
        try:
            fetched = await self._tried(partition, partial(self._client.read, self._topic, partition, offset))
        except OutOfRange:
            await self._out_of_range(partition, offset)
            return Piece((), offset)
        if fetched.start > offset:
            raise self._beheaded(partition, fetched.start)
        entries = [LogEntry(record.offset, record.value or b"") for record in fetched.records]
        if (shown := max(fetched.end, fetched.following)) < self._known[partition]:
            # A leader that has just been elected shows less than its partition holds. Asked where that ends, it says
            # so, and does not answer until it knows.
            await self.end(partition)
        else:
            self._believe(partition, shown)
        if not entries and fetched.following < self._known[partition]:
            raise LogUnavailable(f"partition {partition}: its leader does not tell what it told before")
        return Piece(entries, max(fetched.following, offset))

    async def _out_of_range(self, partition: int, position: int) -> None:
        """Nothing is there: beyond the end, or no more."""
        start = await self.start(partition)
        if position < start:
            raise self._beheaded(partition, start)
        if await self.end(partition) > position:
            raise LogUnavailable(f"partition {partition}: its leader does not tell what it told before")

    def _beheaded(self, partition: int, start: int) -> LogCorrupt:
        return LogCorrupt(
            f"partition {partition}: the topic {self._topic} begins at offset {start}: what was before it is deleted",
            partition=partition,
            position=start,
        )

    def fetch(self, partition: int, positions: Sequence[int]) -> list[bytes]:
        """See `Log`. Also raises `LogUnavailable`, for what must be copied again first."""
        return self._copying.fetch(partition, positions)

    def stored(self, partition: int, position: int, end: int, records_max: int) -> list[LogEntry]:
        """See `Log`."""
        return self._copying.stored(partition, position, end, records_max)

    async def start(self, partition: int) -> int:
        """See `Log`. Raises `LogUnavailable`."""
        self._check_open()
        return await self._tried(partition, partial(self._client.start, self._topic, partition))

    async def end(self, partition: int) -> int:
        """See `Log`. Concurrent questions share requests."""
        self._check_open()
        end = await self._tried(partition, partial(self._client.shared_end, self._topic, partition))
        self._believe(partition, end)
        return end

    def lost(self, partition: int) -> int:
        """See `Log`."""
        return self._copying.lost(partition)

    async def close(self) -> None:
        """See `Log`. What is in flight is waited for, up to its time limit."""
        self._closed = True
        if self._in_flight:
            await asyncio.wait(list(self._in_flight.values()))
        await self._copying.close()
        await self._client.close()

    def _check_open(self) -> None:
        if self._closed:
            raise LogUnavailable(f"the log {self._topic} is closed")

    def _believe(self, partition: int, end: int) -> None:
        """Note an end that was told. Raises `LogUnavailable` while one that is too low is not believed yet."""
        known = self._known[partition]
        if end >= known:
            self._known[partition] = end
            self._shorter_since.pop(partition, None)
            return
        now = self._environment.monotonic()
        since = self._shorter_since.setdefault(partition, now)
        self._client.look_again()
        if now < since + shorter_believed_seconds:
            raise LogUnavailable(
                f"partition {partition}: its leader tells that it ends at {end}, and it was at {known} before",
                partition=partition,
            )
        self._copying.cut(partition, end)
        self._known[partition] = end
        del self._shorter_since[partition]

    async def _tried(self, partition: int, ask: Callable[[float], Awaitable[T]]) -> T:
        """Ask until there is an answer or the time is up. Raises `OutOfRange`, `LogCorrupt` or `LogUnavailable`."""
        deadline = self._environment.monotonic() + read_seconds_max
        why = "it took too long"
        while (left := deadline - self._environment.monotonic()) > 0:
            try:
                return await ask(left)
            except OutOfRange:
                raise
            except NotReached as error:
                raise LogUnreachable(f"partition {partition}: {error}", partition=partition) from error
            except (NotSent, NotAnswered) as error:
                why = str(error)
            except KafkaFailed as error:
                why = str(error)
                break
            await self._environment.sleep(retry_seconds)
        raise LogUnavailable(f"partition {partition}: {why}", partition=partition)


@dataclass(frozen=True, slots=True)
class _Ahead:
    """What was read of a partition and not handed out yet."""

    begin: int
    entries: Sequence[LogEntry]
    read_at: float
