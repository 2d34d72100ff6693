"""What a command writes, told in one form from its caller's side and from the log's, so that they can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from schemas.log_record import Kind, LogRecord, SealedContent
from schemas.refusals import Refused
from tests.contract.builders import Command
from tests.model import shapes
from tests.simulation.history import Counted, Violation

Json = dict[str, Any]

_SESSION_METHODS: Final = {
    Kind.SESSION_CREATED: "create_session",
    Kind.SESSION_ENDED: "end_session",
    Kind.SESSION_PURGED: "purge_session",
}


def describe(command: Command) -> tuple[tuple[Any, ...] | None, set[str]]:
    """What a command would write, and the names of the sessions and runs that its answer depends on."""
    args = command.args
    names: set[str] = set()
    run, record = args.get("run", {}), args.get("record", {})
    for session_id in (args.get("session_id"), run.get("session_id"), record.get("session_id")):
        if session_id:
            names.add(f"session {session_id}")
    named = ("run_id", "parent_run_id", "predecessor_run_id")
    for run_id in (args.get("run_id"), record.get("run_id"), *(run.get(name) for name in named)):
        if run_id:
            names.add(f"run {run_id}")
    try:
        return _content(command), names
    except Refused:
        return None, names


def _content(command: Command) -> tuple[Any, ...] | None:
    method, args = command
    if method in ("create_session", "end_session"):
        at = args["created_at" if method == "create_session" else "ended_at"]
        return (method, args["session_id"], shapes.time_ms(at, "time"))
    if method == "purge_session":
        return (method, args["session_id"])
    if method == "append_record":
        return ("append", sent(args["record"]))
    if method == "record_cancellation":
        return ("cancel", sent(args["record"]), args["reason"])
    if method in ("record_suspension", "repair_suspension"):
        checkpoint = shapes.checkpoint(args["checkpoint"])
        return ("suspend", sent(args["record"]), checkpoint["id"], checkpoint["data"])
    if method in ("record_terminal", "repair_terminal"):
        return ("terminal", sent(args["record"]), args["status"])
    if method.startswith("start_"):
        run = shapes.run_start(args["run"])
        link = sent(args["parent_linked"]) if "parent_linked" in args else None
        return ("start", _identity(run), link, sent(args["started"]))
    return None


def _identity(run: Json) -> tuple[Any, ...]:
    names = ("agent_id", "run_id", "session_id", "parent_run_id", "predecessor_run_id", "started_at")
    return (*(run[name] for name in names), tuple(sorted(run["labels"].items())))


def sent(record: Json) -> tuple[Any, ...]:
    """A record as its caller sends it."""
    return (
        record["event_key"],
        record["run_id"],
        record["agent_id"],
        record.get("session_id") or "",
        record.get("turn_id") or "",
        record["type"],
        shapes.time_ms(record["timestamp"], "timestamp"),
        record["payload"].encode(),
    )


def stored(record: LogRecord, private: SealedContent) -> tuple[Any, ...]:
    """The same record as the log holds it."""
    return (
        record.event_key,
        record.run_id,
        record.agent_id,
        record.session_id,
        record.turn_id,
        record.type,
        record.timestamp,
        private.payload,
    )


def content_of(counted: Counted) -> tuple[Any, ...]:
    """What a command in the log wrote, in the form of `describe`."""
    first, last = counted.records[0], counted.records[-1]
    method = _SESSION_METHODS.get(Kind(first.kind))
    if method is not None:
        return (method, first.session_id, *(() if method == "purge_session" else (first.timestamp,)))
    records = []
    for record, private in zip(counted.records, counted.private, strict=True):
        assert private is not None
        records.append(stored(record, private))
    private = counted.private[0]
    assert private is not None
    if first.type == "runtime.cancellation_intent":
        return ("cancel", records[0], private.reason)
    if first.type == "run_suspended":
        return ("suspend", records[0], private.checkpoint_id, private.checkpoint)
    if first.type == "run_completed":
        return ("terminal", records[0], last.terminal_status)
    if first.type not in ("run_started", "child_run_linked"):
        return ("append", records[0])
    index = 1 if first.type == "child_run_linked" else 0
    if len(records) <= index:
        raise Violation(f"partition {counted.partition}, position {counted.position}: a link without its start")
    started, content = counted.records[index], counted.private[index]
    assert content is not None
    identity = (
        started.agent_id,
        started.run_id,
        started.session_id,
        started.parent_run_id,
        started.predecessor_run_id,
        started.timestamp,
        tuple(sorted(content.labels.items())),
    )
    return ("start", identity, records[0] if index else None, records[index])


def names_of(records: Sequence[LogRecord]) -> set[str]:
    """The sessions and runs whose records these are."""
    sessions = {f"session {record.session_id}" for record in records if record.session_id}
    return sessions | {f"run {record.run_id}" for record in records if record.run_id}
