"""Well-formed arguments of every method, as a caller sends them."""

from __future__ import annotations

from typing import Any

from tests.service.fake import NOON_TEXT

Json = dict[str, Any]


def record_args(**changes: Any) -> Json:
    """A record; a field changed to `...` is left out."""
    fields: Json = {
        "event_key": "run-1/2",
        "run_id": "run-1",
        "agent_id": "demo.chat",
        "session_id": "sess-1",
        "turn_id": "turn-1",
        "type": "usage",
        "timestamp": NOON_TEXT,
        "payload": "{}",
    }
    return {name: value for name, value in (fields | changes).items() if value is not ...}


def run_args(**changes: Any) -> Json:
    """A run to start; a field changed to `...` is left out."""
    fields: Json = {
        "agent_id": "demo.chat",
        "run_id": "run-1",
        "session_id": "sess-1",
        "parent_run_id": "",
        "predecessor_run_id": "",
        "started_at": NOON_TEXT,
        "labels": {"tenant": "acme"},
    }
    return {name: value for name, value in (fields | changes).items() if value is not ...}


CHECKPOINT: Json = {"id": "cp-1", "data": "AAEC"}

ARGUMENTS: dict[str, Json] = {
    "create_session": {"session_id": "sess-1", "created_at": NOON_TEXT},
    "load_session": {"session_id": "sess-1"},
    "load_session_status": {"session_id": "sess-1"},
    "end_session": {"session_id": "sess-1", "ended_at": NOON_TEXT},
    "purge_session": {"session_id": "sess-1"},
    "list_runs_by_session": {"session_id": "sess-1", "statuses": ["running"]},
    "start_root_run": {"run": run_args(), "started": record_args(), "canceled": record_args()},
    "start_child_run": {
        "run": run_args(parent_run_id="run-0"),
        "parent_linked": record_args(run_id="run-0"),
        "started": record_args(),
        "canceled": record_args(),
    },
    "start_one_shot_run": {"run": run_args(session_id=...), "started": record_args(session_id=...)},
    "start_one_shot_child_run": {
        "run": run_args(session_id=..., parent_run_id="run-0"),
        "parent_linked": record_args(session_id=..., run_id="run-0"),
        "started": record_args(session_id=...),
    },
    "append_record": {"record": record_args()},
    "list_run_records": {"run_id": "run-1", "cursor": "", "limit": 10},
    "list_session_records": {"session_id": "sess-1", "limit": 10},
    "record_cancellation": {"run_id": "run-1", "reason": "user", "record": record_args()},
    "record_suspension": {"run_id": "run-1", "checkpoint": CHECKPOINT, "record": record_args()},
    "record_terminal": {"run_id": "run-1", "status": "completed", "record": record_args()},
    "repair_suspension": {"run_id": "run-1", "checkpoint": CHECKPOINT, "record": record_args()},
    "repair_terminal": {"run_id": "run-1", "status": "failed", "record": record_args()},
    "load_run": {"run_id": "run-1"},
    "load_checkpoint": {"run_id": "run-1"},
}

MEMORY_ARGUMENTS: dict[str, Json] = {
    "memory/append_events": {
        "agent_id": "demo.chat",
        "run_id": "run-1",
        "events": [{"type": "planner_note", "timestamp": NOON_TEXT, "data": "1.10", "labels": {"a": "b"}}],
    },
    "memory/load_run": {"agent_id": "demo.chat", "run_id": "run-1"},
    "memory/purge_run": {"agent_id": "demo.chat", "run_id": "run-1"},
}
