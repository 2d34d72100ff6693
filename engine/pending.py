"""Commands that wait for their answer, and the bounded queue they wait in."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from engine.decide import Elsewhere, Needs, OwnCommand, Prepared
from engine.decide.state import ConsumerState, Reserved
from schemas.commands import Command
from schemas.refusals import Code, Refusal, refuse
from schemas.values import Answer

Outcome = Answer | Reserved | ConsumerState | Needs | Refusal

_COMMAND_BYTES_BASE: Final = 1024


@dataclass(slots=True, eq=False)
class CommandSequence:
    """Commands of one caller that must take effect in order.

    After one is `unavailable` the later ones are not tried. `given_up`: one took longer than its caller waits.
    """

    broken: bool = False
    given_up: bool = False


@dataclass(slots=True, eq=False)
class Pending:
    """A command on its way through the partition's loop."""

    command: Command | OwnCommand
    elsewhere: Elsewhere
    prepared: Prepared
    command_id: bytes
    future: asyncio.Future[Outcome]
    sequence: CommandSequence | None = None
    bytes: int = _COMMAND_BYTES_BASE

    def answer(self, outcome: Outcome) -> None:
        """Answer the caller, if it is still there."""
        if self.sequence is not None and isinstance(outcome, Refusal) and outcome.temporary:
            self.sequence.broken = True
        if not self.future.done():
            self.future.set_result(outcome)


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much may wait in one partition, and how much one batch takes."""

    queue_commands_max: int = 4096
    queue_bytes_max: int = 64 * 1024 * 1024
    batch_commands_max: int = 512
    batch_bytes_max: int = 8 * 1024 * 1024


class Queue:
    """The commands that wait for a partition's next batch. Bounded; what does not fit is refused at once."""

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._waiting: deque[Pending] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, pending: Pending) -> bool:
        """Take a command, or return False when the queue is full."""
        # One command of any size fits an empty queue: a limit on bytes must not make it impossible for ever.
        if self._waiting and (
            len(self._waiting) >= self._limits.queue_commands_max
            or self._bytes + pending.bytes > self._limits.queue_bytes_max
        ):
            return False
        self._waiting.append(pending)
        self._bytes += pending.bytes
        return True

    def take(self) -> list[Pending]:
        """Remove and return what the next batch takes, in order."""
        taken: list[Pending] = []
        size = 0
        while self._waiting and len(taken) < self._limits.batch_commands_max:
            if taken and size + self._waiting[0].bytes > self._limits.batch_bytes_max:
                break
            pending = self._waiting.popleft()
            size += pending.bytes
            taken.append(pending)
        self._bytes -= size
        return taken

    def drain(self, outcome: Outcome) -> None:
        """Answer everything that waits."""
        while self._waiting:
            self._waiting.popleft().answer(outcome)
        self._bytes = 0


def command_bytes(command: Any) -> int:
    """About how many bytes a command holds in memory and will take in a batch."""
    size = _COMMAND_BYTES_BASE
    for name in ("record", "started", "canceled", "parent_linked"):
        record = getattr(command, name, None)
        if record is not None:
            size += len(record.payload)
    for event in getattr(command, "events", ()):
        size += len(event.data) + sum(len(key) + len(value) for key, value in event.labels.items())
    run = getattr(command, "run", None)
    if run is not None:
        # Labels stand in the command, in both lifecycle payloads and in what is sealed.
        size += 2 * sum(len(key) + len(value) for key, value in run.labels.items())
    checkpoint = getattr(command, "checkpoint", None)
    return size + len(checkpoint.data) if checkpoint is not None else size


def unavailable(detail: str, **ids: str) -> Refusal:
    """The one temporary refusal: the outcome is unknown to the caller, repeating exactly is safe."""
    return refuse(Code.UNAVAILABLE, detail, **ids)


NOT_TRIED: Final = unavailable("an earlier command of the same batch was unavailable, so this one was not tried")
