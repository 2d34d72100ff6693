"""The rivals on aiokafka: a transaction for each command, and a plain `send_and_wait`, which is atomic for one record.

None of them decides anything: they write prepared bytes. Values are sent with `acks=all`, without lingering.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from bench.kafka.loops import Loop
from bench.kafka.records import prepared
from bench.kafka.topics import make_topic
from bench.measuring import Measured, measure_tasks
from bench.ours import Load
from bench.workers import Handler

Caller = Callable[[], Awaitable[None]]


def make_one_producer(folder: Path, bootstrap: str) -> Handler:
    """Transactions of all callers, one after the other, by one producer."""
    del folder
    return _handler(_Transactions(bootstrap, "aiokafka-one", shared=True))


def make_producer_each(folder: Path, bootstrap: str) -> Handler:
    """Transactions by a producer for each caller, with a transactional ID of its own."""
    del folder
    return _handler(_Transactions(bootstrap, "aiokafka-each", shared=False))


def make_send_and_wait(folder: Path, bootstrap: str) -> Handler:
    """A plain `send_and_wait` of a command's bytes as one value, by a producer that all callers share."""
    del folder
    return _handler(_Plain(bootstrap))


class _Transactions:
    """Producers and what callers do with them."""

    def __init__(self, bootstrap: str, topic: str, *, shared: bool) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._shared = shared
        self._producers: list[Any] = []
        self._lock = asyncio.Lock()

    async def callers(self, load: Load) -> list[Caller]:
        """What each caller calls."""
        if not self._producers:
            await asyncio.to_thread(make_topic, self._bootstrap, self._topic)
        while len(self._producers) < (1 if self._shared else load.callers):
            name = f"{self._topic}-{len(self._producers)}"
            producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, transactional_id=name, linger_ms=0)
            await producer.start()
            self._producers.append(producer)
        return [self._caller(load.kind, number) for number in range(load.callers)]

    def _caller(self, kind: str, number: int) -> Caller:
        producer = self._producers[0 if self._shared else number]
        commands = prepared(kind, number)

        async def write() -> None:
            key, values = next(commands)
            await producer.begin_transaction()
            sent = [await producer.send(self._topic, value, key, partition=0) for value in values]
            await producer.commit_transaction()
            assert all(each.done() and each.exception() is None for each in sent)

        async def write_in_turn() -> None:
            async with self._lock:
                await write()

        return write_in_turn if self._shared else write

    async def close(self) -> None:
        """Close all producers."""
        for producer in self._producers:
            await producer.stop()


class _Plain:
    """One producer, without idempotence, and callers that share it."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._topic = "send-and-wait"
        self._producer: Any = None

    async def callers(self, load: Load) -> list[Caller]:
        """What each caller calls."""
        if self._producer is None:
            await asyncio.to_thread(make_topic, self._bootstrap, self._topic)
            self._producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap, acks="all", enable_idempotence=False, linger_ms=0
            )
            await self._producer.start()
        return [self._caller(load.kind, number) for number in range(load.callers)]

    def _caller(self, kind: str, number: int) -> Caller:
        commands = prepared(kind, number)

        async def write() -> None:
            key, values = next(commands)
            await self._producer.send_and_wait(self._topic, b"".join(values), key, partition=0)

        return write

    async def close(self) -> None:
        """Close the producer."""
        if self._producer is not None:
            await self._producer.stop()


def _handler(side: _Transactions | _Plain) -> Handler:
    loop = Loop()

    async def measure(load: Load) -> Measured:
        return await measure_tasks(load.seconds, await side.callers(load))

    def handle(load: Load | None) -> Measured | None:
        if load is not None:
            return loop.run(measure(load))
        loop.run(side.close())
        loop.close()
        return None

    return handle
