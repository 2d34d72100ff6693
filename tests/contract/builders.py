"""Valid commands, built compactly, each field of which a test can change.

A `Run` knows its identity and builds every command that concerns it. A `Command` is a method and its arguments as the
interface has them; `but` and `without` answer a copy with one field changed or gone, by its path (`started.turn_id`).
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

Json = dict[str, Any]

CREATED: Final = "2026-03-01T08:00:00.000Z"
STARTED: Final = "2026-03-01T09:00:00.000Z"
LATER: Final = "2026-03-01T09:00:01.250Z"
ENDED: Final = "2026-03-01T10:00:00.000Z"
CHECKPOINT: Final = b"\x00private \xff bytes"
SUSPENSION_KEY: Final = "runtime/suspension"
TERMINAL_KEY: Final = "runtime/terminal"
INTENT_KEY: Final = "runtime/cancellation-intent"
PARTITIONS: Final = 8

START_METHODS: Final = ("start_root_run", "start_child_run", "start_one_shot_run", "start_one_shot_child_run")
CHANGE_METHODS: Final = (
    "record_cancellation",
    "record_suspension",
    "record_terminal",
    "repair_suspension",
    "repair_terminal",
)


def place(key: str, partitions: int = PARTITIONS) -> int:
    """The partition that a session or a run ID is at home in."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") % partitions


def compact(value: object) -> str:
    """A JSON text without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def spaced(payload: str) -> str:
    """The same JSON value in other bytes."""
    return f" {payload}\n"


def encoded(data: bytes) -> str:
    """Standard base64."""
    return base64.b64encode(data).decode()


class Command(NamedTuple):
    """A method of the store and its arguments."""

    method: str
    args: Json

    def but(self, path: str, value: object) -> Command:
        """The same command with one field changed."""
        args = copy.deepcopy(self.args)
        *parents, last = path.split(".")
        inner = args
        for name in parents:
            inner = inner[name]
        inner[last] = value
        return Command(self.method, args)

    def without(self, path: str) -> Command:
        """The same command with one field gone."""
        args = copy.deepcopy(self.args)
        *parents, last = path.split(".")
        inner = args
        for name in parents:
            inner = inner[name]
        del inner[last]
        return Command(self.method, args)

    def at(self, path: str) -> Any:
        """The value of one field."""
        inner: Any = self.args
        for name in path.split("."):
            inner = inner[name]
        return inner

    def payload_but(self, record: str, **changes: object) -> Command:
        """The same command with fields of a record's payload changed; the payload is encoded anew."""
        value = json.loads(self.at(f"{record}.payload"))
        return self.but(f"{record}.payload", compact({**value, **changes}))

    def respaced(self, record: str) -> Command:
        """The same command with one record's payload spaced otherwise."""
        return self.but(f"{record}.payload", spaced(self.at(f"{record}.payload")))


# Sessions


def create_session(session_id: str, created_at: str = CREATED) -> Command:
    """Open a session."""
    return Command("create_session", {"session_id": session_id, "created_at": created_at})


def end_session(session_id: str, ended_at: str = ENDED) -> Command:
    """End a session."""
    return Command("end_session", {"session_id": session_id, "ended_at": ended_at})


def purge_session(session_id: str) -> Command:
    """Purge a session."""
    return Command("purge_session", {"session_id": session_id})


# Lifecycle payloads


def started_payload(parent: str = "", predecessor: str = "", labels: Mapping[str, str] | None = None) -> str:
    """The payload of `run_started`; a plain root's is `{}`."""
    value = {"parent_run_id": parent, "predecessor_run_id": predecessor, "labels": dict(labels or {})}
    return compact({name: item for name, item in value.items() if item})


def ending_payload(status: str, labels: Mapping[str, str] | None = None, reason: str = "engine_canceled") -> str:
    """The payload of `run_completed` for a run's status."""
    values: dict[str, Json] = {
        "completed": {"status": "success", "phase": "completed"},
        "failed": {"status": "failed", "phase": "failed", "failure": {"message": "It broke.", "kind": "internal"}},
        "canceled": {"status": "canceled", "phase": "canceled", "cancellation": {"reason": reason}},
    }
    return compact({**values[status], **({"labels": dict(labels)} if labels else {})})


# Runs


@dataclass(frozen=True)
class Run:
    """The identity of a run, and every command about it. `parent_agent` is who the parent link says the parent is."""

    run_id: str
    session_id: str = ""
    agent_id: str = "agent.chat"
    parent: str = ""
    parent_agent: str = "agent.chat"
    predecessor: str = ""
    started_at: str = STARTED
    labels: Mapping[str, str] = field(default_factory=dict)

    def record(self, event_key: str, kind: str, payload: str, timestamp: str = LATER) -> Json:
        """A record of this run."""
        return {
            "event_key": event_key,
            "run_id": self.run_id,
            "agent_id": self.agent_id,
            "session_id": self.session_id,
            "turn_id": "turn-1",
            "type": kind,
            "timestamp": timestamp,
            "payload": payload,
        }

    @property
    def started_key(self) -> str:
        """The event key of its start."""
        return f"start/{hashlib.sha256(self.run_id.encode()).hexdigest()}"

    @property
    def link_key(self) -> str:
        """The event key of its link, on the parent."""
        return f"link/{hashlib.sha256(self.run_id.encode()).hexdigest()}"

    def start(self) -> Command:
        """The start that fits: of a root or a child, in a session or without one."""
        payload = started_payload(self.parent, self.predecessor, self.labels)
        args: Json = {
            "run": {
                "agent_id": self.agent_id,
                "run_id": self.run_id,
                "session_id": self.session_id,
                "parent_run_id": self.parent,
                "predecessor_run_id": self.predecessor,
                "started_at": self.started_at,
                "labels": dict(self.labels),
            },
            "started": self.record(self.started_key, "run_started", payload, self.started_at),
        }
        if self.session_id:
            ending = ending_payload("canceled", self.labels, "session_ended")
            args["canceled"] = self.record(TERMINAL_KEY, "run_completed", ending, self.started_at)
        if self.parent:
            parent = Run(self.parent, self.session_id, self.parent_agent)
            names = {"ChildRunID": self.run_id, "ChildAgentID": self.agent_id}
            link = compact({"ToolName": "research.ask", "ToolCallID": "call-1", **names})
            args["parent_linked"] = parent.record(self.link_key, "child_run_linked", link, self.started_at)
        one_shot = "" if self.session_id else "one_shot_"
        family = "child_run" if self.parent else ("root_run" if self.session_id else "run")
        return Command(f"start_{one_shot}{family}", args)

    def append(self, event_key: str = "note/1", payload: str = '{"n":1}', kind: str = "note") -> Command:
        """Add an ordinary record."""
        return Command("append_record", {"record": self.record(event_key, kind, payload)})

    def cancel(self, reason: str = "user_request", event_key: str = INTENT_KEY) -> Command:
        """Ask for the run to be canceled."""
        record = self.record(event_key, "runtime.cancellation_intent", compact({"reason": reason}))
        return Command("record_cancellation", {"run_id": self.run_id, "reason": reason, "record": record})

    def suspend(
        self,
        checkpoint_id: str = "checkpoint-1",
        data: bytes = CHECKPOINT,
        event_key: str = SUSPENSION_KEY,
        method: str = "record_suspension",
    ) -> Command:
        """Suspend the run."""
        value = {"SuspensionID": checkpoint_id, "Version": "v1", "PendingCount": 1, "RequiredTools": None}
        record = self.record(event_key, "run_suspended", compact(value))
        checkpoint = {"id": checkpoint_id, "data": encoded(data)}
        return Command(method, {"run_id": self.run_id, "checkpoint": checkpoint, "record": record})

    def end(
        self,
        status: str = "completed",
        *,
        reason: str = "engine_canceled",
        event_key: str = TERMINAL_KEY,
        labels: Mapping[str, str] | None = None,
        method: str = "record_terminal",
    ) -> Command:
        """Complete, fail or cancel the run."""
        payload = ending_payload(status, self.labels if labels is None else labels, reason)
        record = self.record(event_key, "run_completed", payload)
        return Command(method, {"run_id": self.run_id, "status": status, "record": record})

    def repair_suspension(self, checkpoint_id: str = "checkpoint-1", data: bytes = CHECKPOINT) -> Command:
        """Suspend the run if it still runs."""
        return self.suspend(checkpoint_id, data, method="repair_suspension")

    def repair_terminal(self, status: str = "completed", *, reason: str = "engine_canceled") -> Command:
        """End the run if it still runs."""
        return self.end(status, reason=reason, method="repair_terminal")

    def change(self, method: str) -> Command:
        """Any of the five changes of a run, by its method; the terminal ones complete it."""
        match method:
            case "record_cancellation":
                return self.cancel()
            case "record_suspension" | "repair_suspension":
                return self.suspend(method=method)
            case "record_terminal" | "repair_terminal":
                return self.end(method=method)
        raise ValueError(method)

    def become(self, status: str) -> list[Command]:
        """The commands that bring the run, once started, to a status."""
        if status == "running":
            return []
        return [self.suspend() if status == "suspended" else self.end(status)]
