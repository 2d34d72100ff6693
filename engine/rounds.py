"""Rounds: callers that arrive while work runs wait for the next run of it, and share that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Rounds(Generic[T]):
    """Does `work` for all that have joined, one round at a time; what joins during a round is for the next one.

    So a caller's round always begins after its call: what it did before the call, the round sees.
    """

    def __init__(self, work: Callable[[Sequence[T]], Awaitable[None]]) -> None:
        self._work = work
        self._waiting: list[tuple[T, asyncio.Future[None]]] = []
        self._running: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """True when no round runs and none is to come."""
        return self._running is None

    async def join(self, item: T) -> None:
        """Return when a round with `item` is done; raise what that round raised. A cancelled caller stops no round."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((item, done))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        await done

    async def drain(self) -> None:
        """Wait until no round runs and none is to come."""
        while self._running is not None:
            await asyncio.wait([self._running])

    async def _run(self) -> None:
        now: list[tuple[T, asyncio.Future[None]]] = []
        try:
            while self._waiting:
                now, self._waiting = self._waiting, []
                try:
                    await self._work([item for item, _ in now])
                except Exception as error:  # noqa: BLE001  # every caller's
                    for _, done in now:
                        if not done.done():
                            done.set_exception(error)
                else:
                    for _, done in now:
                        if not done.done():
                            done.set_result(None)
        finally:
            # Something is left only when this task is cancelled, as the end of a loop does.
            self._running = None
            for _, done in (*now, *self._waiting):
                done.cancel()
            self._waiting = []
