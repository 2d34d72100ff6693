"""How long a caller waits: the same time for all, kept with one timer for all of them.

A timer of its own for each (`asyncio.timeout`) costs a caller more than deciding its command does. Since all wait
equally long, the one that began first is over first, so one timer that is set for that one is enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from types import TracebackType

NO_LIMIT: AbstractAsyncContextManager[None] = nullcontext()


class Patience:
    """Makes context managers whose inside takes no longer than `seconds`, by the event loop's clock; for one loop.

    `over` makes what is raised then. None: as long as it takes.
    """

    def __init__(self, seconds: float | None, over: Callable[[], Exception]) -> None:
        self._seconds = seconds
        self._over = over
        self._waiting: dict[_Waiting, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def bounded(self) -> AbstractAsyncContextManager[None]:
        """A context manager for one use."""
        return NO_LIMIT if self._seconds is None else _Waiting(self)

    def begin(self, waiting: _Waiting) -> None:
        """Count the time of one from now on."""
        assert self._seconds is not None
        loop = asyncio.get_running_loop()
        self._waiting[waiting] = deadline = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(deadline, self._end_overdue)

    def end(self, waiting: _Waiting) -> Exception | None:
        """Count no more; what to raise where the time was over."""
        return None if self._waiting.pop(waiting, None) is not None else self._over()

    def _end_overdue(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._waiting:
            waiting, deadline = next(iter(self._waiting.items()))
            if deadline > now:
                self._timer = loop.call_at(deadline, self._end_overdue)
                return
            del self._waiting[waiting]
            waiting.cancel()


class _Waiting:
    """One caller that waits; a cancellation from elsewhere stays one, as with `asyncio.timeout`."""

    __slots__ = ("_cancellations", "_patience", "_task")

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._cancellations = 0

    def cancel(self) -> None:
        self._task.cancel()

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancellations = task.cancelling()
        self._patience.begin(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        over = self._patience.end(self)
        if over is not None and self._task.uncancel() <= self._cancellations and kind is asyncio.CancelledError:
            raise over from error
