"""Faults in decisions on sessions and starts."""

from __future__ import annotations

from typing import Final

from tests.simulation.planting import Planted

_SAME_ID: Final = "engine.decide.starts:_same_id"
_PREDECESSOR: Final = "engine.decide.starts:_predecessor"
_PARENT: Final = "engine.decide.starts:_parent"
_ACCEPT: Final = "engine.decide.starts:_accept"

SESSIONS: Final = (
    Planted(
        "create-overwrites-created-at",
        "an active session is answered as it is; the stored created_at wins",
        "engine.decide.sessions:create_session",
        "    if row is not None:\n        return Decided",
        "    if row is not None and row.created_at == command.created_at:\n        return Decided",
    ),
    Planted(
        "create-answers-an-ended-session",
        "creating an ended session is session_ended",
        "engine.decide.sessions:create_session",
        "if row is not None and row.status == SessionStatus.ENDED.value:",
        "if row is not None and row.status == SessionStatus.ENDED.value and row.running:",
    ),
    Planted(
        "purged-session-revived",
        "a purged session never comes back",
        "engine.decide.sessions:create_session",
        "    if row is not None and row.purged:\n        return purged_refusal(session_id)\n",
        "    if row is not None and row.purged:\n        row = None\n",
    ),
    Planted(
        "end-overwrites-ended-at",
        "an ended session is answered unchanged",
        "engine.decide.sessions:end_session",
        "if row.status == SessionStatus.ENDED.value:",
        "if row.status == SessionStatus.ENDED.value and row.ended_at == command.ended_at:",
    ),
    Planted(
        "purge-of-an-active-session",
        "purging an active session is session_active",
        "engine.decide.sessions:purge_session",
        "if row.status == SessionStatus.ACTIVE.value:",
        "if row.status == SessionStatus.ACTIVE.value and row.running:",
    ),
    Planted(
        "purge-with-a-running-run",
        "purging an ended session with a running run is session_has_active_runs",
        "engine.decide.sessions:purge_session",
        "if row.running:",
        "if row.running > 1:",
    ),
)

STARTS: Final = (
    Planted(
        "start-retry-compares-no-payload",
        "a start is repeated with the bytes of its record",
        _SAME_ID,
        "refusal = compare_carrier(state.opened(row.number), started, Code.RUN_CONFLICT)",
        "from dataclasses import replace\n"
        "    started = replace(started, payload=state.opened(row.number).record.payload)\n"
        "    refusal = compare_carrier(state.opened(row.number), started, Code.RUN_CONFLICT)",
    ),
    Planted(
        "link-retry-compares-no-payload",
        "a child's start is repeated with the bytes of its link",
        _SAME_ID,
        "refusal = compare_carrier(state.opened(row.link), link, Code.RUN_CONFLICT)",
        "from dataclasses import replace\n"
        "        link = replace(link, payload=state.opened(row.link).record.payload)\n"
        "        refusal = compare_carrier(state.opened(row.link), link, Code.RUN_CONFLICT)",
    ),
    Planted(
        "canceled-retry-compares-no-payload",
        "a stopped start is repeated with the bytes of its canceled record",
        _SAME_ID,
        "refusal = compare_carrier(state.opened(row.terminal), canceled, Code.RUN_CONFLICT)",
        "from dataclasses import replace\n"
        "        canceled = replace(canceled, payload=state.opened(row.terminal).record.payload)\n"
        "        refusal = compare_carrier(state.opened(row.terminal), canceled, Code.RUN_CONFLICT)",
    ),
    Planted(
        "start-retry-ignores-labels",
        "a start with other labels is run_conflict",
        "engine.decide.starts:_same_identity",
        " and state.opened(row.number).private.labels == run.labels",
        "",
    ),
    Planted(
        "start-retry-ignores-started-at",
        "a start at another time is run_conflict",
        "engine.decide.starts:_same_identity",
        "        and row.started_at == run.started_at\n",
        "",
    ),
    Planted(
        "start-retry-ignores-agent",
        "a start of another agent is run_conflict",
        "engine.decide.starts:_same_identity",
        "row.agent_id == run.agent_id\n        and ",
        "",
    ),
    Planted(
        "start-retry-tells-the-current-status",
        "a start result reports the original decision, never the run's current status",
        _SAME_ID,
        "outcome=StartOutcome(row.outcome) if canceled is not None else None,",
        'outcome=StartOutcome("stop" if row.status == "canceled" else "proceed") if canceled is not None else None,',
    ),
    Planted(
        "start-retry-stops-once-the-session-ended",
        "a start's decision never changes",
        _SAME_ID,
        "outcome=StartOutcome(row.outcome) if canceled is not None else None,",
        "outcome=StartOutcome("
        '"stop" if state.session(run.session_id).status == SessionStatus.ENDED.value else row.outcome'
        ") if canceled is not None else None,",
    ),
    Planted(
        "canceled-compared-though-not-stored",
        "the canceled record is part of what a retry must repeat only when it was stored",
        _SAME_ID,
        "if canceled is not None and row.stopped_at_start:",
        "if canceled is not None and row.terminal >= 0:",
    ),
    Planted(
        "canceled-not-compared-when-stored",
        "a stopped start is repeated with its canceled record",
        _SAME_ID,
        "if canceled is not None and row.stopped_at_start:",
        "if canceled is not None and link is not None and row.stopped_at_start:",
    ),
    Planted(
        "root-start-in-an-ended-session-proceeds",
        "once a session has ended, no later start in it proceeds",
        _ACCEPT,
        "stop = session is not None and",
        "stop = session is not None and link is not None and",
    ),
    Planted(
        "child-start-in-an-ended-session-proceeds",
        "once a session has ended, no later start in it proceeds",
        _ACCEPT,
        "stop = session is not None and",
        "stop = session is not None and link is None and",
    ),
    Planted(
        "stopped-start-stores-no-canceled-record",
        "a start in an ended session stores its canceled record too",
        _ACCEPT,
        "if stop and canceled is not None:",
        "if stop and canceled is None:",
    ),
    Planted(
        "start-in-a-purged-session-checked-late",
        "a start under a purged session is session_purged",
        "engine.decide.starts:decide_start",
        "if names_purged_session(state, run.session_id, elsewhere):",
        "if elsewhere.session_purged:",
    ),
    Planted(
        "exact-child-retry-refused-after-the-parent-stopped",
        "an exact retry of an accepted child start stays valid after the parent stops",
        _SAME_ID,
        "    if link is not None:\n",
        "    if link is not None and not state.run(run.parent_run_id).running:\n"
        '        return refuse(Code.RUN_NOT_ACTIVE, "the parent runs no more", run_id=run.run_id)\n'
        "    if link is not None:\n",
    ),
    Planted(
        "child-of-a-stopped-parent-accepted",
        "a new child's parent is still running",
        _PARENT,
        "if not row.running:",
        "if row.stopped_at_start:",
    ),
    Planted(
        "child-of-a-parent-in-another-session",
        "a new child's parent is in the same session",
        _PARENT,
        "if row is None or row.session_id != run.session_id:",
        "if row is None:",
    ),
    Planted(
        "link-of-another-agent",
        "a link's agent is the parent's",
        _PARENT,
        "    if link.agent_id != row.agent_id:\n        return owner_mismatch(link, row)\n",
        "",
    ),
    Planted(
        "link-under-a-held-event-key",
        "an event key is unique in its run",
        _PARENT,
        "if state.event_position(row, link.event_key) is not None:",
        "if state.event_position(row, link.event_key) == row.number:",
    ),
    Planted(
        "parent-checked-before-predecessor",
        "the order of the checks: predecessor, then parent",
        "engine.decide.starts:decide_start",
        "    refusal = _predecessor(state, run, elsewhere)\n",
        "    if link is not None and isinstance(found := _parent(state, run, link, elsewhere), Refusal):\n"
        "        return found\n"
        "    refusal = _predecessor(state, run, elsewhere)\n",
    ),
    Planted(
        "continuation-of-a-running-run",
        "a predecessor is suspended",
        _PREDECESSOR,
        "if row.status != RunStatus.SUSPENDED.value:",
        "if row.status not in (RunStatus.SUSPENDED.value, RunStatus.RUNNING.value):",
    ),
    Planted(
        "continuation-of-another-agents-run",
        "a predecessor has the successor's agent",
        _PREDECESSOR,
        '("session_id", "agent_id", "parent_run_id")',
        '("session_id", "parent_run_id")',
    ),
    Planted(
        "continuation-under-another-parent",
        "a predecessor has the successor's parent",
        _PREDECESSOR,
        '("session_id", "agent_id", "parent_run_id")',
        '("session_id", "agent_id")',
    ),
    Planted(
        "continuation-mismatch-still-writes-the-link",
        "a mismatch of the predecessor writes nothing, no parent link either",
        "engine.decide.starts:decide_start",
        "    if refusal is not None:\n        return refusal\n",
        "    if refusal is not None:\n"
        "        parent = live_run(state, run.parent_run_id) if link is not None else None\n"
        "        if parent is not None and state.event_position(parent, link.event_key) is None:\n"
        "            return Decided(refusal, (record_draft(link, parent.key_id, child_run_id=run.run_id),))\n"
        "        return refusal\n",
    ),
)
