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
from schemas.values import Answer, NewRecord

Outcome = Answer | Reserved | ConsumerState | Needs | Refusal

_COMMAND_BYTES_BASE: Final = 1024
_RECORD_BYTES_BASE: Final = 512
_LABEL_BYTES_BASE: Final = 8
_EVENT_BYTES_BASE: Final = 128


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
    """How many bytes a command holds in memory, and at most takes in a batch, in whatever form a log stores that."""
    size = _COMMAND_BYTES_BASE
    run = getattr(command, "run", None)
    family = 0
    if run is not None:
        # The labels are sealed once; that the payloads repeat them is in the payloads.
        size += sum(_LABEL_BYTES_BASE + _bytes(key) + _bytes(value) for key, value in run.labels.items())
        family = _bytes(run.run_id) + _bytes(run.parent_run_id) + _bytes(run.predecessor_run_id)
    for name in ("record", "started", "canceled", "parent_linked"):
        record = getattr(command, name, None)
        if record is not None:
            size += _RECORD_BYTES_BASE + family + _record_bytes(record)
    for name in ("session_id", "run_id", "reason"):
        size += 2 * _bytes(getattr(command, name, ""))
    for event in getattr(command, "events", ()):
        # Stored as JSON text in JSON text, where each quote takes two bytes.
        labels = sum(_LABEL_BYTES_BASE + _bytes(key) + _bytes(value) for key, value in event.labels.items())
        size += _EVENT_BYTES_BASE + 2 * (len(event.data) + labels)
    checkpoint = getattr(command, "checkpoint", None)
    return size if checkpoint is None else size + _bytes(checkpoint.id) + len(checkpoint.data)


def _record_bytes(record: NewRecord) -> int:
    # The run's ID stands in the record and beside it.
    texts = (record.event_key, record.run_id, record.run_id, record.agent_id, record.session_id, record.turn_id)
    return sum(map(_bytes, texts)) + _bytes(record.type) + len(record.payload)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def unavailable(detail: str, **ids: str) -> Refusal:
    """The one temporary refusal: the outcome is unknown to the caller, repeating exactly is safe."""
    return refuse(Code.UNAVAILABLE, detail, **ids)


NOT_TRIED: Final = unavailable("an earlier command of the same batch was unavailable, so this one was not tried")
