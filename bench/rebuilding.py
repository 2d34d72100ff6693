"""Rebuilding every projection from a log, and the least that anything must do which reads that log.

The log is written once, through a store, by sessions with a run each. Then it is opened alone, and two
things are measured over it: the projections folded from position 0 into new folders, one partition after the other,
as a store does it; and a bare loop that reads the log and decodes each record, in the same process.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from bench.measuring import Measured
from bench.ours import PARTITIONS, Family, loop_factory
from bench.workers import Handler
from engine.environment import SystemEnvironment
from engine.logs.embedded import EmbeddedLog
from engine.logs.interface import Log
from engine.opening import StoreSettings, open_store
from engine.store import Store
from projections.position_rule import PositionRule
from projections.rebuild import READ_RECORDS_MAX, catch_up
from projections.rocks import RocksView
from schemas.log_record import decode

_RECORDS_A_RUN: Final = 50
_WRITERS: Final = 512


@dataclass(frozen=True, slots=True)
class Prepare:
    """Write a log with about so many records."""

    records: int


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Fold the log into new projections."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Read and decode the log; `decoded` False: read it only."""

    decoded: bool = True


def make_handler(folder: Path) -> Handler:
    """Return what prepares a log (`Prepare`, first) and measures on it; None closes it."""
    runner = asyncio.Runner(loop_factory=loop_factory())
    logs: list[EmbeddedLog] = []
    numbers = count()

    def handle(request: Prepare | Rebuild | Scan | None) -> Measured | None:
        match request:
            case Prepare(records):
                measured = runner.run(_write(folder / "store", records))
                logs.append(runner.run(_open(folder / "store" / "log")))
                return measured
            case Rebuild():
                return runner.run(fold_all(logs[0], folder / f"rebuilt-{next(numbers)}"))
            case Scan(decoded):
                return runner.run(_scan(logs[0], decoded=decoded))
            case None:
                for each in logs:
                    runner.run(each.close())
                runner.close()
                return None

    return handle


async def _write(folder: Path, records: int) -> Measured:
    return await write(await open_store(StoreSettings(folder), SystemEnvironment()), records)


async def write(store: Store, records: int, partitions: int = PARTITIONS) -> Measured:
    """Write at least so many records, a session's own entries and a run's start among them; close the store."""
    runs: Iterator[int] = iter(range(max(1, records // (_RECORDS_A_RUN + 2))))

    async def write_runs() -> None:
        for number in runs:
            family = Family(store, str(number), partitions)
            await family.start(ended=False)
            for _ in range(_RECORDS_A_RUN):
                await family.append()

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(_WRITERS):
            group.create_task(write_runs())
    seconds = time.perf_counter() - begun
    written = sum(partition.log_end for partition in (await store.status()).partitions)
    await store.close()
    return Measured(written, seconds, 0.0, 0.0)


async def _open(folder: Path) -> EmbeddedLog:
    return EmbeddedLog(folder, PARTITIONS, SystemEnvironment())


async def fold_all(log: Log, folder: Path) -> Measured:
    """Fold a log into new projections in the folder, one partition after the other, and drop them."""
    environment = SystemEnvironment()
    begun, processor = time.perf_counter(), time.process_time()
    records = 0
    for partition in range(log.partitions):
        view = RocksView(folder / str(partition))
        rule = PositionRule(partition, voids_legal=not log.exclusive)
        await catch_up(log, partition, view, rule, pause=lambda: environment.sleep(0))
        view.flush()
        records += rule.end
        view.close()
    measured = summed_records(records, begun, processor)
    shutil.rmtree(folder)
    return measured


async def _scan(log: EmbeddedLog, *, decoded: bool) -> Measured:
    begun, processor = time.perf_counter(), time.process_time()
    records = 0
    for partition in range(log.partitions):
        position = 0
        while entries := await log.read(partition, position, READ_RECORDS_MAX):
            if decoded:
                for entry in entries:
                    decode(entry.data)
            records += len(entries)
            position = entries[-1].offset + 1
    return summed_records(records, begun, processor)


def summed_records(records: int, begun: float, processor: float) -> Measured:
    """Sum up what has been read since then, by the clock and by the processor's."""
    seconds = time.perf_counter() - begun
    return Measured(records, seconds, 0.0, 0.0, (time.process_time() - processor) / seconds)
