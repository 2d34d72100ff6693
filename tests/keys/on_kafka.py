"""Key stores on a real broker: a topic of a test's own, stores on it, and what to look for in a broker's files."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from aiokafka import errors as codes
from aiokafka.protocol.admin import CreateTopicsRequest

from engine.environment import Environment, SystemEnvironment
from engine.kafka.batches import KafkaRecord
from engine.kafka.client import KafkaClient
from engine.kafka.errors import NotAnswered, NotSent
from engine.kafka.settings import KafkaSettings
from engine.keys.kafka import KafkaKeyStore
from engine.keys.master import MasterKey
from engine.keys.topic import segment_ms, topic_settings
from tests.keys.support import MASTER

answer_seconds_max = 20.0


@dataclass
class Topic:
    """A keys topic, made by `async with`; `client` writes and reads it beside the stores."""

    bootstrap_servers: str
    replicas: int = 1
    changes: Mapping[str, str] = field(default_factory=dict)
    stores: list[KafkaKeyStore] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings = KafkaSettings(self.bootstrap_servers, topic_prefix=f"test-{uuid.uuid4().hex}")
        self.name = self.settings.keys_topic
        self.client = KafkaClient(self.settings)

    async def __aenter__(self) -> Self:
        settings = [*{**topic_settings, **self.changes}.items()]
        request = CreateTopicsRequest([(self.name, 1, self.replicas, [], settings)], 5000, validate_only=False)
        answer = await self.client.ask(request, answer_seconds_max, controller=True)
        told = answer.to_object()["topic_errors"][0]
        assert told["error_code"] == codes.NoError.errno, told
        await self.end()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(store.close() for store in self.stores))
        await self.client.close()

    async def open(
        self,
        master: MasterKey = MASTER,
        environment: Environment | None = None,
        *,
        settings: KafkaSettings | None = None,
        make_client: Callable[[KafkaSettings], KafkaClient] = KafkaClient,
    ) -> KafkaKeyStore:
        """Open a store, which is closed with the topic; with other settings through another address."""
        store = await KafkaKeyStore.open(
            settings or self.settings,
            master,
            environment or SystemEnvironment(""),
            segment_ms=int(self.changes.get("segment.ms", segment_ms)),
            make_client=make_client,
        )
        self.stores.append(store)
        return store

    async def end(self) -> int:
        """Where the topic ends; asked until a broker answers."""
        async with asyncio.timeout(answer_seconds_max):
            while True:
                try:
                    return await self.client.end(self.name, 0, 2.0)
                except (NotSent, NotAnswered):
                    await asyncio.sleep(0.05)

    async def write(self, *records: tuple[bytes, bytes | None]) -> int:
        """Write as another store might."""
        return await self.client.produce(self.name, 0, records, 0, 5.0)

    async def records(self) -> list[KafkaRecord]:
        """All that a reader finds."""
        found: list[KafkaRecord] = []
        position, end = await self.client.start(self.name, 0, 2.0), await self.end()
        while position < end:
            fetched = await self.client.fetch(self.name, 0, position, 2.0)
            found += fetched.records
            position = fetched.following
        return found

    async def written(self, key: bytes, *, after: int = 0) -> bool:
        """Tell whether there is a record with this key at an offset or after it."""
        return any(record.key == key and record.offset >= after for record in await self.records())


async def until(holds: Callable[[], bool], seconds: float = answer_seconds_max) -> None:
    """Wait for what another task does."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 # nothing tells of it
            await asyncio.sleep(0.01)


def wrapped(store: KafkaKeyStore, key_id: bytes) -> bytes:
    """How a key looks in the topic and in a broker's files."""
    found = store._kept.key(key_id)
    assert found is not None
    return found[1]


def files_holding(folder: Path, needle: bytes) -> list[str]:
    """Name every file below a folder that holds these bytes; one that is removed meanwhile does not."""
    found = []
    for file in folder.rglob("*"):
        try:
            if file.is_file() and needle in file.read_bytes():
                found.append(file.name)
        except FileNotFoundError:
            continue
    return found
