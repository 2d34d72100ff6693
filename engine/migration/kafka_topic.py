"""The log's topic, as what is copied to and from: plain reads and writes, each tried until a time limit.

Caveats
  A batch without an answer may have been stored, or may be later. The end of the topic tells the one; where the other
  comes true, the next batch lands too far on, and the copy has gone wrong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from engine.environment import Environment
from engine.kafka.client import KafkaClient
from engine.kafka.errors import CannotConnect, KafkaFailed, NotAnswered, OutOfRange, Refused
from engine.logs.interface import LogEntry
from engine.migration.errors import CopyWentWrong, MigrationRefused, MigrationStopped
from engine.migration.pieces import Piece

answer_seconds_max: Final = 5.0
"""How long one request may take."""

gone_seconds_max: Final = 60.0
"""How long the brokers may be gone before the migration stops."""

_wait_seconds: Final = 0.25

_T = TypeVar("_T")


class TopicTarget:
    """One topic, with one process that copies to it or from it."""

    def __init__(self, client: KafkaClient, topic: str, environment: Environment, filler: bytes = b"") -> None:
        """`filler` is what takes the place of a hole; it is needed for copying to the topic."""
        self._client = client
        self._topic = topic
        self._environment = environment
        self._filler = filler

    async def end(self, partition: int) -> int:
        """See `Target`."""
        return await self._patiently(lambda: self._client.end(self._topic, partition, answer_seconds_max))

    async def read(self, partition: int, offset: int, records_max: int | None = None) -> list[LogEntry]:
        """See `Target`, and `Source`. A record without a value is no record of a log: it is read as an empty one."""
        try:
            found = await self._patiently(
                lambda: self._client.fetch(self._topic, partition, offset, answer_seconds_max)
            )
        except OutOfRange as error:
            raise CopyWentWrong(partition, offset, str(error)) from error
        records = found.records if records_max is None else found.records[:records_max]
        return [LogEntry(each.offset, each.value or b"") for each in records]

    def between(self, begin: int, end: int) -> list[LogEntry]:
        """See `Target`: a topic has no holes."""
        return [LogEntry(offset, self._filler) for offset in range(begin, end)]

    async def write(self, partition: int, piece: Piece) -> None:
        """See `Target`."""
        landed = await self._patiently(lambda: self._write(partition, piece))
        if landed != piece.position:
            raise CopyWentWrong(partition, piece.position, f"a batch for there was stored at {landed}")

    async def _write(self, partition: int, piece: Piece) -> int:
        try:
            return await self._client.produce(
                self._topic, partition, piece.records, self._environment.wall_ms(), answer_seconds_max
            )
        except NotAnswered:
            end = await self.end(partition)
            if end == piece.position:
                raise  # It is not there yet: try again. Where both are stored, the next one lands too far on.
            if end == piece.end and await self._holds(partition, piece):
                return piece.position
            raise CopyWentWrong(
                partition, piece.position, f"the topic ends at {end} after a batch whose answer was lost"
            ) from None

    async def _holds(self, partition: int, piece: Piece) -> bool:
        expected = [LogEntry(at, data) for at, (_, data) in enumerate(piece.records, piece.position)]
        found: list[LogEntry] = []
        while len(found) < len(expected):
            entries = await self.read(partition, piece.position + len(found))
            if not entries:
                return False
            found += entries
        return found == expected

    async def _patiently(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Do it again while the brokers are gone, until they have been gone for too long."""
        deadline = self._environment.monotonic() + gone_seconds_max
        while True:
            try:
                return await work()
            except (Refused, CannotConnect) as error:
                raise MigrationRefused(str(error)) from error
            except OutOfRange:
                raise
            except KafkaFailed as error:
                if self._environment.monotonic() > deadline:
                    raise MigrationStopped(
                        f"Kafka has not answered for {gone_seconds_max:.0f} s: {error}",
                        "see that the brokers run, then repeat the command: it goes on where it stopped",
                    ) from error
            await self._environment.sleep(_wait_seconds)
