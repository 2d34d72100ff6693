"""The store in plain dictionaries: what every real one must answer, command by command.

It knows no log, no partitions and no concurrency: commands come one after the other and each is done at once. It shares
no code with the real stores but the names of the refusals. `call` and `get` take and give what the HTTP interface does.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from schemas.refusals import Code, Refusal, Refused
from tests.model import shapes
from tests.model.consumers import ModelConsumers
from tests.model.replays import VIEWS, Replays
from tests.model.shapes import Json, need

LENGTH_OF_A_VIEW = 4  # v1, runs, the ID, the view's name


@dataclass
class Run:
    """A run: how it was started, where it stands, and which record carried each change of it."""

    start: Json
    outcome: str
    status: str = "running"
    reason: str = ""
    updated_at: int = 0
    records: dict[str, Json] = field(default_factory=dict)  # by event key, in order
    started_key: str = ""
    link_key: str = ""
    intent_key: str = ""
    terminal_key: str = ""
    checkpoint: Json | None = None

    def meta(self) -> Json:
        """The run as it is shown."""
        names = ("agent_id", "run_id", "session_id", "parent_run_id", "labels")
        return {
            **{name: self.start[name] for name in names},
            "status": self.status,
            "start_outcome": self.outcome,
            "started_at": shapes.time_text(self.start["started_at"]),
            "updated_at": shapes.time_text(self.updated_at),
            "cancellation_reason": self.reason,
        }


class WouldChange(Exception):
    """Raised instead of the first change of a command, where the model was asked and not told."""


def refused(code: Code, **ids: str) -> Refused:
    """A refusal that names the IDs involved."""
    return Refused(Refusal(code, f"{code.value}: {ids}", ids))


class Reference:
    """All sessions, runs and records, and one method for each call of the interface."""

    def __init__(self, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self.now_ms = now_ms
        self.asked = False  # True: a command that would change anything raises `WouldChange` and changes nothing
        self.sessions: dict[str, Json] = {}
        self.purged_sessions: set[str] = set()
        self.runs: dict[str, Run] = {}  # in start order
        self.purged_runs: set[str] = set()
        self.log: list[Json] = []
        self.memories: dict[tuple[str, str], list[list[Json]]] = {}  # by agent and run, append by append
        self.consumers = ModelConsumers(self.scoped)
        self.cursors: dict[str, tuple[str, str]] = {}  # cursor -> subject, ID of the last record read

    async def call(self, method: str, args: Json) -> Json:
        """Do one method of the store, or raise `Refused`."""
        return self.apply(method, args)

    def apply(self, method: str, args: Json) -> Json:
        """The same, at once."""
        handler: Callable[[Json], Json] | None = getattr(self, f"do_{method.replace('/', '_')}", None)
        if handler is None:
            raise shapes.invalid(f"no method {method}")
        return handler(args)

    def changing(self) -> None:
        """Called by every command before its first change."""
        if self.asked:
            raise WouldChange

    # Sessions

    def do_create_session(self, args: Json) -> Json:
        args = shapes.fields(args, "arguments", "session_id", "created_at")
        session_id = shapes.identifier(args.get("session_id"), "session_id")
        created_at = shapes.time_ms(args.get("created_at"), "created_at")
        self.refuse_purged(session_id)
        if session_id not in self.sessions:
            self.changing()
            created = {"id": session_id, "status": "active", "created_at": shapes.time_text(created_at)}
            self.sessions[session_id] = created
        session = self.sessions[session_id]
        if session["status"] == "ended":
            raise refused(Code.SESSION_ENDED, session_id=session_id)
        return {"session": dict(session)}

    def do_load_session(self, args: Json) -> Json:
        args = shapes.fields(args, "arguments", "session_id")
        return {"session": dict(self.session(shapes.identifier(args.get("session_id"), "session_id")))}

    def do_load_session_status(self, args: Json) -> Json:
        args = shapes.fields(args, "arguments", "session_id")
        return {"status": self.session(shapes.optional_identifier(args.get("session_id"), "session_id"))["status"]}

    def do_end_session(self, args: Json) -> Json:
        args = shapes.fields(args, "arguments", "session_id", "ended_at")
        session_id = shapes.identifier(args.get("session_id"), "session_id")
        ended_at = shapes.time_ms(args.get("ended_at"), "ended_at")
        session = self.session(session_id)
        if session["status"] == "active":
            self.changing()
            session.update(status="ended", ended_at=shapes.time_text(ended_at))
        return {"session": dict(session)}

    def do_purge_session(self, args: Json) -> Json:
        args = shapes.fields(args, "arguments", "session_id")
        session_id = shapes.identifier(args.get("session_id"), "session_id")
        if session_id in self.purged_sessions:
            return {}
        if self.session(session_id)["status"] == "active":
            raise refused(Code.SESSION_ACTIVE, session_id=session_id)
        runs = self.runs_of(session_id)
        if any(run.status == "running" for run in runs):
            raise refused(Code.SESSION_HAS_ACTIVE_RUNS, session_id=session_id)
        self.changing()
        for run in runs:
            self.purged_runs.add(run.start["run_id"])
            del self.runs[run.start["run_id"]]
        self.log = [record for record in self.log if record["session_id"] != session_id]
        self.purged_sessions.add(session_id)
        del self.sessions[session_id]
        return {}

    def do_list_runs_by_session(self, args: Json) -> Json:
        args = shapes.fields(args, "arguments", "session_id", "statuses")
        session_id = shapes.identifier(args.get("session_id"), "session_id")
        wanted = args.get("statuses") or []
        need(isinstance(wanted, list) and all(item in shapes.STATUSES for item in wanted), "an unknown status")
        self.session(session_id)
        return {"runs": [run.meta() for run in self.runs_of(session_id) if not wanted or run.status in wanted]}

    # Starts

    def do_start_root_run(self, args: Json) -> Json:
        return self.start(**shapes.start(args, sessionful=True, child=False))

    def do_start_child_run(self, args: Json) -> Json:
        return self.start(**shapes.start(args, sessionful=True, child=True))

    def do_start_one_shot_run(self, args: Json) -> Json:
        return self.start(**shapes.start(args, sessionful=False, child=False))

    def do_start_one_shot_child_run(self, args: Json) -> Json:
        return self.start(**shapes.start(args, sessionful=False, child=True))

    def start(self, run: Json, started: Json, parent_linked: Json | None = None, canceled: Json | None = None) -> Json:
        """Start a run, repeat the answer of its first start, or refuse; the order of the checks is part of the law."""
        run_id, session_id = run["run_id"], run["session_id"]
        self.refuse_purged(session_id)
        if run_id in self.purged_runs:
            raise refused(Code.RUN_CONFLICT, run_id=run_id)
        if run_id in self.runs:
            return self.started_before(self.runs[run_id], run, started, parent_linked, canceled)
        if session_id:
            self.session(session_id)
        if run["predecessor_run_id"]:
            before = self.run(run["predecessor_run_id"])
            same = all(before.start[name] == run[name] for name in ("session_id", "agent_id", "parent_run_id"))
            if not same or before.status != "suspended":
                raise refused(Code.CONTINUATION_MISMATCH, run_id=run_id, predecessor_run_id=run["predecessor_run_id"])
        if parent_linked is not None:
            self.check_parent(run, parent_linked)

        self.changing()
        stopped = session_id != "" and self.sessions[session_id]["status"] == "ended"
        new = Run(run, "stop" if stopped else "proceed", started_key=started["event_key"])
        self.runs[run_id] = new
        if parent_linked is not None:
            new.link_key = parent_linked["event_key"]
            self.write(self.runs[run["parent_run_id"]], parent_linked)
        self.write(new, started)
        if stopped and canceled is not None:
            new.status, new.reason, new.terminal_key = "canceled", "session_ended", canceled["event_key"]
            self.write(new, canceled)
        return self.start_result(new, inserted=True)

    def check_parent(self, run: Json, link: Json) -> None:
        """What a child's start asks of its parent."""
        parent = self.run(run["parent_run_id"])
        ids = {"run_id": run["run_id"], "parent_run_id": run["parent_run_id"]}
        if parent.start["session_id"] != run["session_id"]:
            raise refused(Code.RUN_SESSION_MISMATCH, **ids)
        if parent.start["agent_id"] != link["agent_id"]:
            raise refused(Code.RECORD_OWNER_MISMATCH, **ids)
        if parent.status != "running":
            raise refused(Code.RUN_NOT_ACTIVE, **ids)
        if link["event_key"] in parent.records:
            raise refused(Code.RECORD_CONFLICT, **ids)

    def started_before(self, old: Run, run: Json, started: Json, link: Json | None, canceled: Json | None) -> Json:
        """An exact repeat answers what the first start was answered; anything else is a conflict."""
        ids = {"run_id": run["run_id"]}
        if old.start != run:
            raise refused(Code.RUN_CONFLICT, **ids)
        carried = [(old.started_key, old, started)]
        if link is not None:
            carried.insert(0, (old.link_key, self.runs[run["parent_run_id"]], link))
        if canceled is not None and old.outcome == "stop":
            carried.append((old.terminal_key, old, canceled))
        for key, owner, record in carried:
            if record["event_key"] != key:
                raise refused(Code.RUN_CONFLICT, **ids, event_key=record["event_key"])
            if not equal(owner.records[key], record):
                raise refused(Code.RECORD_CONFLICT, **ids, event_key=key)
        return self.start_result(old, inserted=False)

    def start_result(self, run: Run, *, inserted: bool) -> Json:
        """Where the records of a start are, and what it decided."""
        result: Json = {"started": self.result(run, run.started_key, inserted=inserted)}
        if run.start["session_id"]:
            result["outcome"] = run.outcome
        if run.link_key:
            parent = self.runs[run.start["parent_run_id"]]
            result["parent_linked"] = self.result(parent, run.link_key, inserted=inserted)
        if run.outcome == "stop":
            result["canceled"] = self.result(run, run.terminal_key, inserted=inserted)
        return result

    # Records

    def do_append_record(self, args: Json) -> Json:
        args = shapes.fields(args, "arguments", "record")
        record = shapes.new_record(args.get("record"), "record")
        run = self.owner_of(record)
        if record["event_key"] in run.records:
            return self.repeated(run, record)
        if run.status != "running":
            raise refused(Code.RUN_NOT_ACTIVE, run_id=record["run_id"])
        self.changing()
        return self.write(run, record)

    def do_list_run_records(self, args: Json) -> Json:
        args = shapes.fields(args, "arguments", "run_id", "cursor", "limit")
        run_id = shapes.identifier(args.get("run_id"), "run_id")
        limit = shapes.whole(args.get("limit"), "limit", 1, 1000)
        self.run(run_id)
        mine = [record for record in self.log if record["run_id"] == run_id]
        return self.page(f"run:{run_id}", mine, args.get("cursor"), limit)

    def do_list_session_records(self, args: Json) -> Json:
        args = shapes.fields(args, "arguments", "session_id", "cursor", "limit")
        session_id = shapes.identifier(args.get("session_id"), "session_id")
        limit = shapes.whole(args.get("limit"), "limit", 1, 1000)
        self.session(session_id)
        mine = [record for record in self.log if record["session_id"] == session_id]
        return self.page(f"session:{session_id}", mine, args.get("cursor"), limit)

    def page(self, subject: str, records: list[Json], cursor: object, limit: int, types: str = "") -> Json:
        """The records after a cursor; the cursor answered stands for the last record that was read."""
        after = ""
        if shapes.text(cursor, "cursor"):
            if self.cursors.get(str(cursor), ("",))[0] != subject:
                raise Refused(Refusal(Code.INVALID_CURSOR, f"no cursor of {subject}"))
            after = self.cursors[str(cursor)][1]
        rest = [record for record in records if record["id"] > after]
        rest = [record for record in rest if not types or record["type"] in types.split(",")]
        shown, more = rest[:limit], rest[limit:]
        next_cursor = ""
        if more:
            next_cursor = hashlib.sha256(f"{subject} {shown[-1]['id']}".encode()).hexdigest()
            self.cursors[next_cursor] = (subject, shown[-1]["id"])
        timed = [{**record, "timestamp": shapes.time_text(record["timestamp"])} for record in shown]
        return {"records": timed, "next_cursor": next_cursor}

    # Changes of a run

    def do_record_cancellation(self, args: Json) -> Json:
        args = shapes.change(args, "runtime.cancellation_intent", "reason")
        record, reason = args["record"], shapes.type_text(args.get("reason"), "reason", shapes.KIB)
        need(shapes.lifecycle(record)["reason"] == reason, "record has another reason")
        run = self.owner_of(record)
        if run.intent_key:
            if reason != run.reason or record["event_key"] != run.intent_key:
                raise refused(Code.RUN_CANCELLATION_CONFLICT, run_id=record["run_id"])
            return self.repeated(run, record)
        if run.outcome == "stop" and reason != run.reason:
            raise refused(Code.RUN_CANCELLATION_CONFLICT, run_id=record["run_id"])
        self.refuse_held_key(run, record)
        if run.status != "running":
            raise refused(Code.RUN_NOT_ACTIVE, run_id=record["run_id"])
        self.changing()
        run.reason, run.intent_key = reason, record["event_key"]
        return self.write(run, record)

    def do_record_suspension(self, args: Json) -> Json:
        record, checkpoint = self.suspension(args)
        run = self.owner_of(record)
        if run.status == "suspended":
            if checkpoint != run.checkpoint or record["event_key"] != run.terminal_key:
                raise refused(Code.RUN_SUSPENSION_CONFLICT, run_id=record["run_id"])
            return self.repeated(run, record)
        if run.status != "running":
            raise refused(Code.RUN_TERMINAL_CONFLICT, run_id=record["run_id"])
        return self.suspend(run, record, checkpoint)

    def do_record_terminal(self, args: Json) -> Json:
        record, status = self.ending(args)
        run = self.owner_of(record)
        if run.status != "running":
            if status != run.status or record["event_key"] != run.terminal_key:
                raise refused(Code.RUN_TERMINAL_CONFLICT, run_id=record["run_id"])
            return self.repeated(run, record)
        return self.end(run, record, status)

    def do_repair_suspension(self, args: Json) -> Json:
        record, checkpoint = self.suspension(args)
        run = self.owner_of(record)
        if run.status != "running":
            return self.repaired(run, record, same=checkpoint == run.checkpoint)
        return {"append": self.suspend(run, record, checkpoint), "outcome": "stored", "status": "suspended"}

    def do_repair_terminal(self, args: Json) -> Json:
        record, status = self.ending(args)
        run = self.owner_of(record)
        if run.status != "running":
            return self.repaired(run, record, same=True)
        return {"append": self.end(run, record, status), "outcome": "stored", "status": status}

    # Named consumers

    async def send(self, verb: str, path: str, body: Any = None) -> Json:
        """Make, commit or delete a consumer."""
        _, _, name, *rest = [unquote(part) for part in path.strip("/").split("/")]
        return self.consumers.send(verb, name, "/".join(rest), body)

    async def consume(self, name: str, cursor: str = "") -> list[tuple[str, Json]]:
        """What a consumer's stream gives up to now, each record with its cursor."""
        return [
            (at, {**each, "timestamp": shapes.time_text(each["timestamp"])})
            for at, each in self.consumers.consume(name, cursor)
        ]

    def scoped(self, kind: str, subject: str) -> list[Json]:
        """The records of a consumer's scope; refused where that is not there."""
        if kind == "session":
            self.session(subject)
        elif kind == "run":
            self.run(subject)
        return [each for each in self.log if kind == "all" or each[f"{kind}_id"] == subject]

    # Product memory

    def do_memory_append_events(self, args: Json) -> Json:
        args = shapes.fields(args, "arguments", "agent_id", "run_id", "events")
        appends = self.memories.get(shapes.memory(args), [])
        events = shapes.memory_events(args.get("events"))
        if events and events not in appends:
            self.changing()
            self.memories[shapes.memory(args)] = [*appends, events]
        return {}

    def do_memory_load_run(self, args: Json) -> Json:
        agent_id, run_id = shapes.memory(shapes.fields(args, "arguments", "agent_id", "run_id"))
        events = [event for append in self.memories.get((agent_id, run_id), []) for event in append]
        timed = [{**event, "timestamp": shapes.time_text(event["timestamp"])} for event in events]
        return {"agent_id": agent_id, "run_id": run_id, "events": timed}

    def do_memory_purge_run(self, args: Json) -> Json:
        memory = shapes.memory(shapes.fields(args, "arguments", "agent_id", "run_id"))
        if memory in self.memories:
            self.changing()
            del self.memories[memory]
        return {}

    def suspension(self, args: Json) -> tuple[Json, Json]:
        """The shape of a suspension: its record, and the checkpoint that the record names."""
        args = shapes.change(args, "run_suspended", "checkpoint")
        checkpoint = shapes.checkpoint(args.get("checkpoint"))
        need(shapes.lifecycle(args["record"])["SuspensionID"] == checkpoint["id"], "record names another checkpoint")
        return args["record"], checkpoint

    def ending(self, args: Json) -> tuple[Json, str]:
        """The shape of an ending: its record, and the status that the record tells."""
        args = shapes.change(args, "run_completed", "status")
        status = shapes.text(args.get("status"), "status")
        need(status in shapes.OUTCOME_OF, "status is none that ends a run")
        need(shapes.lifecycle(args["record"])["status"] == shapes.OUTCOME_OF[status], "record has another status")
        return args["record"], status

    def suspend(self, run: Run, record: Json, checkpoint: Json) -> Json:
        """Suspend a running run."""
        self.refuse_held_key(run, record)
        self.changing()
        run.status, run.checkpoint, run.terminal_key = "suspended", checkpoint, record["event_key"]
        return self.write(run, record)

    def end(self, run: Run, record: Json, status: str) -> Json:
        """End a running run."""
        self.refuse_held_key(run, record)
        told = shapes.lifecycle(record)
        need(told["labels"] == run.start["labels"], "record has other labels than the run")
        need(status != "canceled" or told["reason"] == (run.reason or "engine_canceled"), "record has another reason")
        self.changing()
        run.status, run.terminal_key = status, record["event_key"]
        return self.write(run, record)

    def repaired(self, run: Run, record: Json, *, same: bool) -> Json:
        """What a repair says of a run that no longer runs."""
        if same and record["event_key"] == run.terminal_key and equal(run.records[run.terminal_key], record):
            append = self.result(run, run.terminal_key, inserted=False)
            return {"outcome": "already_stored", "status": run.status, "append": append}
        return {"outcome": "different_terminal", "status": run.status}

    def do_load_run(self, args: Json) -> Json:
        args = shapes.fields(args, "arguments", "run_id")
        return {"run": self.run(shapes.identifier(args.get("run_id"), "run_id")).meta()}

    def do_load_checkpoint(self, args: Json) -> Json:
        args = shapes.fields(args, "arguments", "run_id")
        run = self.run(shapes.identifier(args.get("run_id"), "run_id"))
        if run.checkpoint is None:
            raise refused(Code.RUN_SUSPENSION_NOT_FOUND, run_id=run.start["run_id"])
        return {"checkpoint": {"id": run.checkpoint["id"], "data": base64.b64encode(run.checkpoint["data"]).decode()}}

    # What the methods share

    def refuse_purged(self, session_id: str) -> None:
        if session_id in self.purged_sessions:
            raise refused(Code.SESSION_PURGED, session_id=session_id)

    def session(self, session_id: str) -> Json:
        self.refuse_purged(session_id)
        if session_id not in self.sessions:
            raise refused(Code.SESSION_NOT_FOUND, session_id=session_id)
        return self.sessions[session_id]

    def run(self, run_id: str) -> Run:
        if run_id not in self.runs:
            raise refused(Code.RUN_NOT_FOUND, run_id=run_id)
        return self.runs[run_id]

    def runs_of(self, session_id: str) -> list[Run]:
        return [run for run in self.runs.values() if run.start["session_id"] == session_id]

    def owner_of(self, record: Json) -> Run:
        """The run that a record belongs to, if it is who the record says."""
        self.refuse_purged(record["session_id"])
        run = self.run(record["run_id"])
        if any(run.start[name] != record[name] for name in ("agent_id", "session_id")):
            raise refused(Code.RECORD_OWNER_MISMATCH, run_id=record["run_id"])
        return run

    def refuse_held_key(self, run: Run, record: Json) -> None:
        if record["event_key"] in run.records:
            raise refused(Code.RECORD_CONFLICT, run_id=record["run_id"], event_key=record["event_key"])

    def repeated(self, run: Run, record: Json) -> Json:
        """The answer to a record whose event key is known: the first one's ID if it is the same record."""
        if not equal(run.records[record["event_key"]], record):
            raise refused(Code.RECORD_CONFLICT, run_id=record["run_id"], event_key=record["event_key"])
        return self.result(run, record["event_key"], inserted=False)

    def write(self, run: Run, record: Json) -> Json:
        """Add a record to the log and to its run."""
        stored = {"id": self.next_id(record), **record}
        self.log.append(stored)
        run.records[record["event_key"]] = stored
        if record["type"] in shapes.CHANGES:
            run.updated_at = self.now_ms()
        return self.result(run, record["event_key"], inserted=True)

    def next_id(self, record: Json) -> str:
        """The ID that a record gets: later ones compare greater."""
        del record
        return f"{int(self.log[-1]['id']) + 1 if self.log else 1:012d}"

    def result(self, run: Run, event_key: str, *, inserted: bool) -> Json:
        """Where a record is, and where its session stands now."""
        session = self.sessions.get(run.start["session_id"], {"status": ""})
        return {"id": run.records[event_key]["id"], "inserted": inserted, "session_status": session["status"]}

    # Views

    async def get(self, path: str, **query: Any) -> Json:
        """The views of sessions, runs and records."""
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[1:2] == ["runs"] and parts[-1] in VIEWS and len(parts) == LENGTH_OF_A_VIEW:
            return self.view_replay(parts[2], parts[3], query)
        need(set(query) <= {"status", "cursor", "limit", "type"}, "an unknown parameter")
        match parts:
            case ["v1", "consumers"]:
                need(not query, "an unknown parameter")
                return self.consumers.listing()
            case ["v1", "sessions"]:
                return self.view_sessions(query)
            case ["v1", "sessions", session_id]:
                session, runs = self.session(session_id), self.runs_of(session_id)
                activity = shapes.time_text(max([self.now_ms(), *(run.updated_at for run in runs)]))
                return {"session": session, "run_counts": counts(runs), "last_activity_at": activity}
            case ["v1", "sessions", session_id, "runs"]:
                wanted = [query["status"]] if query.get("status") else []
                return self.do_list_runs_by_session({"session_id": session_id, "statuses": wanted})
            case ["v1", "sessions", session_id, "records"]:
                self.session(session_id)
                return self.view_records("session", session_id, query)
            case ["v1", "runs", run_id]:
                return self.view_run(run_id)
            case ["v1", "runs", run_id, "records"]:
                self.run(run_id)
                return self.view_records("run", run_id, query)
        raise shapes.invalid(f"no view {path}")

    def view_replay(self, run_id: str, name: str, query: Json) -> Json:
        self.run(run_id)
        metas = {each: run.meta() for each, run in self.runs.items()}
        starts = {each: run.start for each, run in self.runs.items()}
        return Replays(self.log, metas, starts).view(run_id, name, query)

    def view_sessions(self, query: Json) -> Json:
        status, limit = query.get("status", ""), shapes.whole(query.get("limit", 100), "limit", 1, 1000)
        need(status in ("", "active", "ended"), "an unknown status")
        found = [session for session in self.sessions.values() if not status or session["status"] == status]
        by_id = sorted(found, key=lambda session: str(session["id"]).encode())
        ordered = sorted(by_id, key=lambda session: str(session["created_at"]), reverse=True)
        position = 0
        if query.get("cursor"):
            subject, after = self.cursors.get(query["cursor"], ("", ""))
            if subject != "sessions":
                raise Refused(Refusal(Code.INVALID_CURSOR, "no cursor of the list of sessions"))
            position = int(after)
        shown, next_cursor = ordered[position : position + limit], ""
        if position + limit < len(ordered):
            next_cursor = hashlib.sha256(f"sessions {position + limit}".encode()).hexdigest()
            self.cursors[next_cursor] = ("sessions", str(position + limit))
        rows = [{**session, "run_counts": counts(self.runs_of(session["id"]))} for session in shown]
        return {"sessions": rows, "next_cursor": next_cursor}

    def view_records(self, name: str, value: str, query: Json) -> Json:
        limit = shapes.whole(query.get("limit", 100), "limit", 1, 1000)
        mine = [record for record in self.log if record[f"{name}_id"] == value]
        return self.page(f"{name}:{value}", mine, query.get("cursor"), limit, query.get("type", ""))

    def view_run(self, run_id: str) -> Json:
        run = self.run(run_id)
        children = []
        for record in run.records.values():
            if record["type"] == "child_run_linked":
                link = shapes.lifecycle(record)
                names = (("run_id", "ChildRunID"), ("agent_id", "ChildAgentID"), ("tool_name", "ToolName"))
                children.append({**{to: link[of] for to, of in names}, "tool_call_id": link["ToolCallID"]})
        return {
            "run": run.meta(),
            "children": children,
            "predecessor": run.start["predecessor_run_id"],
            "successors": [name for name, other in self.runs.items() if other.start["predecessor_run_id"] == run_id],
            "record_count": len(run.records),
            "has_checkpoint": run.checkpoint is not None,
        }


def equal(stored: Json, record: Json) -> bool:
    """True when two records are the same but for the ID that the store gave."""
    return {name: value for name, value in stored.items() if name != "id"} == record


def counts(runs: list[Run]) -> dict[str, int]:
    """How many runs are in each status that any is in."""
    found: dict[str, int] = {}
    for run in runs:
        found[run.status] = found.get(run.status, 0) + 1
    return found
