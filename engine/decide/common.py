"""What several decisions share: drafts of records, comparing a retry, checks on an existing run."""

from __future__ import annotations

from collections.abc import Callable

from engine.decide.state import Draft, Elsewhere, Opened, State
from projections.queries import live_run, session_is_purged
from projections.rows import RunRow
from schemas.log_record import NO_POSITION, Kind, SealedContent, record_id
from schemas.refusals import Code, Refusal, refuse
from schemas.values import REASON_SESSION_ENDED, AppendResult, NewRecord, SessionStatus


def record_draft(
    content: NewRecord,
    key_id: bytes,
    *,
    private: SealedContent | None = None,
    parent_run_id: str = "",
    predecessor_run_id: str = "",
    child_run_id: str = "",
    start_outcome: str = "none",
    terminal_status: str = "none",
) -> Draft:
    """The draft of a caller's record; what is private is its payload unless more is given."""
    return Draft(
        kind=Kind.RECORD,
        content=content,
        session_id=content.session_id,
        run_id=content.run_id,
        timestamp=content.timestamp,
        parent_run_id=parent_run_id,
        predecessor_run_id=predecessor_run_id,
        child_run_id=child_run_id,
        start_outcome=start_outcome,
        terminal_status=terminal_status,
        key_id=key_id,
        private=private if private is not None else SealedContent(payload=content.payload),
    )


def session_status(state: State, session_id: str) -> SessionStatus | None:
    """The current status of a run's session; None for a sessionless run."""
    if not session_id:
        return None
    row = state.session(session_id)
    return row.public_status if row is not None else None


def result(state: State, position: int, session_id: str, *, inserted: bool) -> AppendResult:
    """Where a record is, as an answer."""
    return AppendResult(
        id=record_id(state.partition, position),
        inserted=inserted,
        session_status=session_status(state, session_id),
    )


def names_purged_session(state: State, session_id: str, elsewhere: Elsewhere) -> bool:
    """True when the session that a command names has been purged, wherever its home is."""
    return bool(session_id) and (elsewhere.session_purged or session_is_purged(state, session_id))


def purged_refusal(session_id: str, run_id: str = "") -> Refusal:
    """The refusal of whatever comes for a purged session."""
    return refuse(
        Code.SESSION_PURGED,
        f"session {session_id!r} has been purged and never comes back",
        session_id=session_id,
        run_id=run_id,
    )


def cancellation_reason(row: RunRow, opened: Callable[[int], Opened]) -> str:
    """The reason in a run's metadata: the first requested one, `session_ended` for a stopped start, else empty."""
    if row.intent != NO_POSITION:
        return opened(row.intent).private.reason
    return REASON_SESSION_ENDED if row.stopped_at_start else ""


def run_not_found(run_id: str) -> Refusal:
    """The refusal of a command on a run that is not there."""
    return refuse(Code.RUN_NOT_FOUND, f"there is no run {run_id!r}", run_id=run_id)


def existing_run(state: State, record: NewRecord, elsewhere: Elsewhere) -> RunRow | Refusal:
    """The run that a record belongs to, after the checks that every command on an existing run starts with."""
    if names_purged_session(state, record.session_id, elsewhere):
        return purged_refusal(record.session_id, record.run_id)
    row = live_run(state, record.run_id)
    if row is None:
        return run_not_found(record.run_id)
    if record.agent_id != row.agent_id or record.session_id != row.session_id:
        return owner_mismatch(record, row)
    return row


def owner_mismatch(record: NewRecord, row: RunRow) -> Refusal:
    """The refusal of a record whose agent or session is not its run's."""
    wrong = "agent" if record.agent_id != row.agent_id else "session"
    return refuse(
        Code.RECORD_OWNER_MISMATCH,
        f"record {record.event_key!r} names another {wrong} than its run {record.run_id!r} has",
        run_id=record.run_id,
        event_key=record.event_key,
        agent_id=record.agent_id,
        session_id=record.session_id,
    )


def record_conflict(record: NewRecord) -> Refusal:
    """The refusal of another content under an event key that is taken."""
    return refuse(
        Code.RECORD_CONFLICT,
        f"run {record.run_id!r} already has another record under event key {record.event_key!r}",
        run_id=record.run_id,
        event_key=record.event_key,
    )


def compare_carrier(stored: Opened, sent: NewRecord, other_key: Code) -> Refusal | None:
    """Compare the record that carried a change with the one a retry brings; None when they are equal.

    Another event key is `other_key`, the change's own conflict; other content under the same key is `record_conflict`.
    """
    if stored.record.event_key != sent.event_key:
        return refuse(
            other_key,
            f"run {sent.run_id!r}: this change was carried by record {stored.record.event_key!r}, "
            f"not {sent.event_key!r}",
            run_id=sent.run_id,
            event_key=sent.event_key,
        )
    return None if stored.record == sent else record_conflict(sent)
