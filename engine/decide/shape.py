"""The first check of every command: its own shape, without any state. A failure is `invalid_command`.

Covers limits and texts, the record types a command may carry, and whether its records say what the
command says. All records are checked, including one that will not be used this time. Messages name fields, IDs and
limits, and never show a payload, a label or a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from schemas import limits
from schemas.commands import (
    AppendMemory,
    AppendRecord,
    Command,
    CreateSession,
    EndSession,
    PurgeMemory,
    PurgeSession,
    RecordCancellation,
    RecordSuspension,
    RecordTerminal,
    RepairSuspension,
    RepairTerminal,
    StartChildRun,
    StartOneShotChildRun,
    StartOneShotRun,
    StartRootRun,
)
from schemas.json_text import check_json_text
from schemas.memories import MEMORY_TYPES
from schemas.payloads import (
    CancellationPayload,
    ChildRunLinkedPayload,
    PayloadError,
    RunCompletedPayload,
    RunStartedPayload,
    RunSuspendedPayload,
    parse_lifecycle,
)
from schemas.refusals import Refusal, invalid
from schemas.text import check_event_key, check_id, check_labels, check_reason, check_turn_id, check_type
from schemas.times import check_time_ms
from schemas.values import (
    CANCELLATION_INTENT,
    CHILD_RUN_LINKED,
    LIFECYCLE_TYPES,
    REASON_SESSION_ENDED,
    RESERVED_TYPES,
    RUN_COMPLETED,
    RUN_STARTED,
    RUN_SUSPENDED,
    Checkpoint,
    NewRecord,
    RunStart,
    RunStatus,
)


class _Wrong(Exception):
    """A shape that is wrong; becomes the refusal at this module's edge."""

    def __init__(self, detail: str, **ids: str) -> None:
        super().__init__(detail)
        # An ID that is itself malformed is not repeated: it may be of any length.
        self.refusal = invalid(detail, **{name: value for name, value in ids.items() if check_id(value, name) is None})


def check_shape(command: Command) -> Refusal | None:
    """Check a command by itself; None when its shape is right."""
    try:
        _CHECKS[type(command)](command)
    except _Wrong as wrong:
        return wrong.refusal
    return None


def _need(problem: str | None, **ids: str) -> None:
    if problem is not None:
        raise _Wrong(problem, **ids)


def _time(value: int, name: str, **ids: str) -> None:
    _need(check_time_ms(value, name), **ids)


def _create_session(command: CreateSession) -> None:
    _need(check_id(command.session_id, "session_id"))
    _time(command.created_at, "created_at", session_id=command.session_id)


def _end_session(command: EndSession) -> None:
    _need(check_id(command.session_id, "session_id"))
    _time(command.ended_at, "ended_at", session_id=command.session_id)


def _purge_session(command: PurgeSession) -> None:
    _need(check_id(command.session_id, "session_id"))


def _start_root(command: StartRootRun) -> None:
    run = command.run
    _sessionful(run)
    _no_parent(run)
    _started(run, command.started)
    _canceled(run, command.started, command.canceled)


def _start_child(command: StartChildRun) -> None:
    run = command.run
    _sessionful(run)
    _has_parent(run)
    _started(run, command.started)
    _canceled(run, command.started, command.canceled)
    _link(run, command.parent_linked)


def _start_one_shot(command: StartOneShotRun) -> None:
    run = command.run
    _sessionless(run)
    _no_parent(run)
    _started(run, command.started)


def _start_one_shot_child(command: StartOneShotChildRun) -> None:
    run = command.run
    _sessionless(run)
    _has_parent(run)
    _started(run, command.started)
    _link(run, command.parent_linked)
    if command.parent_linked.event_key == command.started.event_key:
        raise _Wrong("parent_linked and started must have different event keys", run_id=run.run_id)


def _append(command: AppendRecord) -> None:
    record = command.record
    _record(record, "record")
    if record.type in LIFECYCLE_TYPES:
        raise _Wrong(
            f"record.type {record.type!r} is a lifecycle type, which only lifecycle commands write", **_ids(record)
        )
    _need(_named("record.payload", check_json_text(record.payload)), **_ids(record))


def _cancellation(command: RecordCancellation) -> None:
    record = command.record
    _need(check_reason(command.reason, "reason"), run_id=command.run_id)
    if command.reason in RESERVED_TYPES:
        raise _Wrong(f"reason {command.reason!r} is reserved", run_id=command.run_id)
    payload = _lifecycle(command.run_id, record, CANCELLATION_INTENT, CancellationPayload)
    if payload.reason != command.reason:
        raise _Wrong("record.payload's reason is not the command's", **_ids(record))


def _suspension(command: RecordSuspension | RepairSuspension) -> None:
    record = command.record
    _checkpoint(command.checkpoint, command.run_id)
    payload = _lifecycle(command.run_id, record, RUN_SUSPENDED, RunSuspendedPayload)
    if payload.suspension_id != command.checkpoint.id:
        raise _Wrong("record.payload's SuspensionID is not the checkpoint's ID", **_ids(record))


def _terminal(command: RecordTerminal | RepairTerminal) -> None:
    record = command.record
    if command.status not in (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELED):
        raise _Wrong("status must be completed, failed or canceled", run_id=command.run_id)
    payload = _lifecycle(command.run_id, record, RUN_COMPLETED, RunCompletedPayload)
    if payload.status is not command.status:
        raise _Wrong(f"record.payload says {payload.status.value}, the command {command.status.value}", **_ids(record))


def _memory(command: AppendMemory | PurgeMemory) -> None:
    _need(check_memory(command.agent_id, command.run_id), agent_id=command.agent_id, run_id=command.run_id)


def check_memory(agent_id: str, run_id: str) -> str | None:
    """What is wrong with the IDs of a memory; None where nothing is."""
    return check_id(agent_id, "agent_id") or check_id(run_id, "run_id")


def _append_memory(command: AppendMemory) -> None:
    _memory(command)
    ids = {"agent_id": command.agent_id, "run_id": command.run_id}
    size = 0
    for index, event in enumerate(command.events):
        name = f"events.{index}"
        if event.type not in MEMORY_TYPES:
            raise _Wrong(f"{name}.type must be one of {', '.join(MEMORY_TYPES)}", **ids)
        _time(event.timestamp, f"{name}.timestamp", **ids)
        if len(event.data) > limits.payload_bytes_max:
            raise _Wrong(f"{name}.data is longer than {limits.payload_bytes_max} bytes", **ids)
        _need(_named(f"{name}.data", check_json_text(event.data)), **ids)
        _need(check_labels(event.labels, f"{name}.labels"), **ids)
        size += len(event.data) + sum(len(key) + len(value) for key, value in event.labels.items())
    if size > limits.memory_append_bytes_max:
        raise _Wrong(f"events hold more than {limits.memory_append_bytes_max} bytes together", **ids)


def _sessionful(run: RunStart) -> None:
    _need(check_id(run.session_id, "run.session_id"), run_id=run.run_id)
    _run(run)


def _sessionless(run: RunStart) -> None:
    if run.session_id:
        raise _Wrong("run.session_id must be empty for a one-shot run", run_id=run.run_id)
    if run.predecessor_run_id:
        raise _Wrong("run.predecessor_run_id must be empty for a one-shot run", run_id=run.run_id)
    _run(run)


def _run(run: RunStart) -> None:
    _need(check_id(run.run_id, "run.run_id"))
    _need(check_id(run.agent_id, "run.agent_id"), run_id=run.run_id)
    if run.predecessor_run_id:
        _need(check_id(run.predecessor_run_id, "run.predecessor_run_id"), run_id=run.run_id)
        if run.predecessor_run_id == run.run_id:
            raise _Wrong("run.predecessor_run_id must differ from run.run_id", run_id=run.run_id)
    _time(run.started_at, "run.started_at", run_id=run.run_id)
    _need(check_labels(run.labels, "run.labels"), run_id=run.run_id)


def _no_parent(run: RunStart) -> None:
    if run.parent_run_id:
        raise _Wrong("run.parent_run_id must be empty for a root run", run_id=run.run_id)


def _has_parent(run: RunStart) -> None:
    _need(check_id(run.parent_run_id, "run.parent_run_id"), run_id=run.run_id)
    if run.parent_run_id == run.run_id:
        raise _Wrong("run.parent_run_id must differ from run.run_id", run_id=run.run_id)


def _started(run: RunStart, started: NewRecord) -> None:
    _record(started, "started")
    _belongs(run, started, "started", RUN_STARTED)
    payload = _parsed(started, "started", RunStartedPayload)
    if payload.parent_run_id != run.parent_run_id:
        raise _Wrong("started.payload's parent_run_id is not the run's", run_id=run.run_id)
    if payload.predecessor_run_id != run.predecessor_run_id:
        raise _Wrong("started.payload's predecessor_run_id is not the run's", run_id=run.run_id)
    if payload.labels != run.labels:
        raise _Wrong("started.payload's labels are not the run's", run_id=run.run_id)


def _canceled(run: RunStart, started: NewRecord, canceled: NewRecord) -> None:
    _record(canceled, "canceled")
    _belongs(run, canceled, "canceled", RUN_COMPLETED)
    payload = _parsed(canceled, "canceled", RunCompletedPayload)
    if payload.status is not RunStatus.CANCELED or payload.reason != REASON_SESSION_ENDED:
        raise _Wrong("canceled.payload must say canceled, with the reason session_ended", run_id=run.run_id)
    if payload.labels != run.labels:
        raise _Wrong("canceled.payload's labels are not the run's", run_id=run.run_id)
    if canceled.event_key == started.event_key:
        raise _Wrong("started and canceled must have different event keys", run_id=run.run_id)


def _belongs(run: RunStart, record: NewRecord, name: str, record_type: str) -> None:
    if record.type != record_type:
        raise _Wrong(f"{name}.type must be {record_type}", run_id=run.run_id)
    for field in ("run_id", "agent_id", "session_id"):
        if getattr(record, field) != getattr(run, field):
            raise _Wrong(f"{name}.{field} is not the run's", run_id=run.run_id)
    if record.timestamp != run.started_at:
        raise _Wrong(f"{name}.timestamp is not the run's started_at", run_id=run.run_id)


def _link(run: RunStart, link: NewRecord) -> None:
    _record(link, "parent_linked")
    if link.type != CHILD_RUN_LINKED:
        raise _Wrong(f"parent_linked.type must be {CHILD_RUN_LINKED}", run_id=run.run_id)
    if link.run_id != run.parent_run_id:
        raise _Wrong("parent_linked.run_id is not the run's parent_run_id", run_id=run.run_id)
    if link.session_id != run.session_id:
        raise _Wrong("parent_linked.session_id is not the run's", run_id=run.run_id)
    payload = _parsed(link, "parent_linked", ChildRunLinkedPayload)
    if payload.child_run_id != run.run_id:
        raise _Wrong("parent_linked.payload's ChildRunID is not the run's ID", run_id=run.run_id)
    if payload.child_agent_id != run.agent_id:
        raise _Wrong("parent_linked.payload's ChildAgentID is not the run's agent", run_id=run.run_id)


def _lifecycle(run_id: str, record: NewRecord, record_type: str, form: type[Any]) -> Any:
    """Check the one record of a lifecycle change and return its payload."""
    _need(check_id(run_id, "run_id"))
    _record(record, "record")
    if record.type != record_type:
        raise _Wrong(f"record.type must be {record_type}", **_ids(record))
    if record.run_id != run_id:
        raise _Wrong("record.run_id is not the command's run_id", **_ids(record))
    return _parsed(record, "record", form)


def _record(record: NewRecord, name: str) -> None:
    """Check the texts and limits that every record must keep."""
    _need(check_id(record.run_id, f"{name}.run_id"))
    _need(check_event_key(record.event_key, f"{name}.event_key"), run_id=record.run_id)
    problem = (
        check_id(record.agent_id, f"{name}.agent_id")
        or (check_id(record.session_id, f"{name}.session_id") if record.session_id else None)
        or check_turn_id(record.turn_id, f"{name}.turn_id")
        or check_type(record.type, f"{name}.type")
        or check_time_ms(record.timestamp, f"{name}.timestamp")
    )
    if problem is None and len(record.payload) > limits.payload_bytes_max:
        problem = f"{name}.payload is longer than {limits.payload_bytes_max} bytes"
    if problem is not None:
        raise _Wrong(problem, **_ids(record))


def _parsed(record: NewRecord, name: str, form: type[Any]) -> Any:
    try:
        payload = parse_lifecycle(record.type, record.payload)
    except PayloadError as error:
        raise _Wrong(f"{name}.payload: {error}", **_ids(record)) from None
    if not isinstance(payload, form):
        raise _Wrong(f"{name}.payload is not that of {record.type}", **_ids(record))
    return payload


def _checkpoint(checkpoint: Checkpoint, run_id: str) -> None:
    _need(check_id(checkpoint.id, "checkpoint.id"), run_id=run_id)
    if len(checkpoint.data) > limits.checkpoint_bytes_max:
        raise _Wrong(f"checkpoint.data is longer than {limits.checkpoint_bytes_max} bytes", run_id=run_id)


def _named(name: str, problem: str | None) -> str | None:
    return None if problem is None else f"{name}: {problem}"


def _ids(record: NewRecord) -> dict[str, str]:
    return {"run_id": record.run_id, "event_key": record.event_key}


_CHECKS: Final[dict[type, Callable[[Any], None]]] = {
    CreateSession: _create_session,
    EndSession: _end_session,
    PurgeSession: _purge_session,
    StartRootRun: _start_root,
    StartChildRun: _start_child,
    StartOneShotRun: _start_one_shot,
    StartOneShotChildRun: _start_one_shot_child,
    AppendRecord: _append,
    RecordCancellation: _cancellation,
    RecordSuspension: _suspension,
    RecordTerminal: _terminal,
    RepairSuspension: _suspension,
    RepairTerminal: _terminal,
    AppendMemory: _append_memory,
    PurgeMemory: _memory,
}
