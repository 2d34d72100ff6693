"""Deciding on ordinary records."""

from __future__ import annotations

from engine.decide.common import existing_run, record_conflict, record_draft, result
from engine.decide.state import Decided, Elsewhere, State
from projections.rows import RunRow
from schemas.commands import AppendRecord
from schemas.refusals import Code, Refusal, refuse
from schemas.values import NewRecord


def append_record(state: State, command: AppendRecord, elsewhere: Elsewhere) -> Decided | Refusal:
    """Append; an exact retry succeeds even on a terminal run, anything new there is refused."""
    record = command.record
    row = existing_run(state, record, elsewhere)
    if isinstance(row, Refusal):
        return row
    held = state.event_position(row, record.event_key)
    if held is not None:
        if state.opened(held).record != record:
            return record_conflict(record)
        return Decided(result(state, held, record.session_id, inserted=False))
    if not row.running:
        return run_not_active(record, row)
    return Decided(
        result(state, state.next_position, record.session_id, inserted=True), (record_draft(record, row.key_id),)
    )


def run_not_active(record: NewRecord, row: RunRow) -> Refusal:
    """The refusal of something new on a terminal run."""
    return refuse(
        Code.RUN_NOT_ACTIVE,
        f"run {record.run_id!r} is {row.status} and takes no new record",
        run_id=record.run_id,
        event_key=record.event_key,
    )
