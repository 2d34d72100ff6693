"""How a side is measured: callers that wait for each answer before they ask again, for a fixed time."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

_PERCENTILES = 100


@dataclass(frozen=True, slots=True)
class Measured:
    """Commands answered, in how many seconds, and how long each took (ms)."""

    commands: int
    seconds: float
    p50_ms: float
    p99_ms: float
    processor_share: float = 0.0
    """Processor seconds that the measured process used in each second, all threads together."""

    @property
    def rate(self) -> float:
        """Commands answered a second."""
        return self.commands / self.seconds


async def measure_tasks(seconds: float, callers: Sequence[Callable[[], Awaitable[None]]]) -> Measured:
    """Let each caller, a task of its own, issue one command after the other until the time is over."""
    took: list[float] = []
    begun, processor = time.perf_counter(), time.process_time()
    deadline = begun + seconds

    async def call(caller: Callable[[], Awaitable[None]]) -> None:
        before = time.perf_counter()
        while before < deadline:
            await caller()
            after = time.perf_counter()
            took.append(after - before)
            before = after

    async with asyncio.TaskGroup() as group:
        for caller in callers:
            group.create_task(call(caller))
    return summed(took, time.perf_counter() - begun, time.process_time() - processor)


def measure_threads(seconds: float, callers: Sequence[Callable[[], None]]) -> Measured:
    """Let each caller, a thread of its own, issue one command after the other until the time is over."""
    took: list[list[float]] = [[] for _ in callers]
    failures: list[BaseException] = []
    together = threading.Barrier(len(callers) + 1)
    begun = deadline = 0.0

    def call(caller: Callable[[], None], mine: list[float]) -> None:
        together.wait()
        before = time.perf_counter()
        try:
            while before < deadline and not failures:
                caller()
                after = time.perf_counter()
                mine.append(after - before)
                before = after
        except BaseException as error:  # noqa: BLE001 # raised below
            failures.append(error)

    threads = [threading.Thread(target=call, args=pair) for pair in zip(callers, took, strict=True)]
    for thread in threads:
        thread.start()
    begun, processor = time.perf_counter(), time.process_time()
    deadline = begun + seconds
    together.wait()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return summed(
        [each for mine in took for each in mine], time.perf_counter() - begun, time.process_time() - processor
    )


def summed(took: Sequence[float], seconds: float, processor_seconds: float) -> Measured:
    """Sum up what single commands took (seconds)."""
    p99 = quantiles(took, n=_PERCENTILES)[-1] if len(took) > 1 else took[0]
    return Measured(len(took), seconds, median(took) * 1000, p99 * 1000, processor_seconds / seconds)


def fsync_ms(folder: Path, times: int = 25) -> float:
    """How long an fsync of 1,500 appended bytes takes in this folder: the median (ms)."""
    path = folder / "fsync"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    took: list[float] = []
    try:
        for _ in range(times):
            os.write(file, b"x" * 1500)
            before = time.perf_counter()
            os.fdatasync(file) if hasattr(os, "fdatasync") else os.fsync(file)
            took.append(time.perf_counter() - before)
    finally:
        os.close(file)
        path.unlink()
    return median(took) * 1000
