"""Faults in decisions on records and on the changes in a run's life."""

from __future__ import annotations

from typing import Final

from tests.simulation.planting import Planted

_APPEND: Final = "engine.decide.records:append_record"
_CANCELLATION: Final = "engine.decide.lifecycle:record_cancellation"
_SUSPENSION: Final = "engine.decide.lifecycle:record_suspension"
_TERMINAL: Final = "engine.decide.lifecycle:record_terminal"
_REPAIR_SUSPENSION: Final = "engine.decide.lifecycle:repair_suspension"
_REPAIR_TERMINAL: Final = "engine.decide.lifecycle:repair_terminal"
_COMPARE: Final = "engine.decide.common:compare_carrier"

RETRIES: Final = (
    Planted(
        "append-retry-compares-no-payload",
        "a record with another payload under a held event key is record_conflict",
        _APPEND,
        "if state.opened(held).record != record:",
        "from dataclasses import replace\n"
        "        stored = state.opened(held).record\n"
        "        if replace(stored, payload=record.payload) != record:",
    ),
    Planted(
        "append-retry-ignores-turn-id",
        "records are equal when their turns are equal too",
        _APPEND,
        "if state.opened(held).record != record:",
        "from dataclasses import replace\n"
        "        stored = state.opened(held).record\n"
        "        if replace(stored, turn_id=record.turn_id) != record:",
    ),
    Planted(
        "append-retry-ignores-timestamp",
        "records are equal when their timestamps are equal too",
        _APPEND,
        "if state.opened(held).record != record:",
        "from dataclasses import replace\n"
        "        stored = state.opened(held).record\n"
        "        if replace(stored, timestamp=record.timestamp) != record:",
    ),
    Planted(
        "append-retry-ignores-type",
        "records are equal when their types are equal too",
        _APPEND,
        "if state.opened(held).record != record:",
        "from dataclasses import replace\n"
        "        stored = state.opened(held).record\n"
        "        if replace(stored, type=record.type) != record:",
    ),
    Planted(
        "cancellation-retry-compares-no-payload",
        "a cancellation is repeated with the bytes of its record",
        _CANCELLATION,
        "return _retry(state, row.intent, record, Code.RUN_CANCELLATION_CONFLICT)",
        "from dataclasses import replace\n"
        "        record = replace(record, payload=state.opened(row.intent).record.payload)\n"
        "        return _retry(state, row.intent, record, Code.RUN_CANCELLATION_CONFLICT)",
    ),
    Planted(
        "suspension-retry-compares-no-payload",
        "a suspension is repeated with the bytes of its record",
        _SUSPENSION,
        "return _retry(state, row.terminal, command.record, Code.RUN_SUSPENSION_CONFLICT)",
        "from dataclasses import replace\n"
        "        record = replace(command.record, payload=state.opened(row.terminal).record.payload)\n"
        "        return _retry(state, row.terminal, record, Code.RUN_SUSPENSION_CONFLICT)",
    ),
    Planted(
        "terminal-retry-compares-no-payload",
        "a terminal change is repeated with the bytes of its record",
        _TERMINAL,
        "return _retry(state, row.terminal, command.record, Code.RUN_TERMINAL_CONFLICT)",
        "from dataclasses import replace\n"
        "        record = replace(command.record, payload=state.opened(row.terminal).record.payload)\n"
        "        return _retry(state, row.terminal, record, Code.RUN_TERMINAL_CONFLICT)",
    ),
    Planted(
        "carrier-retry-ignores-turn-id",
        "a change is repeated with the turn of its record",
        _COMPARE,
        "return None if stored.record == sent else",
        "from dataclasses import replace\n    return None if replace(stored.record, turn_id=sent.turn_id) == sent else",
    ),
    Planted(
        "carrier-retry-ignores-timestamp",
        "a change is repeated with the timestamp of its record",
        _COMPARE,
        "return None if stored.record == sent else",
        "from dataclasses import replace\n"
        "    return None if replace(stored.record, timestamp=sent.timestamp) == sent else",
    ),
    Planted(
        "carrier-retry-ignores-event-key",
        "repeating a change with another record is a conflict, even when everything else matches",
        _COMPARE,
        "if stored.record.event_key != sent.event_key:",
        "from dataclasses import replace\n"
        "    if replace(stored.record, event_key=sent.event_key) == sent:\n"
        "        return None\n"
        "    if stored.record.event_key != sent.event_key:",
    ),
    Planted(
        "suspension-retry-ignores-checkpoint-bytes",
        "a suspension with other checkpoint bytes is run_suspension_conflict",
        "engine.decide.lifecycle:_same_checkpoint",
        "return private.checkpoint_id == checkpoint.id and private.checkpoint == checkpoint.data",
        "return private.checkpoint_id == checkpoint.id",
    ),
    Planted(
        "terminal-retry-compares-no-status",
        "another terminal status is run_terminal_conflict before the record is compared",
        _TERMINAL,
        "if row.status != command.status.value:",
        "if row.status == RunStatus.SUSPENDED.value:",
    ),
    Planted(
        "exact-retry-on-a-terminal-run-refused",
        "an exact retry of a stored record still succeeds on a terminal run",
        _APPEND,
        "    held = state.event_position(row, record.event_key)\n",
        "    if not row.running:\n"
        "        return run_not_active(record, row)\n"
        "    held = state.event_position(row, record.event_key)\n",
    ),
)

CHANGES: Final = (
    Planted(
        "append-to-a-terminal-run-accepted",
        "a terminal run takes no new record",
        _APPEND,
        "if not row.running:",
        "if row.status == 'completed':",
    ),
    Planted(
        "append-says-inserted-for-a-retry",
        "an exact repeat is answered with inserted=false",
        _APPEND,
        "return Decided(result(state, held, record.session_id, inserted=False))",
        "return Decided(result(state, held, record.session_id, inserted=row.running))",
    ),
    Planted(
        "second-cancellation-reason-wins",
        "the first cancellation stores the reason, another one is run_cancellation_conflict",
        _CANCELLATION,
        "if stored_reason and stored_reason != command.reason:",
        "if row.stopped_at_start and stored_reason != command.reason:",
        (
            (
                _CANCELLATION,
                "if row.intent != NO_POSITION:",
                "if row.intent != NO_POSITION and stored_reason == command.reason:",
            ),
        ),
    ),
    Planted(
        "cancellation-of-a-terminal-run-accepted",
        "a terminal run without an intent takes none",
        _CANCELLATION,
        "if not row.running:",
        "if row.stopped_at_start:",
    ),
    Planted(
        "stopped-start-has-no-reason",
        "another reason for a run stopped at its start is run_cancellation_conflict",
        _CANCELLATION,
        "stored_reason = cancellation_reason(row, state.opened)",
        "stored_reason = cancellation_reason(row, state.opened) if row.intent != NO_POSITION else ''",
    ),
    Planted(
        "engine-canceled-run-tells-session-ended",
        "a run that the engine canceled has no cancellation reason",
        "engine.decide.common:cancellation_reason",
        "return REASON_SESSION_ENDED if row.stopped_at_start else ''".replace("''", '""'),
        'return REASON_SESSION_ENDED if row.status == "canceled" else ""',
    ),
    Planted(
        "reason-forgotten-at-the-end",
        "a run with an intent may complete, and its reason stays",
        "engine.decide.common:cancellation_reason",
        "if row.intent != NO_POSITION:",
        "if row.intent != NO_POSITION and row.running:",
    ),
    Planted(
        "terminal-canceled-without-intent-takes-any-reason",
        "where no reason is stored, a canceled record's is engine_canceled",
        "engine.decide.lifecycle:_matches_run",
        "if payload.status is not RunStatus.CANCELED:",
        "if payload.status is not RunStatus.CANCELED or row.intent == NO_POSITION:",
    ),
    Planted(
        "terminal-canceled-reason-is-not-the-stored-one",
        "a canceled record's reason equals the stored cancellation reason",
        "engine.decide.lifecycle:_matches_run",
        "if payload.reason != (cancellation_reason(row, state.opened) or REASON_ENGINE_CANCELED):",
        "if payload.reason not in (cancellation_reason(row, state.opened), REASON_ENGINE_CANCELED):",
    ),
    Planted(
        "terminal-without-labels-passes",
        "a terminal record's labels equal the run's",
        "engine.decide.lifecycle:_matches_run",
        "if payload.labels != state.opened(row.number).private.labels:",
        "if payload.labels and payload.labels != state.opened(row.number).private.labels:",
    ),
    Planted(
        "terminal-under-a-held-event-key",
        "an event key is unique in its run",
        "engine.decide.lifecycle:_end",
        "if state.event_position(row, record.event_key) is not None:",
        "if state.event_position(row, record.event_key) == row.intent:",
    ),
    Planted(
        "suspension-under-a-held-event-key",
        "an event key is unique in its run",
        "engine.decide.lifecycle:_suspend",
        "if state.event_position(row, record.event_key) is not None:",
        "if state.event_position(row, record.event_key) == row.number:",
    ),
    Planted(
        "repair-terminal-overwrites",
        "a repair writes only while the run is still running",
        _REPAIR_TERMINAL,
        "if row.running:",
        "if row.status != command.status.value:",
    ),
    Planted(
        "repair-suspension-overwrites",
        "a repair writes only while the run is still running",
        _REPAIR_SUSPENSION,
        "if row.running:",
        "if row.status != RunStatus.SUSPENDED.value:",
    ),
    Planted(
        "repair-with-another-record-already-stored",
        "already_stored means that this exact record owns the state",
        _REPAIR_TERMINAL,
        "same = row.status == command.status.value and state.opened(row.terminal).record == command.record",
        "same = row.status == command.status.value",
    ),
    Planted(
        "repair-of-the-same-record-different-terminal",
        "the exact record that owns the state is already_stored",
        _REPAIR_SUSPENSION,
        "and state.opened(row.terminal).record == command.record",
        "and state.opened(row.terminal).record is command.record",
    ),
    Planted(
        "suspension-of-a-terminal-run-accepted",
        "a suspension of a run in another terminal state is run_terminal_conflict",
        _SUSPENSION,
        "if not row.running:",
        "if row.status == RunStatus.COMPLETED.value:",
    ),
    Planted(
        "owner-of-a-record-unchecked",
        "a record of another agent is record_owner_mismatch",
        "engine.decide.common:existing_run",
        "if record.agent_id != row.agent_id or record.session_id != row.session_id:",
        "if record.session_id != row.session_id:",
    ),
    Planted(
        "write-under-a-purged-session-finds-no-run",
        "every later write under a purged session fails with session_purged",
        "engine.decide.common:existing_run",
        "if names_purged_session(state, record.session_id, elsewhere):",
        "if elsewhere.session_purged:",
    ),
    Planted(
        "session-status-of-a-new-record-active",
        "the session status in any answer is the current one",
        "engine.decide.common:result",
        "session_status=session_status(state, session_id),",
        "session_status=SessionStatus.ACTIVE if inserted and session_id else session_status(state, session_id),",
    ),
)
