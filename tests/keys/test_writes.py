"""Writing to the keys topic: what became of a write whose caller waits no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from engine.environment import SystemEnvironment
from engine.kafka.client import KafkaClient
from engine.keys.writes import Write, Writes, batch_records_max
from tests.keys.on_kafka import Topic


class Slow(KafkaClient):
    """A way to the brokers on which a batch is held until it is let go."""

    held: asyncio.Event
    go: asyncio.Event

    async def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes | None, bytes | None]],
        time_ms: int,
        seconds: float,
    ) -> int:
        """See `KafkaClient`."""
        self.held.set()
        await self.go.wait()
        return await super().produce(topic, partition, records, time_ms, seconds)


async def test_what_was_given_up_while_an_earlier_batch_was_on_its_way_is_not_written(bootstrap_servers: str) -> None:
    async with Topic(bootstrap_servers) as topic:
        client = Slow(topic.settings)
        client.held, client.go = asyncio.Event(), asyncio.Event()
        writes = Writes(client, topic.name, SystemEnvironment(""))
        first = asyncio.create_task(writes.write(Write([(b"filler\0", b"")] * batch_records_max)))
        late = Write([(b"filler\0late", b"")])
        second = asyncio.create_task(writes.write(late))
        await client.held.wait()
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        client.go.set()
        await first
        await writes.drain()
        assert not late.handed
        assert b"filler\0late" not in {record.key for record in await topic.records()}
        await client.close()
