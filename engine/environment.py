"""Time, randomness and failpoints, handed in so that a simulation or a test owns them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from typing import Protocol


class Environment(Protocol):
    """What the engine may ask of the world outside the log and the files."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC. May jump; nothing is ordered by it."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        ...

    def random_bytes(self, count: int) -> bytes:
        """`count` random bytes, good enough for keys and nonces."""
        ...

    def random_fraction(self) -> float:
        """A random number in [0, 1), for spreading waits."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def failpoint(self, name: str) -> None:
        """A named place between two steps, where a test may kill the process or raise."""
        ...


FAILPOINT_VARIABLE = "RUNSTORE_FAILPOINT"
"""`name` or `name:n`: kill this process with SIGKILL the n-th time (from 1) it passes the failpoint. Tests only."""


class SystemEnvironment:
    """The real world: system clocks, the kernel's random bytes, SIGKILL at an armed failpoint."""

    def __init__(self, armed: str | None = None) -> None:
        armed = os.environ.get(FAILPOINT_VARIABLE, "") if armed is None else armed
        name, _, count = armed.partition(":")
        self._armed = name
        self._passes_left = int(count or 1)
        self._random = random.Random()  # noqa: S311 # spreads waits, guards nothing

    def wall_ms(self) -> int:
        """See `Environment`."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """See `Environment`."""
        return time.monotonic()

    def random_bytes(self, count: int) -> bytes:
        """See `Environment`."""
        return os.urandom(count)

    def random_fraction(self) -> float:
        """See `Environment`."""
        return self._random.random()

    async def sleep(self, seconds: float) -> None:
        """See `Environment`."""
        await asyncio.sleep(seconds)

    def failpoint(self, name: str) -> None:
        """See `Environment`. Kills with SIGKILL, so that nothing is flushed or tidied on the way out."""
        if name != self._armed:
            return
        self._passes_left -= 1
        if self._passes_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
