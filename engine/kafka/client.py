"""What the engine asks of brokers: to store a batch, to read, to tell start and end. Each call has a time limit.

It sends the protocol's own requests through aiokafka's connections, and builds none of its producers and consumers:

- a batch is handed to a broker once for each `produce`. A producer's own retries would put copies of it in the log
  behind the caller's back, and its batches cannot be called back;
- a read is one request, at any offset, with the end of the partition in its answer;
- nothing that a broker does, or does not do, makes a call outlast its limit (see `engine.kafka.brokers`).

Caveats
  A broker works on one request a connection at a time. So partitions share a few connections to write, others to read,
  and who waits long – a reader at the end of a topic – has one for itself.
  A limit is in seconds, by the event loop's clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import errors as codes
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest

from engine.kafka.batches import KafkaRecord, decoded, encoded
from engine.kafka.brokers import Brokers, Layout
from engine.kafka.errors import KafkaFailed, NotAnswered, NotSent, OutOfRange, Refused
from engine.kafka.produce import Produce, Produced
from engine.kafka.settings import KafkaSettings
from engine.rounds import Rounds

fetch_bytes_max: Final = 1024 * 1024
"""How much one read brings; a single batch that is larger comes whole all the same."""

connect_seconds_max: Final = 5.0
produce_lanes: Final = 8
read_lanes: Final = 2
broker_share: Final = 0.8
"""The share of a time limit that a broker is given, so that it is the first to say that it was not done in time."""

_EARLIEST: Final = -2
_LATEST: Final = -1

# A broker that answers with one of these has done nothing, and would answer the same request so again.
_FOR_GOOD: Final = (
    codes.MessageSizeTooLargeError,
    codes.RecordListTooLargeError,
    codes.TopicAuthorizationFailedError,
    codes.ClusterAuthorizationFailedError,
    codes.InvalidTopicError,
    codes.InvalidRequiredAcksError,
    codes.InvalidTimestampError,
    codes.PolicyViolationError,
)
# With one of these it has not appended the batch of a Produce and has not begun to. Any other error may come after it
# did: a leader that is deposed while followers still copy answers NotLeaderForPartition.
_NOT_APPENDED: Final = (*_FOR_GOOD, codes.UnknownTopicOrPartitionError, codes.NotEnoughReplicasError)
# The layout has nothing to do with these.
_LAYOUT_HOLDS: Final = (*_FOR_GOOD, codes.NotEnoughReplicasError, codes.RequestTimedOutError)


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one read brought: records in order, and the partition's first offset and end when it was answered.

    `following` is the offset to read on at; it passes what is no record, or was compacted away.
    """

    records: list[KafkaRecord]
    start: int
    end: int
    following: int


@dataclass(slots=True)
class _Asked:
    """Whose end is asked for, and what it is."""

    topic: str
    partition: int
    seconds: float
    answer: int | KafkaFailed = 0


class KafkaClient:
    """Requests to the leaders of a store's topics. Belongs to one event loop."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._brokers = Brokers(settings, (settings.log_topic, settings.keys_topic))
        self._rounds: dict[int, Rounds[_Asked]] = {}

    async def connect(self, seconds: float = connect_seconds_max) -> Layout:
        """Have a broker answer, and what it tells. Raises `NotSent` when none has in time, or `CannotConnect`."""
        return await self._brokers.connect(_deadline(seconds))

    def look_again(self) -> None:
        """Have the layout looked up anew, in the background."""
        self._brokers.doubt()

    async def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes | None, bytes | None]],
        time_ms: int,
        seconds: float,
    ) -> int:
        """Hand one batch of (key, value) to the partition's leader, once; its first offset when it is replicated.

        Raises `NotSent`, `NotAnswered`, `Refused` or `CannotConnect`.
        """
        data = encoded(records, time_ms)
        broker_ms = max(1, int(seconds * broker_share * 1000))
        request = Produce(topic, partition, data, broker_ms)
        answer: Produced = await self._brokers.ask_leader(
            topic, partition, request, _deadline(seconds), f"produce {partition % produce_lanes}"
        )
        error = codes.for_code(answer.error_code)
        if error is codes.NoError:
            return answer.offset
        self._doubt(error)
        where = f"{topic}/{partition}"
        if error in _FOR_GOOD:
            raise Refused(f"the broker refused a batch of {len(data)} bytes for {where}: {_name(error)}", _name(error))
        if error in _NOT_APPENDED:
            raise NotSent(f"the broker did not take a batch for {where}: {_name(error)}")
        raise NotAnswered(f"the broker left open what became of a batch for {where}: {_name(error)}")

    async def fetch(
        self, topic: str, partition: int, offset: int, seconds: float, *, wait_seconds: float = 0.0
    ) -> Fetched:
        """Read at an offset and after; at the end wait up to `wait_seconds` for more. Control records are left out.

        Raises `NotSent`, `NotAnswered`, `OutOfRange`, `Refused` or `CannotConnect`.
        """
        request = FetchRequest(
            int(wait_seconds * 1000), 1, fetch_bytes_max, 0, [(topic, [(partition, offset, fetch_bytes_max)])]
        )
        lane = f"read {partition % read_lanes}" if wait_seconds == 0 else f"wait {topic}/{partition}"
        answer = await self._brokers.ask_leader(topic, partition, request, _deadline(seconds + wait_seconds), lane)
        _, error_code, end, *rest = answer.topics[0][1][0]
        error = codes.for_code(error_code)
        if error is codes.OffsetOutOfRangeError:
            raise OutOfRange(f"{topic}/{partition} does not have the offset {offset}")
        self._check(error, f"{topic}/{partition}")
        start, data = int(rest[1]), rest[-1]
        records, following = decoded(data, offset)
        return Fetched(records, start, int(end), following)

    async def read(self, topic: str, partition: int, offset: int, seconds: float) -> Fetched:
        """Read the next records at an offset or after, however many control records lie before them.

        Without any, nothing is shown from `following` on. That alone is no end: a leader that has just been elected
        shows less than its partition holds. Raises as `fetch` does.
        """
        deadline = _deadline(seconds)
        while True:
            fetched = await self.fetch(topic, partition, offset, deadline - asyncio.get_running_loop().time())
            if fetched.records or fetched.following >= fetched.end or fetched.following == offset:
                return fetched
            offset = fetched.following

    async def start(self, topic: str, partition: int, seconds: float) -> int:
        """The first offset of a partition. Raises `NotSent`, `NotAnswered`, `Refused` or `CannotConnect`."""
        return await self._offset(topic, partition, _EARLIEST, seconds)

    async def end(self, topic: str, partition: int, seconds: float) -> int:
        """The offset that follows all that is replicated. Raises `NotSent`, `NotAnswered`, `Refused`, ..."""
        return await self._offset(topic, partition, _LATEST, seconds)

    async def starts(self, topic: str, partitions: Sequence[int], seconds: float) -> dict[int, int]:
        """The first offsets of partitions. Raises as `start` does."""
        found = await self._all_offsets(topic, partitions, _EARLIEST, seconds)
        for start in found.values():
            if isinstance(start, KafkaFailed):
                raise start
        return {partition: start for partition, start in found.items() if isinstance(start, int)}

    async def ends(self, topic: str, partitions: Sequence[int], seconds: float) -> dict[int, int | KafkaFailed]:
        """The ends of partitions, asked after this call; for each, its end or what `end` would raise."""
        return await self._all_offsets(topic, partitions, _LATEST, seconds)

    async def shared_end(self, topic: str, partition: int, seconds: float) -> int:
        """The same as `end`; those who ask at the same time share a request to their leader."""
        leader = self._brokers.layout.leaders.get((topic, partition), -1)
        if leader < 0:
            return await self.end(topic, partition, seconds)
        rounds = self._rounds.get(leader)
        if rounds is None:
            rounds = self._rounds[leader] = Rounds(self._ask_ends)
        asked = _Asked(topic, partition, seconds)
        try:
            async with asyncio.timeout(seconds):
                await rounds.join(asked)
        except TimeoutError as error:
            raise NotAnswered(f"the end of {topic}/{partition} has not been told in time") from error
        if isinstance(asked.answer, KafkaFailed):
            raise asked.answer
        return asked.answer

    async def _ask_ends(self, asked: Sequence[_Asked]) -> None:
        seconds = max(each.seconds for each in asked)
        for topic in {each.topic for each in asked}:
            mine = [each for each in asked if each.topic == topic]
            ends = await self.ends(topic, sorted({each.partition for each in mine}), seconds)
            for each in mine:
                each.answer = ends[each.partition]

    async def ask(self, request: Any, seconds: float, *, controller: bool = False) -> Any:
        """Send a request that no leader is needed for. Raises `NotSent`, `NotAnswered` or `CannotConnect`."""
        return await self._brokers.ask_any(request, _deadline(seconds), controller=controller)

    async def close(self) -> None:
        """Close all connections. Safe to repeat."""
        await self._brokers.close()

    async def _offset(self, topic: str, partition: int, which: int, seconds: float) -> int:
        found = (await self._offsets(topic, [partition], which, seconds))[partition]
        if isinstance(found, KafkaFailed):
            raise found
        return found

    async def _all_offsets(
        self, topic: str, partitions: Sequence[int], which: int, seconds: float
    ) -> dict[int, int | KafkaFailed]:
        """The offsets of partitions, with one request to each leader."""
        by_leader: dict[int, list[int]] = {}
        for partition in partitions:
            leader = self._brokers.layout.leaders.get((topic, partition), -1)
            # The leaders that are not known yet may be any.
            by_leader.setdefault(leader if leader >= 0 else -1 - partition, []).append(partition)
        found = await asyncio.gather(*(self._offsets(topic, each, which, seconds) for each in by_leader.values()))
        return {partition: offset for each in found for partition, offset in each.items()}

    async def _offsets(
        self, topic: str, partitions: Sequence[int], which: int, seconds: float
    ) -> dict[int, int | KafkaFailed]:
        """The offsets of partitions that have one leader."""
        request = OffsetRequest(-1, 0, [(topic, [(partition, which) for partition in partitions])])
        lane = f"offset {partitions[0] % read_lanes}"
        try:
            answer = await self._brokers.ask_leader(topic, partitions[0], request, _deadline(seconds), lane)
        except KafkaFailed as error:
            return dict.fromkeys(partitions, error)
        found: dict[int, int | KafkaFailed] = {}
        for partition, error_code, _, offset in answer.topics[0][1]:
            try:
                self._check(codes.for_code(error_code), f"{topic}/{partition}")
            except KafkaFailed as error:
                found[partition] = error
            else:
                found[partition] = int(offset)
        return found

    def _check(self, error: type[codes.KafkaError], where: str) -> None:
        if error is codes.NoError:
            return
        self._doubt(error)
        if error in _FOR_GOOD:
            raise Refused(f"the broker refused to read {where}: {_name(error)}", _name(error))
        raise NotAnswered(f"{where} cannot be read now: {_name(error)}")

    def _doubt(self, error: type[codes.KafkaError]) -> None:
        if error not in _LAYOUT_HOLDS:
            self._brokers.doubt()


def _name(error: type[codes.KafkaError]) -> str:
    return str(error.__name__)


def _deadline(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds
