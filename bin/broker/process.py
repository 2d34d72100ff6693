"""The process of one broker.

Its standard input is a file, `alive.lock`, that it holds locked as long as it lives, whoever started it and however it
ends; so a number in `pid` that another process has by now is never taken for it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path
from typing import Final

from bin.broker import container
from bin.broker.errors import BrokerError

LOG: Final = "broker.log"
_PID: Final = "pid"
_ALIVE: Final = "alive.lock"

signal_seconds_max: Final = 10.0
poll_seconds: Final = 0.02


class State(StrEnum):
    """What a process does."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


def spawn(home: Path, command: Sequence[str]) -> None:
    """Start a broker's process in its folder, apart from this one. Its output goes to its log."""
    with (home / _ALIVE).open("a") as lock, (home / LOG).open("ab") as log:
        flock(lock, LOCK_EX)
        started = subprocess.Popen(command, stdin=lock, stdout=log, stderr=log, cwd=home, start_new_session=True)
    (home / _PID).write_text(f"{started.pid}\n")
    # It outlives this program on purpose.
    started.returncode = 0


def state(home: Path) -> State:
    """Tell whether the broker's process is there."""
    path = home / _ALIVE
    if not path.exists():
        return State.DEAD
    with path.open("a") as lock:
        try:
            # Shared, so that two who look do not see each other.
            flock(lock, LOCK_SH | LOCK_NB)
        except BlockingIOError:
            return State.PAUSED if _is_paused(home) else State.RUNNING
    return State.DEAD


def pid(home: Path) -> int:
    """Give the number of the broker's process, the last one if it is dead, or Docker's client for it."""
    return int((home / _PID).read_text())


def send(home: Path, number: signal.Signals) -> None:
    """Send a signal and wait until it has done its work; a dead process gets none."""
    found = state(home)
    if found is State.DEAD:
        return
    if container.is_in_container(home):
        container.send(home, number)
    else:
        # It may have ended just now.
        with suppress(ProcessLookupError):
            os.kill(pid(home), number)
    wanted = {
        signal.SIGKILL: {State.DEAD},
        signal.SIGSTOP: {State.PAUSED, State.DEAD},
        signal.SIGCONT: {State.RUNNING, State.DEAD},
    }.get(number)
    if wanted is not None and not wait_for(home, wanted, signal_seconds_max):
        raise BrokerError(
            f"process {pid(home)} of {home} is {state(home)} {signal_seconds_max:.0f} s after {number.name}"
        )


def wait_for(home: Path, wanted: set[State], seconds: float) -> bool:
    """Wait until the process is in one of these states; tell whether it came to that."""
    deadline = time.monotonic() + seconds
    while state(home) not in wanted:
        if time.monotonic() > deadline:
            return False
        time.sleep(poll_seconds)
    return True


def last_lines(home: Path, count: int) -> str:
    """Give the end of the broker's log."""
    return "\n".join((home / LOG).read_text(errors="replace").splitlines()[-count:])


def _is_paused(home: Path) -> bool:
    """Whether the broker's process is stopped; where the system does not tell in /proc, it is taken to run."""
    if container.is_in_container(home):
        return container.is_paused(home)
    try:
        return Path(f"/proc/{pid(home)}/stat").read_text().rpartition(")")[2].split()[0] in {"T", "t"}
    except FileNotFoundError:
        return False
