"""Topics of a test's own on a broker that others use too, and what an operator may do to them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from aiokafka import errors as codes
from aiokafka.protocol.admin import CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest
from aiokafka.protocol.metadata import MetadataRequest

from engine.kafka.batches import KafkaRecord
from engine.kafka.client import KafkaClient
from engine.kafka.errors import NotAnswered, NotSent
from engine.kafka.settings import KafkaSettings

answer_seconds_max: Final = 20.0
_LOG_SETTINGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(20 * 1024 * 1024),
    "unclean.leader.election.enable": "false",
    "compression.type": "producer",
}


def own_topics(bootstrap_servers: str) -> KafkaSettings:
    """Settings whose topics nobody else has."""
    return KafkaSettings(bootstrap_servers, topic_prefix=f"test-{uuid.uuid4().hex}")


@dataclass(frozen=True)
class Operator:
    """Does to a store's topics what their operator could."""

    settings: KafkaSettings
    client: KafkaClient

    async def make(self, topic: str, partitions: int, changes: Mapping[str, str] | None = None) -> None:
        """Make a topic for a log as the store would, but for some changes."""
        await self.make_plain(topic, partitions, {**_LOG_SETTINGS, **(changes or {})})

    async def make_plain(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """Make a topic with these settings alone."""
        configs = [*(settings or {}).items()]
        request = CreateTopicsRequest([(topic, partitions, 1, [], configs)], 5000, validate_only=False)
        while True:
            answer = await self.client.ask(request, answer_seconds_max, controller=True)
            error = answer.to_object()["topic_errors"][0]
            if error["error_code"] != codes.TopicAlreadyExistsError.errno:
                break
            await asyncio.sleep(0.01)  # It is being deleted.
        assert error["error_code"] == 0, error
        await self.ends(topic, partitions)

    async def delete(self, topic: str) -> None:
        """Delete a topic with all that is in it; for a moment longer a broker would still take what is written."""
        answer = await self.client.ask(DeleteTopicsRequest([topic], 5000), answer_seconds_max, controller=True)
        assert answer.to_object()["topic_error_codes"][0]["error_code"] == 0
        async with asyncio.timeout(answer_seconds_max):
            while await self._is_there(topic):  # noqa: ASYNC110 # nothing tells of it
                await asyncio.sleep(0.02)

    async def _is_there(self, topic: str) -> bool:
        request = MetadataRequest([topic], allow_auto_topic_creation=False)
        answer = await self.client.ask(request, answer_seconds_max)
        return bool(answer.to_object()["topics"][0]["error_code"] == 0)

    async def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records before an offset, as `kafka-delete-records` does."""
        request = DeleteRecordsRequest([(topic, [(partition, before)])], 5000)
        answer = await self.client.ask(request, answer_seconds_max)
        assert answer.to_object()["topics"][0]["partitions"][0]["error_code"] == 0

    async def write(self, topic: str, partition: int, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """Write records as one batch, asked until there is a leader."""
        while True:
            try:
                await self.client.produce(topic, partition, records, 0, 5.0)
            except NotSent:
                await asyncio.sleep(0.05)
            else:
                return

    async def records(self, topic: str, partition: int) -> list[KafkaRecord]:
        """All that a partition holds."""
        found: list[KafkaRecord] = []
        end, position = (await self.ends(topic, partition + 1))[partition], 0
        while position < end:
            fetched = await self.client.fetch(topic, partition, position, 5.0)
            found += fetched.records
            position = fetched.following
        return found

    async def ends(self, topic: str, partitions: int) -> list[int]:
        """The ends of a topic's partitions, asked until all have a leader."""
        async with asyncio.timeout(answer_seconds_max):
            while True:
                try:
                    return [await self.client.end(topic, partition, 5.0) for partition in range(partitions)]
                except (NotSent, NotAnswered):
                    await asyncio.sleep(0.02)

    async def rewrite(self, topic: str, kept: Mapping[int, Sequence[KafkaRecord]], partitions: int) -> None:
        """Delete a topic and make it again with these records, each at its place in order."""
        await self.delete(topic)
        await self.make(topic, partitions)
        for partition, records in kept.items():
            if records:
                await self.write(topic, partition, [(record.key, record.value) for record in records])


@asynccontextmanager
async def operating(settings: KafkaSettings) -> AsyncIterator[Operator]:
    """Somebody who can do to these topics whatever the broker allows."""
    client = KafkaClient(settings)
    try:
        yield Operator(settings, client)
    finally:
        await client.close()
