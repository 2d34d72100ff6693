"""Decisions on sessions: create, end, purge."""

from __future__ import annotations

from engine.decide.common import purged_refusal
from engine.decide.state import Decided, Draft, Needs, Prepared, State
from projections.rows import SessionRow
from schemas.commands import CreateSession, EndSession, PurgeSession
from schemas.log_record import Kind
from schemas.owners import session_owner
from schemas.refusals import Code, Refusal, refuse
from schemas.values import Purged, Session, SessionStatus


def session_value(session_id: str, row: SessionRow) -> Session:
    """A session as callers see it."""
    return Session(session_id, row.public_status, row.created_at, row.ended_at)


def session_not_found(session_id: str) -> Refusal:
    """The refusal of a command on a session that is not there."""
    return refuse(Code.SESSION_NOT_FOUND, f"there is no session {session_id!r}", session_id=session_id)


def create_session(state: State, command: CreateSession, prepared: Prepared) -> Decided | Needs | Refusal:
    """Create; an active session is answered as it is, an ended or purged one refused."""
    session_id = command.session_id
    row = state.session(session_id)
    if row is not None and row.purged:
        return purged_refusal(session_id)
    if row is not None and row.status == SessionStatus.ENDED.value:
        return refuse(Code.SESSION_ENDED, f"session {session_id!r} has ended", session_id=session_id)
    if row is not None:
        return Decided(session_value(session_id, row))
    if not prepared.key_id:
        return Needs(data_key_of=session_owner(session_id))
    draft = Draft(
        kind=Kind.SESSION_CREATED, session_id=session_id, timestamp=command.created_at, key_id=prepared.key_id
    )
    return Decided(Session(session_id, SessionStatus.ACTIVE, command.created_at), (draft,))


def end_session(state: State, command: EndSession) -> Decided | Refusal:
    """End; an ended session is answered unchanged."""
    session_id = command.session_id
    row = state.session(session_id)
    if row is None:
        return session_not_found(session_id)
    if row.purged:
        return purged_refusal(session_id)
    if row.status == SessionStatus.ENDED.value:
        return Decided(session_value(session_id, row))
    draft = Draft(kind=Kind.SESSION_ENDED, session_id=session_id, timestamp=command.ended_at)
    return Decided(Session(session_id, SessionStatus.ENDED, row.created_at, command.ended_at), (draft,))


def purge_session(state: State, command: PurgeSession) -> Decided | Refusal:
    """Purge an ended session without running runs; purging a purged one succeeds."""
    session_id = command.session_id
    row = state.session(session_id)
    if row is None:
        return session_not_found(session_id)
    if row.purged:
        return Decided(Purged(session_owner(session_id)))
    if row.status == SessionStatus.ACTIVE.value:
        return refuse(
            Code.SESSION_ACTIVE, f"session {session_id!r} is active; end it before it is purged", session_id=session_id
        )
    if row.running:
        return refuse(
            Code.SESSION_HAS_ACTIVE_RUNS,
            f"session {session_id!r} still has {row.running} running runs",
            session_id=session_id,
        )
    purged = Purged(session_owner(session_id))
    return Decided(purged, (Draft(kind=Kind.SESSION_PURGED, session_id=session_id),))
