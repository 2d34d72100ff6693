"""An event loop whose clock only moves when everything waits: no test sleeps, and the same seed gives the same run."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_START_MS = 1_796_000_000_000


class _Selector(selectors.DefaultSelector):
    """Moves the loop's clock forward where a real one would block."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everything waits, and nothing will ever happen")
        self.loop.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, which takes no input and no threads."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


class VirtualEnvironment:
    """An `Environment` on virtual time, with all its randomness from one seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self.jump_ms = 0

    def wall_ms(self) -> int:
        return _START_MS + int(asyncio.get_running_loop().time() * 1000) + self.jump_ms

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def random_fraction(self) -> float:
        return self._random.random()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def failpoint(self, name: str) -> None:
        pass


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a fresh virtual loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
