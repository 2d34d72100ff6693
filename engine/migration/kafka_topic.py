"""The log's topic, as what is copied to and from: plain reads and writes, each tried until a time limit.

Caveats
  A batch without an answer may have been stored, or may be later. The end of the topic tells the one; where the other
  comes true, the next batch lands too far on, and the copy has gone wrong.
"""

from __future__ import annotations

from engine.environment import Environment
from engine.kafka.batches import KafkaRecord
from engine.kafka.client import KafkaClient
from engine.kafka.errors import NotAnswered, OutOfRange
from engine.logs.interface import LogEntry
from engine.migration.errors import CopyWentWrong
from engine.migration.pieces import Piece
from engine.migration.repeating import answer_seconds_max, repeated


class LogTopic:
    """One topic, with one process that copies to it or from it."""

    def __init__(self, client: KafkaClient, topic: str, environment: Environment, filler: bytes) -> None:
        """`filler` is what takes the place of a hole."""
        self._client = client
        self._topic = topic
        self._environment = environment
        self._filler = filler
        self._ends: dict[int, int] = {}
        """Where each partition was told to end last."""

    async def end(self, partition: int) -> int:
        """See `Target`."""
        end = self._ends[partition] = await repeated(
            self._environment, lambda: self._client.end(self._topic, partition, answer_seconds_max)
        )
        return end

    async def read(self, partition: int, offset: int, records_max: int | None = None) -> list[LogEntry]:
        """See `Target`, and `Source`. A record without a value is no record of a log: it is read as an empty one."""
        try:
            found = await repeated(self._environment, lambda: self._read(partition, offset))
        except OutOfRange as error:
            raise CopyWentWrong(partition, offset, str(error)) from error
        return [LogEntry(each.offset, each.value or b"") for each in found[:records_max]]

    def between(self, begin: int, end: int) -> list[LogEntry]:
        """See `Target`: a topic has no holes."""
        return [LogEntry(offset, self._filler) for offset in range(begin, end)]

    async def write(self, partition: int, piece: Piece) -> None:
        """See `Target`."""
        landed = await repeated(self._environment, lambda: self._write(partition, piece))
        self._environment.failpoint("migration.piece_written")
        if landed != piece.position:
            raise CopyWentWrong(partition, piece.position, f"a batch for there was stored at {landed}")

    async def append_filler(self, partition: int) -> None:
        """Append a filler, or more than one where an answer is lost."""
        time_ms = self._environment.wall_ms()
        await repeated(
            self._environment,
            lambda: self._client.produce(self._topic, partition, [(None, self._filler)], time_ms, answer_seconds_max),
        )

    async def _read(self, partition: int, offset: int) -> list[KafkaRecord]:
        """Records at an offset and after; none only at the end. Raises `KafkaFailed`."""
        fetched = await self._client.read(self._topic, partition, offset, answer_seconds_max)
        if fetched.records:
            return fetched.records
        # A leader that has just been elected shows less than its partition holds, and one that is deposed all the time.
        end = await self._client.end(self._topic, partition, answer_seconds_max)
        if (shown := fetched.following) < max(end, self._ends.get(partition, 0)):
            raise NotAnswered(f"the leader of {self._topic}/{partition} shows nothing at offset {shown}, and there is")
        return []

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
