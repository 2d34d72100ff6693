"""Deciding on the changes in a run's life: cancellation, suspension, the terminal one, and their repairs.

Checks come in this order: purged session, run, owner, the change already made, event key held by
another record, status, and last whether a terminal record's labels and reason are the run's.
"""

from __future__ import annotations

from engine.decide.common import (
    cancellation_reason,
    compare_carrier,
    existing_run,
    record_conflict,
    record_draft,
    result,
)
from engine.decide.records import run_not_active
from engine.decide.state import Decided, Draft, Elsewhere, State
from projections.rows import RunRow
from schemas.commands import (
    RecordCancellation,
    RecordSuspension,
    RecordTerminal,
    RepairSuspension,
    RepairTerminal,
)
from schemas.log_record import NO_POSITION, SealedContent
from schemas.payloads import RunCompletedPayload, parse_lifecycle
from schemas.refusals import Code, Refusal, invalid, refuse
from schemas.values import (
    REASON_ENGINE_CANCELED,
    Checkpoint,
    NewRecord,
    RepairOutcome,
    RepairResult,
    RunStatus,
)

Suspension = RecordSuspension | RepairSuspension
Terminal = RecordTerminal | RepairTerminal


def record_cancellation(state: State, command: RecordCancellation, elsewhere: Elsewhere) -> Decided | Refusal:
    """Store the first reason and its record together; the run stays running."""
    record = command.record
    row = existing_run(state, record, elsewhere)
    if isinstance(row, Refusal):
        return row
    stored_reason = cancellation_reason(row, state.opened)
    if stored_reason and stored_reason != command.reason:
        return refuse(
            Code.RUN_CANCELLATION_CONFLICT,
            f"run {record.run_id!r} already has another cancellation reason",
            run_id=record.run_id,
            event_key=record.event_key,
        )
    if row.intent != NO_POSITION:
        return _retry(state, row.intent, record, Code.RUN_CANCELLATION_CONFLICT)
    if state.event_position(row, record.event_key) is not None:
        return record_conflict(record)
    if not row.running:
        return run_not_active(record, row)
    draft = record_draft(record, row.key_id, private=SealedContent(payload=record.payload, reason=command.reason))
    return _written(state, record, draft)


def record_suspension(state: State, command: RecordSuspension, elsewhere: Elsewhere) -> Decided | Refusal:
    """Store checkpoint, status `suspended` and record together."""
    row = existing_run(state, command.record, elsewhere)
    if isinstance(row, Refusal):
        return row
    if row.status == RunStatus.SUSPENDED.value:
        if not _same_checkpoint(state, row, command.checkpoint):
            return refuse(
                Code.RUN_SUSPENSION_CONFLICT,
                f"run {command.run_id!r} is suspended with another checkpoint",
                run_id=command.run_id,
                event_key=command.record.event_key,
            )
        return _retry(state, row.terminal, command.record, Code.RUN_SUSPENSION_CONFLICT)
    if not row.running:
        return _terminal_conflict(command.record, row)
    return _suspend(state, command, row)


def record_terminal(state: State, command: RecordTerminal, elsewhere: Elsewhere) -> Decided | Refusal:
    """Store the terminal status and its record together."""
    row = existing_run(state, command.record, elsewhere)
    if isinstance(row, Refusal):
        return row
    if not row.running:
        if row.status != command.status.value:
            return _terminal_conflict(command.record, row)
        return _retry(state, row.terminal, command.record, Code.RUN_TERMINAL_CONFLICT)
    return _end(state, command, row)


def repair_suspension(state: State, command: RepairSuspension, elsewhere: Elsewhere) -> Decided | Refusal:
    """Suspend a run that is still running; otherwise tell which record owns its state."""
    row = existing_run(state, command.record, elsewhere)
    if isinstance(row, Refusal):
        return row
    if row.running:
        return _stored(_suspend(state, command, row), RunStatus.SUSPENDED)
    same = (
        row.status == RunStatus.SUSPENDED.value
        and state.opened(row.terminal).record == command.record
        and _same_checkpoint(state, row, command.checkpoint)
    )
    return _not_stored(state, row, command.record, same=same)


def repair_terminal(state: State, command: RepairTerminal, elsewhere: Elsewhere) -> Decided | Refusal:
    """End a run that is still running; otherwise tell which record owns its state."""
    row = existing_run(state, command.record, elsewhere)
    if isinstance(row, Refusal):
        return row
    if row.running:
        return _stored(_end(state, command, row), command.status)
    same = row.status == command.status.value and state.opened(row.terminal).record == command.record
    return _not_stored(state, row, command.record, same=same)


def _suspend(state: State, command: Suspension, row: RunRow) -> Decided | Refusal:
    record, checkpoint = command.record, command.checkpoint
    if state.event_position(row, record.event_key) is not None:
        return record_conflict(record)
    private = SealedContent(payload=record.payload, checkpoint_id=checkpoint.id, checkpoint=checkpoint.data)
    draft = record_draft(record, row.key_id, private=private, terminal_status=RunStatus.SUSPENDED.value)
    return _written(state, record, draft)


def _end(state: State, command: Terminal, row: RunRow) -> Decided | Refusal:
    record = command.record
    if state.event_position(row, record.event_key) is not None:
        return record_conflict(record)
    refusal = _matches_run(state, record, row)
    if refusal is not None:
        return refusal
    draft = record_draft(record, row.key_id, terminal_status=command.status.value)
    return _written(state, record, draft)


def _matches_run(state: State, record: NewRecord, row: RunRow) -> Refusal | None:
    """A terminal record must have its run's labels, and a canceled one the stored reason or `engine_canceled`."""
    payload = parse_lifecycle(record.type, record.payload)
    assert isinstance(payload, RunCompletedPayload)
    if payload.labels != state.opened(row.number).private.labels:
        return invalid(
            f"record.payload's labels are not those of run {record.run_id!r}",
            run_id=record.run_id,
            event_key=record.event_key,
        )
    if payload.status is not RunStatus.CANCELED:
        return None
    if payload.reason != (cancellation_reason(row, state.opened) or REASON_ENGINE_CANCELED):
        return invalid(
            f"record.payload's reason is not the cancellation reason of run {record.run_id!r}, "
            f"nor {REASON_ENGINE_CANCELED!r} where none is stored",
            run_id=record.run_id,
            event_key=record.event_key,
        )
    return None


def _same_checkpoint(state: State, row: RunRow, checkpoint: Checkpoint) -> bool:
    private = state.opened(row.terminal).private
    return private.checkpoint_id == checkpoint.id and private.checkpoint == checkpoint.data


def _retry(state: State, position: int, record: NewRecord, other_key: Code) -> Decided | Refusal:
    refusal = compare_carrier(state.opened(position), record, other_key)
    if refusal is not None:
        return refusal
    return Decided(result(state, position, record.session_id, inserted=False))


def _written(state: State, record: NewRecord, draft: Draft) -> Decided:
    return Decided(result(state, state.next_position, record.session_id, inserted=True), (draft,))


def _terminal_conflict(record: NewRecord, row: RunRow) -> Refusal:
    return refuse(
        Code.RUN_TERMINAL_CONFLICT,
        f"run {record.run_id!r} is already {row.status}",
        run_id=record.run_id,
        event_key=record.event_key,
    )


def _stored(decided: Decided | Refusal, status: RunStatus) -> Decided | Refusal:
    """A repair that wrote, or the refusal that its command met."""
    if isinstance(decided, Refusal):
        return decided
    return Decided(RepairResult(RepairOutcome.STORED, status, decided.answer), decided.drafts)  # type: ignore[arg-type]


def _not_stored(state: State, row: RunRow, record: NewRecord, *, same: bool) -> Decided:
    if not same:
        return Decided(RepairResult(RepairOutcome.DIFFERENT_TERMINAL, row.run_status))
    append = result(state, row.terminal, record.session_id, inserted=False)
    return Decided(RepairResult(RepairOutcome.ALREADY_STORED, row.run_status, append))
