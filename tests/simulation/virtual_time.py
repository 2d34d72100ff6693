"""An event loop whose clock only moves when everything waits: no test sleeps, and the same seed gives the same run.

What runs belongs to a `Host` – a machine with a process on it – or to nobody. A host can be paused and resumed, or
killed, between any two steps of its tasks: at any await.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import random
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

START_MS = 1_796_000_000_000
"""The wall clock when a loop begins."""

turns_max = 1_000_000
"""How often a loop may turn; a simulated story takes some thousands."""

_HOST: ContextVar[Host | None] = ContextVar("host", default=None)


@dataclass(slots=True)
class _Step:
    """A callback of a host's, on its way through the loop."""

    callback: Callable[..., object]
    args: tuple[Any, ...]
    context: Context
    handle: asyncio.Handle | None = None


class Host:
    """What runs on it runs only while it does. A killed one never runs again, and nothing of it is tidied up."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._held: list[_Step] = []
        self._context = Context()
        self._context.run(_HOST.set, self)
        self.paused = False
        self.dead = False

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine on this host."""
        return self._loop.create_task(coroutine, context=self._context.copy())

    def pause(self) -> None:
        """Let nothing of it run until `resume`; time goes on."""
        self.paused = True

    def resume(self) -> None:
        """Go on where it was paused, with all that came meanwhile."""
        self.paused = False
        held, self._held = self._held, []
        for step in held:
            if step.handle is None or not step.handle.cancelled():
                self._loop.call_soon(step.callback, *step.args, context=step.context)

    def kill(self) -> None:
        """Let nothing of it ever run again."""
        self.dead = True
        self._held.clear()

    def take(self, step: _Step) -> None:
        """Do a step now, later, or never."""
        if self.dead:
            return
        if self.paused:
            self._held.append(step)
        else:
            step.callback(*step.args)


class _Selector(selectors.DefaultSelector):
    """Moves the loop's clock forward where a real one would block."""

    loop: VirtualLoop
    turns = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everything waits, and nothing will ever happen")
        self.turns += 1
        if self.turns > turns_max:
            raise RuntimeError(f"{turns_max} turns of the loop, and no end")
        self.loop.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, which takes no input and no threads."""

    def __init__(self, *, forgets: bool = False) -> None:
        """With `forgets` every task is remembered until `forget`, which must then be called."""
        self.now = 0.0
        self._forgets = forgets
        self._tasks: list[asyncio.Task[Any]] = []
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)
        self.set_task_factory(self._make_task)
        if forgets:
            # What is left unread in futures of the dead interests nobody; what is raised in a living task is asked for.
            self.set_exception_handler(lambda _loop, _context: None)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self.now

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        if context is None:
            context = contextvars.copy_context()
        host = context.get(_HOST)
        if host is None:
            return super().call_soon(callback, *args, context=context)
        step = _Step(callback, args, context)
        step.handle = super().call_soon(host.take, step, context=context)
        return step.handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        if context is None:
            context = contextvars.copy_context()
        host = context.get(_HOST)
        if host is None:
            return super().call_at(when, callback, *args, context=context)
        step = _Step(callback, args, context)
        handle = super().call_at(when, host.take, step, context=context)
        step.handle = handle
        return handle

    def forget(self) -> None:
        """Drop every task, of hosts dead or alive, so that none is complained of when it is collected.

        The loop must run no more after this.
        """
        for task in self._tasks:
            if task.done():
                if not task.cancelled():
                    task.exception()
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            if coroutine is not None:
                with contextlib.suppress(BaseException):
                    coroutine.close()
        self._tasks.clear()

    def _make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=loop, **options)
        if self._forgets:
            self._tasks.append(task)
        return task


class VirtualEnvironment:
    """An `Environment` on virtual time, with all its randomness from one seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self.jump_ms = 0

    def wall_ms(self) -> int:
        return START_MS + int(asyncio.get_running_loop().time() * 1000) + self.jump_ms

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
