"""Processes that measure: each side in one of its own, so that none shares another's interpreter or memory.

A worker answers one request at a time and does nothing between two. It ends with its parent.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

_SPAWN: Final = multiprocessing.get_context("spawn")
_CLOSE_SECONDS_MAX: Final = 20.0

Handler = Callable[[Any], object]
"""Answers one request; None is the request to close."""


class WorkerFailed(Exception):
    """A worker raised, died or took too long; the message holds what it said."""


class Worker:
    """A process that runs the handler which `make(folder, *arguments)` makes there."""

    def __init__(self, make: Callable[..., Handler], folder: Path, *arguments: object) -> None:
        self._name = make.__module__
        self._connection, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_work, args=(make, (folder, *arguments), theirs), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, request: Any, seconds_max: float) -> Any:
        """The answer to a request. Raises `WorkerFailed`; the worker is of no use then."""
        try:
            self._connection.send(request)
            if not self._connection.poll(seconds_max):
                raise WorkerFailed(f"{self._name} gave no answer to {request} in {seconds_max:.0f} s")
            done, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerFailed(f"{self._name} died at {request}") from error
        if not done:
            raise WorkerFailed(f"{self._name} failed at {request}:\n{answer}")
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.ask(None, _CLOSE_SECONDS_MAX)
            self._process.join(_CLOSE_SECONDS_MAX)
        self._connection.close()
        self._process.kill()
        self._process.join()


def _work(make: Callable[..., Handler], arguments: tuple[object, ...], connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # A terminal's interrupt is the parent's to handle.
    handle: Handler | None = None
    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            return
        try:
            handle = handle or make(*arguments)
            answer: tuple[bool, object] = (True, handle(request))
        except BaseException:  # noqa: BLE001 # told to the parent
            answer = (False, traceback.format_exc())
        connection.send(answer)
        if request is None:
            return


def processor_seconds(pid: int) -> float | None:
    """Processor time that another process has used, all threads together; None where the system does not say."""
    try:
        threads = [Path(task, "schedstat").read_text(encoding="ascii") for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return None
    return sum(int(each.split()[0]) for each in threads) / 1e9


def wait_until(done: Callable[[], bool], seconds_max: float, what: str) -> None:
    """Ask again and again until it is so. Raises `WorkerFailed`."""
    deadline = time.monotonic() + seconds_max
    while not done():
        if time.monotonic() > deadline:
            raise WorkerFailed(f"{what}: not in {seconds_max:.0f} s")
        time.sleep(0.02)
