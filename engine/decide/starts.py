"""Decisions on starts. The order of the checks is part of the contract: every implementation refuses alike.

    purged session · a run of that ID anywhere (retry or conflict) · session exists · predecessor ·
    parent exists · parent's session · link's owner · parent running · event key of the link

A start's decision never changes: a retry is compared with what the first start fixed, and answered with the original
outcome.
"""

from __future__ import annotations

from engine.decide.common import (
    compare_carrier,
    names_purged_session,
    owner_mismatch,
    purged_refusal,
    record_conflict,
    record_draft,
    result,
    run_not_found,
)
from engine.decide.sessions import session_not_found
from engine.decide.state import Decided, Draft, Elsewhere, Needs, Prepared, RunElsewhere, State
from projections.queries import live_run
from projections.rows import RunRow, SessionRow
from schemas.commands import Start, StartChildRun, StartOneShotChildRun, StartOneShotRun, StartRootRun
from schemas.log_record import SealedContent
from schemas.owners import tree_owner
from schemas.refusals import Code, Refusal, refuse
from schemas.values import (
    NewRecord,
    RunStart,
    RunStatus,
    SessionStatus,
    StartOutcome,
    StartResult,
)


def decide_start(state: State, command: Start, elsewhere: Elsewhere, prepared: Prepared) -> Decided | Needs | Refusal:
    """Decide any of the four starts."""
    run = command.run
    link = command.parent_linked if isinstance(command, (StartChildRun, StartOneShotChildRun)) else None
    canceled = command.canceled if isinstance(command, (StartRootRun, StartChildRun)) else None
    if names_purged_session(state, run.session_id, elsewhere):
        return purged_refusal(run.session_id, run.run_id)
    taken = _same_id(state, command.started, run, link, canceled, elsewhere)
    if taken is not None:
        return taken
    session = state.session(run.session_id) if run.session_id else None
    if run.session_id and session is None:
        return session_not_found(run.session_id)
    refusal = _predecessor(state, run, elsewhere)
    if refusal is not None:
        return refusal
    parent: RunRow | None = None
    if link is not None:
        found = _parent(state, run, link, elsewhere)
        if isinstance(found, Refusal):
            return found
        parent = found
    return _accept(state, command, link, canceled, session, parent, prepared)


def _same_id(
    state: State,
    started: NewRecord,
    run: RunStart,
    link: NewRecord | None,
    canceled: NewRecord | None,
    elsewhere: Elsewhere,
) -> Decided | Refusal | None:
    """Answer a start whose run ID is taken: a retry, or a conflict. None when the ID is free for this home."""
    row = state.run(run.run_id)
    if row is None:
        home = state.reserved_home(run.run_id)
        if elsewhere.own_id_taken or (home is not None and home != state.partition):
            return _run_conflict(run, "is taken in another session")
        return None
    if not _same_identity(state, row, run):
        return _run_conflict(run, "already started with another identity")
    if link is not None:
        refusal = compare_carrier(state.opened(row.link), link, Code.RUN_CONFLICT)
        if refusal is not None:
            return refusal
    refusal = compare_carrier(state.opened(row.number), started, Code.RUN_CONFLICT)
    if refusal is not None:
        return refusal
    if canceled is not None and row.stopped_at_start:
        refusal = compare_carrier(state.opened(row.terminal), canceled, Code.RUN_CONFLICT)
        if refusal is not None:
            return refusal
    return Decided(
        StartResult(
            outcome=StartOutcome(row.outcome) if canceled is not None else None,
            parent_linked=result(state, row.link, run.session_id, inserted=False) if link is not None else None,
            started=result(state, row.number, run.session_id, inserted=False),
            canceled=result(state, row.terminal, run.session_id, inserted=False) if row.stopped_at_start else None,
        )
    )


def _same_identity(state: State, row: RunRow, run: RunStart) -> bool:
    plain = (
        row.agent_id == run.agent_id
        and row.session_id == run.session_id
        and row.parent_run_id == run.parent_run_id
        and row.predecessor_run_id == run.predecessor_run_id
        and row.started_at == run.started_at
    )
    # A purged run has no labels to compare with, and its session has been refused before.
    return plain and live_run(state, run.run_id) is not None and state.opened(row.number).private.labels == run.labels


def _predecessor(state: State, run: RunStart, elsewhere: Elsewhere) -> Refusal | None:
    """A predecessor must exist, be suspended, and have the run's session, agent and parent."""
    if not run.predecessor_run_id:
        return None
    row = live_run(state, run.predecessor_run_id)
    if row is None:
        if _exists(elsewhere.predecessor):
            return _continuation_mismatch(run, "belongs to another session")
        return run_not_found(run.predecessor_run_id)
    if row.status != RunStatus.SUSPENDED.value:
        return _continuation_mismatch(run, f"is {row.status}, not suspended")
    for name in ("session_id", "agent_id", "parent_run_id"):
        if getattr(row, name) != getattr(run, name):
            return _continuation_mismatch(run, f"has another {name}")
    return None


def _parent(state: State, run: RunStart, link: NewRecord, elsewhere: Elsewhere) -> RunRow | Refusal:
    """A new child's parent must exist, in the same session, own the link record, and be running."""
    row = live_run(state, run.parent_run_id)
    if row is None and not _exists(elsewhere.parent):
        return run_not_found(run.parent_run_id)
    if row is None or row.session_id != run.session_id:
        where = f"session {run.session_id!r}" if run.session_id else "no session"
        return refuse(
            Code.RUN_SESSION_MISMATCH,
            f"parent run {run.parent_run_id!r} is not in the session of run {run.run_id!r}, which has {where}",
            run_id=run.run_id,
            parent_run_id=run.parent_run_id,
            session_id=run.session_id,
        )
    if link.agent_id != row.agent_id:
        return owner_mismatch(link, row)
    if not row.running:
        return refuse(
            Code.RUN_NOT_ACTIVE,
            f"parent run {run.parent_run_id!r} is {row.status}, so it can start no new child",
            run_id=run.run_id,
            parent_run_id=run.parent_run_id,
        )
    if state.event_position(row, link.event_key) is not None:
        return record_conflict(link)
    return row


def _accept(
    state: State,
    command: Start,
    link: NewRecord | None,
    canceled: NewRecord | None,
    session: SessionRow | None,
    parent: RunRow | None,
    prepared: Prepared,
) -> Decided | Needs:
    """Write the start: the link on the parent, then `started`, then – ended session only – `canceled`."""
    run, started = command.run, command.started
    needs = _needs(state, command, prepared)
    if needs is not None:
        return needs
    stop = session is not None and session.status == SessionStatus.ENDED.value
    outcome = StartOutcome.STOP if stop else StartOutcome.PROCEED
    key_id = session.key_id if session is not None else parent.key_id if parent is not None else prepared.key_id
    position = state.next_position
    drafts: list[Draft] = []
    if link is not None:
        drafts.append(record_draft(link, key_id, child_run_id=run.run_id))
    drafts.append(
        record_draft(
            started,
            key_id,
            private=SealedContent(payload=started.payload, labels=dict(run.labels)),
            parent_run_id=run.parent_run_id,
            predecessor_run_id=run.predecessor_run_id,
            start_outcome=outcome.value,
        )
    )
    if stop and canceled is not None:
        drafts.append(record_draft(canceled, key_id, terminal_status=RunStatus.CANCELED.value))
    results = [result(state, position + index, run.session_id, inserted=True) for index in range(len(drafts))]
    return Decided(
        StartResult(
            outcome=outcome if canceled is not None else None,
            parent_linked=results[0] if link is not None else None,
            started=results[1 if link is not None else 0],
            canceled=results[-1] if stop else None,
        ),
        tuple(drafts),
    )


def _needs(state: State, command: Start, prepared: Prepared) -> Needs | None:
    """A new tree needs a data key; an ID whose directory entry lies elsewhere must be reserved first."""
    run_id = command.run.run_id
    reservation = state.directory_of(run_id) != state.partition and not prepared.reserved
    key_missing = isinstance(command, StartOneShotRun) and not prepared.key_id
    if not (reservation or key_missing):
        return None
    return Needs(data_key_of=tree_owner(run_id) if key_missing else "", reservation=reservation)


def _exists(run: RunElsewhere | None) -> bool:
    return run is not None and not run.purged


def _run_conflict(run: RunStart, why: str) -> Refusal:
    return refuse(Code.RUN_CONFLICT, f"run ID {run.run_id!r} {why}", run_id=run.run_id, session_id=run.session_id)


def _continuation_mismatch(run: RunStart, why: str) -> Refusal:
    return refuse(
        Code.CONTINUATION_MISMATCH,
        f"run {run.run_id!r} cannot continue run {run.predecessor_run_id!r}, which {why}",
        run_id=run.run_id,
        predecessor_run_id=run.predecessor_run_id,
    )
