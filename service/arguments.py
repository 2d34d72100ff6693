"""The arguments of every method of the store, as they come over the wire, and the command each of them is."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError
from typing_extensions import override

from schemas import commands
from schemas.consumers import ScopeKind
from schemas.memories import MemoryEvent
from schemas.values import Checkpoint, NewRecord, RunStart, RunStatus
from service.wire import Base64, Limit, NotEmpty, Payload, Time, Wire

Labels = dict[str, str] | None
OptionalText = str | None
RunStatusName = Literal["running", "suspended", "completed", "failed", "canceled"]
MemoryType = Literal["user_message", "assistant_message", "tool_call", "tool_result", "planner_note", "thinking"]
TerminalStatus = Literal["completed", "failed", "canceled"]


class RecordInput(Wire):
    """A record to store. It has no ID yet: the store assigns one."""

    event_key: str
    run_id: str
    agent_id: str
    session_id: OptionalText = None
    turn_id: OptionalText = None
    type: str
    timestamp: Time
    payload: Payload

    def value(self) -> NewRecord:
        """The record inside the store."""
        return NewRecord(
            self.event_key,
            self.run_id,
            self.agent_id,
            self.session_id or "",
            self.turn_id or "",
            self.type,
            self.timestamp,
            self.payload,
        )


class RunInput(Wire):
    """The identity of a run to start."""

    agent_id: str
    run_id: str
    session_id: OptionalText = None
    parent_run_id: OptionalText = None
    predecessor_run_id: OptionalText = None
    started_at: Time
    labels: Labels = None

    def value(self) -> RunStart:
        """The run's start inside the store."""
        return RunStart(
            agent_id=self.agent_id,
            run_id=self.run_id,
            started_at=self.started_at,
            session_id=self.session_id or "",
            parent_run_id=self.parent_run_id or "",
            predecessor_run_id=self.predecessor_run_id or "",
            labels=self.labels or {},
        )


class CheckpointInput(Wire):
    """The private bytes that let a suspended run be continued."""

    id: str
    data: Base64 = b""

    def value(self) -> Checkpoint:
        """The checkpoint inside the store."""
        return Checkpoint(self.id, self.data)


class CommandArguments(Wire):
    """The arguments of a method that changes something."""

    @abstractmethod
    def command(self) -> commands.Command:
        """The command that these arguments are."""


class CreateSession(CommandArguments):
    """The session to open, and when it was."""

    session_id: str
    created_at: Time

    @override
    def command(self) -> commands.Command:
        return commands.CreateSession(self.session_id, self.created_at)


class EndSession(CommandArguments):
    """The session to end, and when it was."""

    session_id: str
    ended_at: Time

    @override
    def command(self) -> commands.Command:
        return commands.EndSession(self.session_id, self.ended_at)


class PurgeSession(CommandArguments):
    """The session to remove."""

    session_id: str

    @override
    def command(self) -> commands.Command:
        return commands.PurgeSession(self.session_id)


class StartRootRun(CommandArguments):
    """The run to start, its start record, and the record that stops it in an ended session."""

    run: RunInput
    started: RecordInput
    canceled: RecordInput

    @override
    def command(self) -> commands.Command:
        return commands.StartRootRun(self.run.value(), self.started.value(), self.canceled.value())


class StartChildRun(CommandArguments):
    """The run to start, the link on its parent, and its records as for a root run."""

    run: RunInput
    parent_linked: RecordInput
    started: RecordInput
    canceled: RecordInput

    @override
    def command(self) -> commands.Command:
        return commands.StartChildRun(
            self.run.value(), self.parent_linked.value(), self.started.value(), self.canceled.value()
        )


class StartOneShotRun(CommandArguments):
    """The run to start and its start record."""

    run: RunInput
    started: RecordInput

    @override
    def command(self) -> commands.Command:
        return commands.StartOneShotRun(self.run.value(), self.started.value())


class StartOneShotChildRun(CommandArguments):
    """The run to start, the link on its parent, and its start record."""

    run: RunInput
    parent_linked: RecordInput
    started: RecordInput

    @override
    def command(self) -> commands.Command:
        return commands.StartOneShotChildRun(self.run.value(), self.parent_linked.value(), self.started.value())


class AppendRecord(CommandArguments):
    """The record to add."""

    record: RecordInput

    @override
    def command(self) -> commands.Command:
        return commands.AppendRecord(self.record.value())


class RecordCancellation(CommandArguments):
    """The run to cancel, why, and the record that says so."""

    run_id: str
    reason: str
    record: RecordInput

    @override
    def command(self) -> commands.Command:
        return commands.RecordCancellation(self.run_id, self.reason, self.record.value())


class RecordSuspension(CommandArguments):
    """The run to suspend, its checkpoint, and the record that says so."""

    run_id: str
    checkpoint: CheckpointInput
    record: RecordInput

    @override
    def command(self) -> commands.Command:
        return commands.RecordSuspension(self.run_id, self.checkpoint.value(), self.record.value())


class RecordTerminal(CommandArguments):
    """The run to end, how, and the record that says so."""

    run_id: str
    status: TerminalStatus
    record: RecordInput

    @override
    def command(self) -> commands.Command:
        return commands.RecordTerminal(self.run_id, RunStatus(self.status), self.record.value())


class RepairSuspension(CommandArguments):
    """As `RecordSuspension`."""

    run_id: str
    checkpoint: CheckpointInput
    record: RecordInput

    @override
    def command(self) -> commands.Command:
        return commands.RepairSuspension(self.run_id, self.checkpoint.value(), self.record.value())


class RepairTerminal(CommandArguments):
    """As `RecordTerminal`."""

    run_id: str
    status: TerminalStatus
    record: RecordInput

    @override
    def command(self) -> commands.Command:
        return commands.RepairTerminal(self.run_id, RunStatus(self.status), self.record.value())


class MemoryEventInput(Wire):
    """Something to remember."""

    type: MemoryType
    timestamp: Time
    data: Payload
    labels: Labels = None

    def value(self) -> MemoryEvent:
        """The event inside the store."""
        return MemoryEvent(self.type, self.timestamp, self.data, self.labels or {})


class AppendEvents(CommandArguments):
    """The memory, and what to add to it; nothing at all is legal."""

    agent_id: str
    run_id: str
    events: list[MemoryEventInput] | None = None

    @override
    def command(self) -> commands.Command:
        return commands.AppendMemory(self.agent_id, self.run_id, tuple(each.value() for each in self.events or ()))


class PurgeMemory(CommandArguments):
    """The memory to remove."""

    agent_id: str
    run_id: str

    @override
    def command(self) -> commands.Command:
        return commands.PurgeMemory(self.agent_id, self.run_id)


class OneMemory(Wire):
    """The memory to read."""

    agent_id: str
    run_id: str


def _read_scope(value: object) -> tuple[ScopeKind, str]:
    if value == "all":
        return ScopeKind.ALL, ""
    if isinstance(value, dict) and len(value) == 1:
        ((kind, subject_id),) = value.items()
        if kind in ("session", "run") and isinstance(subject_id, str):
            return ScopeKind(kind), subject_id
    raise PydanticCustomError("wire", "{reason}", {"reason": 'must be "all", {"session": ID} or {"run": ID}'})


def _id_scope(kind: str) -> dict[str, object]:
    return {
        "type": "object",
        "properties": {kind: {"type": "string"}},
        "required": [kind],
        "additionalProperties": False,
    }


ScopeInput = Annotated[
    tuple[ScopeKind, str],
    PlainValidator(_read_scope),
    WithJsonSchema({"oneOf": [{"const": "all"}, _id_scope("session"), _id_scope("run")]}),
]


class ConsumerInput(Wire):
    """What a consumer reads and where it begins, which is the start where nothing is said."""

    scope: ScopeInput
    types: list[str] | None = None
    begins: Literal["start", "now"] | None = Field(default=None, alias="from")

    @property
    def begin(self) -> str:
        """Where it begins."""
        return self.begins or "start"


class Commit(Wire):
    """Up to where a consumer has dealt with what it reads: a cursor of its stream."""

    cursor: NotEmpty


class OneSession(Wire):
    """A session to read."""

    session_id: NotEmpty


class OneSessionOrNone(Wire):
    """A session to read; no session at all is legal."""

    session_id: OptionalText = None


class OneRun(Wire):
    """A run to read."""

    run_id: str


class ListRunsBySession(Wire):
    """The session whose runs to list, and in which states."""

    session_id: NotEmpty
    statuses: list[RunStatusName] | None = None


class ListRunRecords(Wire):
    """The run whose records to list, from where, and how many."""

    run_id: str
    cursor: OptionalText = None
    limit: Limit


class ListSessionRecords(Wire):
    """The session whose records to list, from where, and how many."""

    session_id: NotEmpty
    cursor: OptionalText = None
    limit: Limit


class Nothing(Wire):
    """The arguments of an operation that takes none."""
