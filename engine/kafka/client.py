"""One client of the brokers in which nothing can hang: requests of a partition's leader, each with a time limit.

It sends the protocol's own requests through aiokafka's connections, and builds none of its producers and consumers:

- a batch is handed to a broker once for each `produce`. A producer's own retries would put copies of it in the log
  behind the caller's back, and its batches cannot be called back;
- a read is one request, at any offset, with the end of the partition in its answer;
- what has no answer within its time is given up together with the connections: the next call makes new ones.

Caveats
  A broker works on one request a connection at a time, so whoever waits long – a reader at the end of a topic – needs a
  client of its own.
  aiokafka's connecting calls cannot always be cancelled: they are waited for, and left behind.
  Times are those of the environment's event loop; a limit is in seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from aiokafka import errors as codes
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.structs import TopicPartition

from engine.kafka.batches import KafkaRecord, decoded, encoded
from engine.kafka.errors import CannotConnect, NotAnswered, NotSent, OutOfRange, Refused
from engine.kafka.settings import KafkaSettings

log = logging.getLogger("runstore.kafka")

connect_seconds_max: Final = 2.0
"""How long making the first connection may take; also how long aiokafka waits for any single answer."""

fetch_bytes_max: Final = 4 * 1024 * 1024
"""How much one read brings; a single batch that is larger comes whole all the same."""

metadata_age_ms_max: Final = 60_000
_EARLIEST: Final = -2
_LATEST: Final = -1

_T = TypeVar("_T")

# A broker that answers a Produce with one of these has not appended the batch and has not begun to. Any other error may
# come after it did: a leader that is deposed while followers still copy answers NotLeaderForPartition.
_NOT_APPENDED: Final = (
    codes.UnknownTopicOrPartitionError,
    codes.MessageSizeTooLargeError,
    codes.RecordListTooLargeError,
    codes.NotEnoughReplicasError,
    codes.TopicAuthorizationFailedError,
    codes.ClusterAuthorizationFailedError,
    codes.InvalidTopicError,
    codes.InvalidRequiredAcksError,
    codes.PolicyViolationError,
)
# And of those, the ones that the same request would meet again.
_FOR_GOOD: Final = (
    codes.MessageSizeTooLargeError,
    codes.RecordListTooLargeError,
    codes.TopicAuthorizationFailedError,
    codes.ClusterAuthorizationFailedError,
    codes.InvalidTopicError,
    codes.InvalidRequiredAcksError,
    codes.PolicyViolationError,
)


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one read brought: records in order, and the partition's first offset and end when it was answered.

    `following` is the offset to read on at; in a compacted topic it may lie beyond the last record's next.
    """

    records: list[KafkaRecord]
    start: int
    end: int
    following: int


class KafkaClient:
    """Connections to the brokers, made when they are first needed and made anew after one has hung."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._client: AIOKafkaClient | None = None
        self._connecting: asyncio.Task[AIOKafkaClient] | None = None
        self._abandoned: set[asyncio.Future[Any]] = set()
        self._closed = False

    # -- requests

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
        request = ProduceRequest(None, -1, max(1, int(seconds * 1000)), [(topic, [(partition, data)])])
        answer = await self._ask_leader(topic, partition, request, seconds)
        _, error_code, offset, *_ = answer.topics[0][1][0]
        error = codes.for_code(error_code)
        if error is codes.NoError:
            return int(offset)
        self._look_again()
        where = f"{topic}/{partition}"
        if error in _FOR_GOOD:
            raise Refused(f"the broker refused a batch for {where}: {error.__name__}", error.__name__)
        if error in _NOT_APPENDED:
            raise NotSent(f"the broker did not take a batch for {where}: {error.__name__}")
        raise NotAnswered(f"the broker left open what became of a batch for {where}: {error.__name__}")

    async def fetch(
        self, topic: str, partition: int, offset: int, seconds: float, *, wait_seconds: float = 0.0
    ) -> Fetched:
        """Read at an offset and after; at the end wait up to `wait_seconds` for more. Control records are left out.

        Raises `NotAnswered`, `OutOfRange`, `Refused` or `CannotConnect`.
        """
        request = FetchRequest(
            int(wait_seconds * 1000), 1, fetch_bytes_max, 0, [(topic, [(partition, offset, fetch_bytes_max)])]
        )
        answer = await self._ask_leader(topic, partition, request, seconds + wait_seconds)
        _, error_code, end, *rest = answer.topics[0][1][0]
        error = codes.for_code(error_code)
        if error is codes.OffsetOutOfRangeError:
            raise OutOfRange(f"{topic}/{partition} does not have the offset {offset}")
        self._check(error, topic, partition)
        start, data = int(rest[1]), rest[-1]
        records, following = decoded(data, offset)
        return Fetched(records, start, int(end), following)

    async def start(self, topic: str, partition: int, seconds: float) -> int:
        """The first offset of a partition. Raises `NotAnswered`, `Refused` or `CannotConnect`."""
        return await self._offset(topic, partition, _EARLIEST, seconds)

    async def end(self, topic: str, partition: int, seconds: float) -> int:
        """The offset that follows all that is replicated. Raises `NotAnswered`, `Refused` or `CannotConnect`."""
        return await self._offset(topic, partition, _LATEST, seconds)

    async def _offset(self, topic: str, partition: int, which: int, seconds: float) -> int:
        request = OffsetRequest(-1, 0, [(topic, [(partition, which)])])
        answer = await self._ask_leader(topic, partition, request, seconds)
        _, error_code, _, offset = answer.topics[0][1][0]
        self._check(codes.for_code(error_code), topic, partition)
        return int(offset)

    def _check(self, error: type[codes.KafkaError], topic: str, partition: int) -> None:
        if error is codes.NoError:
            return
        self._look_again()
        if error in _FOR_GOOD:
            raise Refused(f"the broker refused to read {topic}/{partition}: {error.__name__}", error.__name__)
        raise NotAnswered(f"{topic}/{partition} cannot be read now: {error.__name__}")

    # -- connections

    async def connect(self, seconds: float = connect_seconds_max) -> AIOKafkaClient:
        """The connected client. Raises `NotSent` when no broker answers in time, or `CannotConnect`."""
        if self._closed:
            raise NotSent("the connection to Kafka is closed")
        if self._client is not None:
            return self._client
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect())
        connecting = self._connecting
        # The task is shared, and goes on for the others when one of its callers gives up.
        await asyncio.wait([connecting], timeout=seconds)
        if not connecting.done():
            raise NotSent(f"no broker of {self._settings.bootstrap_servers} has answered within {seconds:.1f} s")
        return connecting.result()

    async def close(self) -> None:
        """Close all connections. Safe to repeat."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting], timeout=connect_seconds_max)
        self._drop()
        if self._abandoned:
            await asyncio.wait(list(self._abandoned), timeout=connect_seconds_max)

    async def _connect(self) -> AIOKafkaClient:
        try:
            options = self._settings.client_options()
        except (OSError, ssl.SSLError) as error:
            raise CannotConnect(f"the TLS files of the Kafka settings cannot be used: {error}") from error
        client = AIOKafkaClient(
            **options,
            request_timeout_ms=int(connect_seconds_max * 1000),
            retry_backoff_ms=50,
            metadata_max_age_ms=metadata_age_ms_max,
        )
        # Only these: an empty set asks the brokers for all topics there are, again and again.
        client.set_topics([self._settings.log_topic, self._settings.keys_topic])
        try:
            await client.bootstrap()
        except codes.KafkaError as error:
            self._leave(client.close())
            raise NotSent(f"no broker of {self._settings.bootstrap_servers} can be reached: {error}") from error
        except BaseException:
            self._leave(client.close())
            raise
        self._client = client
        return client

    async def _ask_leader(self, topic: str, partition: int, request: Any, seconds: float) -> Any:
        deadline = asyncio.get_running_loop().time() + seconds
        client = await self.connect(seconds)
        where = TopicPartition(topic, partition)
        node = client.cluster.leader_for_partition(where)
        if node is None or node < 0:
            # Not known yet, or none is elected: ask who leads, and leave it to the caller to try again.
            await self._within(client.add_topic(topic), deadline, client)
            await self._within(client.force_metadata_update(), deadline, client)
            node = client.cluster.leader_for_partition(where)
            if node is None or node < 0:
                raise NotSent(f"{topic}/{partition} has no leader now")
        if not await self._within(client.ready(node), deadline, client):
            raise NotSent(f"broker {node}, which leads {topic}/{partition}, cannot be reached")
        try:
            return await self._within(client.send(node, request), deadline, client, sent=True)
        except codes.KafkaError as error:
            raise NotAnswered(f"broker {node} gave no answer for {topic}/{partition}: {error}") from error

    async def _within(
        self,
        work: Coroutine[Any, Any, _T] | asyncio.Future[_T],
        deadline: float,
        client: AIOKafkaClient,
        *,
        sent: bool = False,
    ) -> _T:
        """Wait until the deadline and no longer: what has not ended by then is left behind with its connections."""
        running = asyncio.ensure_future(work)
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        try:
            await asyncio.wait([running], timeout=left)
        finally:
            if not running.done():
                self._abandon(running)
                self._drop(client)
        if running.done():
            return running.result()
        raise (NotAnswered if sent else NotSent)("the brokers have not answered in time")

    def _look_again(self) -> None:
        """Have the metadata looked up: what a broker said does not fit what is known of who leads."""
        if self._client is not None:
            self._client.force_metadata_update()

    def _drop(self, client: AIOKafkaClient | None = None) -> None:
        """Give up the connections, unless they have been replaced already."""
        if self._client is not None and client in (None, self._client):
            self._leave(self._client.close())
            self._client = None

    def _abandon(self, running: asyncio.Future[Any]) -> None:
        running.cancel()
        self._keep(running)

    def _leave(self, work: Coroutine[Any, Any, Any]) -> None:
        self._keep(asyncio.create_task(work))

    def _keep(self, running: asyncio.Future[Any]) -> None:
        """Keep what is left behind until it ends, and look at its error, which nobody waits for."""
        self._abandoned.add(running)
        running.add_done_callback(self._forget)

    def _forget(self, running: asyncio.Future[Any]) -> None:
        self._abandoned.discard(running)
        if not running.cancelled():
            with contextlib.suppress(Exception):
                running.result()
