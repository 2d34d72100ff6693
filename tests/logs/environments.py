"""Environments that let a test stand at a failpoint, or own the waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from engine.environment import SystemEnvironment


class Failpoints(SystemEnvironment):
    """Runs a function at each pass of a failpoint, and notes which were passed. Sleeps are noted, not slept."""

    def __init__(self) -> None:
        super().__init__("")
        self.passed: list[str] = []
        self.slept: list[float] = []
        self.at: dict[str, Callable[[], object]] = {}

    def failpoint(self, name: str) -> None:
        self.passed.append(name)
        if name in self.at:
            self.at[name]()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


class VirtualClock(SystemEnvironment):
    """Time passes only when `advance` says so."""

    def __init__(self) -> None:
        super().__init__("")
        self.now = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now + seconds, woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Let everybody run who can, and time pass."""
        await turns()
        self.now += seconds
        due = [sleeper for sleeper in self._sleepers if sleeper[0] <= self.now]
        self._sleepers = [sleeper for sleeper in self._sleepers if sleeper[0] > self.now]
        for _at, woken in due:
            woken.set_result(None)
        await turns()


async def turns(count: int = 20) -> None:
    """Let tasks run that wait for nothing but their turn."""
    for _ in range(count):
        await asyncio.sleep(0)
