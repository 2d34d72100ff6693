"""Runstore on Kafka: the whole store, and its log alone, each in a process of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.kafka.loops import Loop
from bench.kafka.records import prepared
from bench.measuring import Measured, measure_tasks
from bench.ours import Family, Load, measure
from bench.workers import Handler
from engine.environment import SystemEnvironment
from engine.kafka.client import KafkaClient
from engine.kafka.settings import KafkaSettings
from engine.kafka.topics import open_topics
from engine.logs.kafka import KafkaLog
from engine.logs.local_copy import LocalCopy
from engine.logs.lost import LostRecords
from engine.opening import StoreSettings, open_store
from engine.store import Store

PARTITIONS: Final = 1


async def open_on_kafka(folder: Path, bootstrap: str, prefix: str) -> Store:
    """A store with one partition, opened as `runstore serve` does it."""
    kafka = KafkaSettings(bootstrap, topic_prefix=prefix)
    return await open_store(StoreSettings(folder, PARTITIONS, log="kafka", kafka=kafka), SystemEnvironment())


async def open_log(folder: Path, bootstrap: str, prefix: str) -> KafkaLog:
    """The log of such a store alone, with a new copy of it in the folder."""
    settings = KafkaSettings(bootstrap, topic_prefix=prefix)
    client = KafkaClient(settings)
    await open_topics(client, settings, PARTITIONS, create=True)
    copy, lost = LocalCopy(folder / "copy", PARTITIONS), LostRecords(folder / "lost")
    return KafkaLog(client, settings.log_topic, PARTITIONS, copy, lost, SystemEnvironment())


def make_handler(folder: Path, bootstrap: str) -> Handler:
    """Open a store and return what measures on it (see `bench.ours`); None closes it."""
    loop = Loop()
    store = loop.run(open_on_kafka(folder / "store", bootstrap, "runstore"))
    families: dict[str, list[Family]] = {"one": [], "three": []}

    def handle(load: Load | None) -> Measured | None:
        if load is not None:
            return loop.run(measure(store, load, families, PARTITIONS))
        loop.run(store.close())
        loop.close()
        return None

    return handle


def make_log_handler(folder: Path, bootstrap: str) -> Handler:
    """The same for the log alone: each batch holds one prepared command of every caller, as it would in the store."""
    loop = Loop()
    log = loop.run(open_log(folder / "log", bootstrap, "log-alone"))

    async def measure_log(load: Load) -> Measured:
        callers = [prepared(load.kind, number) for number in range(load.callers)]
        end = await log.end(0)

        async def append() -> None:
            nonlocal end
            commands = [next(caller) for caller in callers]
            run_ids = [key.decode() for key, values in commands for _ in values]
            landed = await log.append(0, end, [value for _, values in commands for value in values], run_ids)
            assert landed == end
            end += len(run_ids)

        measured = await measure_tasks(load.seconds, [append])
        return replace(measured, commands=measured.commands * load.callers)

    def handle(load: Load | None) -> Measured | None:
        if load is not None:
            return loop.run(measure_log(load))
        loop.run(log.close())
        loop.close()
        return None

    return handle
