"""Rebuilding a projection from a topic, and the least that anything must do which reads that topic.

The topic is written once, through a store. Then a store's log is opened on it with an empty copy, as on a new machine,
and its one projection is folded from position 0. Beside it, in a process of its own, a bare loop of aiokafka's
`getmany` reads the same topic, and decodes each record or not.
"""

from __future__ import annotations

import shutil
import time
from itertools import count
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from bench.kafka.loops import Loop
from bench.kafka.ours import PARTITIONS, open_log, open_on_kafka
from bench.measuring import Measured
from bench.rebuilding import Prepare, Rebuild, Scan, fold_all, summed_records, write
from bench.workers import Handler
from schemas.log_record import decode

_PREFIX = "rebuilding"


def make_handler(folder: Path, bootstrap: str) -> Handler:
    """Return what prepares a topic (`Prepare`, first) and rebuilds from it; None ends it."""
    loop = Loop()
    numbers = count()

    async def prepare(records: int) -> Measured:
        return await write(await open_on_kafka(folder / "store", bootstrap, _PREFIX), records, PARTITIONS)

    async def rebuild(place: Path) -> Measured:
        log = await open_log(place, bootstrap, _PREFIX)
        try:
            return await fold_all(log, place / "rebuilt")
        finally:
            await log.close()
            shutil.rmtree(place)

    def handle(request: Prepare | Rebuild | None) -> Measured | None:
        match request:
            case Prepare(records):
                return loop.run(prepare(records))
            case Rebuild():
                return loop.run(rebuild(folder / f"new-{next(numbers)}"))
            case None:
                loop.close()
                return None

    return handle


def make_getmany_handler(folder: Path, bootstrap: str) -> Handler:
    """Return what reads the topic that was prepared."""
    del folder
    loop = Loop()
    consumer: Any = None

    async def scan(*, decoded: bool) -> Measured:
        nonlocal consumer
        partition = TopicPartition(f"{_PREFIX}.log", 0)
        if consumer is None:
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
            await consumer.start()
            consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        consumer.seek(partition, 0)
        begun, processor = time.perf_counter(), time.process_time()
        records = position = 0
        while position < end:
            for found in (await consumer.getmany(timeout_ms=1000)).values():
                if decoded:
                    for record in found:
                        decode(record.value)
                records += len(found)
                position = found[-1].offset + 1
        return summed_records(records, begun, processor)

    def handle(request: Scan | None) -> Measured | None:
        if request is not None:
            return loop.run(scan(decoded=request.decoded))
        if consumer is not None:
            loop.run(consumer.stop())
        loop.close()
        return None

    return handle
