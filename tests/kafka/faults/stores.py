"""The stores of a campaign: processes that are asked over pipes, stopped, woken and killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from tests.faults.folders import ROOT, module_environment

UNAVAILABLE: Final = "unavailable"
close_seconds_max: Final = 20.0
start_seconds_max: Final = 60.0
_LINE_BYTES_MAX: Final = 64 << 20


class NoAnswer(Exception):
    """None has come in the time that the caller has, or the process ended."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a store answered: an object, or the code of a refusal; when it was asked and when it answered."""

    store: str
    asked_at: float
    answered_at: float
    answer: dict[str, Any] | None
    code: str = ""
    detail: str = ""


@dataclass
class Times:
    """What a store's answers say of how long it let callers wait; by the clock of the event loop, in seconds."""

    acknowledged: list[float] = field(default_factory=list)
    longest_answer: float = 0.0
    longest_unavailable: float = 0.0
    unavailable: int = 0
    woken_at: float = 0.0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, said: Said) -> None:
        """Take an answer; a time in which the process was stopped is not its own."""
        seconds = said.answered_at - max(said.asked_at, self.woken_at)
        self.longest_answer = max(self.longest_answer, seconds)
        if said.answer is not None:
            self.acknowledged.append(said.answered_at)
            self._changed.set()
        elif said.code == UNAVAILABLE:
            self.unavailable += 1
            self.longest_unavailable = max(self.longest_unavailable, seconds)

    def next_acknowledged(self, after: float) -> float | None:
        """When it first acknowledged something after a time, or None."""
        index = bisect_left(self.acknowledged, after)
        return self.acknowledged[index] if index < len(self.acknowledged) else None

    async def until_acknowledged(self, after: float, deadline: float) -> bool:
        """Wait until something is acknowledged after a time, or until the deadline; whether it was."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while self.next_acknowledged(after) is None:
                    self._changed.clear()
                    await self._changed.wait()
        return self.next_acknowledged(after) is not None


class StoreProcess:
    """One store. Belongs to one event loop; whoever starts it ends it with `close` or `kill`."""

    def __init__(self, name: str, asked: dict[str, Any], log: Path) -> None:
        self.name = name
        self.times = Times()
        self.is_paused = False
        self._asked = asked
        self._log_path = log
        self._log: IO[bytes] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, tuple[float, Callable[[Said], None]]] = {}
        self._number = 0

    async def start(self) -> None:
        """Start and wait until it serves. Raises `NoAnswer`."""
        self._log = self._log_path.open("ab")
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "tests.kafka.faults.child", json.dumps(self._asked)),
            cwd=ROOT,
            env=module_environment(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._log,
            limit=_LINE_BYTES_MAX,
        )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(start_seconds_max):
                line = await self._process.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            await self.kill()
            raise NoAnswer(f"{self.name} did not start: {self._log_path.read_text(errors='replace')[-2000:]}")
        self._reading = asyncio.create_task(self._read())

    def send(self, method: str, args: dict[str, Any], heard: Callable[[Said], None]) -> None:
        """Ask; `heard` is called with the answer, however late, or never."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._number += 1
        self._waiting[self._number] = asyncio.get_running_loop().time(), heard
        request = {"number": self._number, "method": method, "args": args}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")

    async def ask(self, method: str, args: dict[str, Any], seconds: float) -> Said:
        """Ask and wait. Raises `NoAnswer`."""
        future: asyncio.Future[Said] = asyncio.get_running_loop().create_future()
        self.send(method, args, lambda said: None if future.done() else future.set_result(said))
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            raise NoAnswer(f"{self.name} has not answered {method} in {seconds} s") from None

    def pause(self) -> None:
        """Stop it where it stands."""
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """Let it go on."""
        self.times.woken_at = asyncio.get_running_loop().time()
        self._signal(signal.SIGCONT)
        self.is_paused = False

    @property
    def waiting(self) -> int:
        """How many answers are owed."""
        return len(self._waiting)

    async def close(self) -> int | None:
        """Let it end by itself; its exit status, None if it had to be killed."""
        if self._process is None or self._process.stdin is None:
            return None
        if self.is_paused:
            self.resume()
        self._process.stdin.close()
        try:
            async with asyncio.timeout(close_seconds_max):
                return await self._process.wait()
        except TimeoutError:
            return None
        finally:
            await self.kill()

    async def kill(self) -> None:
        """End it at once. Safe to repeat."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._log is not None:
            self._log.close()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        loop = asyncio.get_running_loop()
        while line := await self._process.stdout.readline():
            said = json.loads(line)
            asked_at, heard = self._waiting.pop(said["number"])
            answer = said.get("answer")
            heard(Said(self.name, asked_at, loop.time(), answer, said.get("code", ""), said.get("detail", "")))
