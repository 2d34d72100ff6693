"""A run of an agent, as its runtime would record it: the commands of the demo's story, one by one."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

from schemas.times import format_time

LABELS: Final[Mapping[str, str]] = {"tenant": "acme", "channel": "web-chat"}

Json = Any


@dataclass(frozen=True, slots=True)
class Step:
    """One command of the story. `chapter` is what a person is told before it, empty where nothing is."""

    method: str
    arguments: dict[str, Any]
    chapter: str = ""


class Run:
    """A run as its runtime sees it: it knows its IDs, counts its event keys, and tells the time."""

    def __init__(self, session_id: str, run_id: str, agent_id: str, turn_id: str, clock: Iterator[int]) -> None:
        self.run_id = run_id
        self._session_id = session_id
        self.agent_id = agent_id
        self._turn_id = turn_id
        self._clock = clock
        self._keys = 0

    def start(self, *, parent: Run | None = None, predecessor: Run | None = None, call: str = "") -> dict[str, Any]:
        """The arguments of the start of this run, by `parent` for its tool call `call`."""
        started_at = self._now()
        run = {
            "agent_id": self.agent_id,
            "run_id": self.run_id,
            "session_id": self._session_id,
            "parent_run_id": parent.run_id if parent else "",
            "predecessor_run_id": predecessor.run_id if predecessor else "",
            "started_at": started_at,
            "labels": dict(LABELS),
        }
        family = {name: run[name] for name in ("parent_run_id", "predecessor_run_id") if run[name]}
        canceled = {
            "status": "canceled",
            "phase": "canceled",
            "cancellation": {"reason": "session_ended"},
            "labels": dict(LABELS),
        }
        arguments: dict[str, Any] = {
            "run": run,
            "started": self._record("run_started", family | {"labels": dict(LABELS)}, at=started_at),
            "canceled": self._record("run_completed", canceled, key="runtime/terminal", at=started_at),
        }
        if parent is not None:
            link = {
                "ToolName": "policy.ask",
                "ToolCallID": call,
                "ChildRunID": self.run_id,
                "ChildAgentID": self.agent_id,
            }
            arguments["parent_linked"] = parent._record("child_run_linked", link, at=started_at)  # noqa: SLF001 - a run too
        return arguments

    def append(self, record_type: str, payload: Json, *, key: str = "", chapter: str = "") -> Step:
        """A step that appends a record."""
        return Step("append_record", {"record": self._record(record_type, payload, key=key)}, chapter)

    def phase(self, name: str) -> Step:
        """A step of the runtime's own."""
        return self.append("run_phase_changed", {"Phase": name})

    def prompt(self, prompt_id: str, version: str) -> Step:
        """A prompt is rendered."""
        scope = {"SessionID": self._session_id, "Labels": dict(LABELS)}
        return self.append("prompt_rendered", {"PromptID": prompt_id, "Version": version, "Scope": scope})

    def messages(self, *messages: Json, seed: bool = False) -> Step:
        """Messages of the transcript; seeds are those that the run begins with."""
        return self.append("transcript_messages_seeded" if seed else "transcript_messages_appended", list(messages))

    def usage(self, tokens_in: int, tokens_out: int) -> Step:
        """What a model call cost."""
        return self.append(
            "usage",
            {
                "Model": "demo-large-1",
                "ModelClass": "default",
                "InputTokens": tokens_in,
                "OutputTokens": tokens_out,
                "TotalTokens": tokens_in + tokens_out,
                "CacheReadTokens": 0,
                "CacheWriteTokens": 0,
            },
        )

    def scheduled(self, call: str, model_call: str, tool: str, payload: Json, chapter: str = "") -> Step:
        """A tool call is scheduled. The runtime's ID of the call and the model's are two."""
        return self.append(
            "tool_call_scheduled",
            {
                "ToolCallID": call,
                "ModelToolCallID": model_call,
                "ToolName": tool,
                "Payload": payload,
                "Queue": "",
                "ParentToolCallID": "",
                "ContinuationRootToolCallID": "",
                "ExpectedChildrenTotal": 0,
                "DisplayHint": "",
            },
            key=f"{self.run_id}/tool/{call}/tool_call_scheduled",
            chapter=chapter,
        )

    def result(self, call: str, tool: str, result: Json, nanoseconds: int) -> Step:
        """The result of a tool call."""
        return self.append(
            "tool_result_received",
            {
                "call_run_id": self.run_id,
                "tool_call_id": call,
                "tool_name": tool,
                "result_json": result,
                "result_bytes": len(json_text(result).encode()),
                "duration": nanoseconds,
            },
            key=f"{self.run_id}/tool/{call}/tool_result_received",
        )

    def say(self, message: str) -> Step:
        """The assistant says something."""
        return self.append("assistant_message", {"Message": message, "Structured": None})

    def suspend(self, tool: str, state: Json, chapter: str) -> Step:
        """The run suspends itself, with what it needs to be continued."""
        checkpoint_id = sha256(self.run_id.encode()).hexdigest()[:32]
        data = {"ID": checkpoint_id, "Version": "goa-ai.run-suspension.v1", "Checkpoint": state}
        suspended = {
            "SuspensionID": checkpoint_id,
            "Version": "goa-ai.run-suspension.v1",
            "PendingCount": 1,
            "RequiredTools": [tool],
        }
        return Step(
            "record_suspension",
            {
                "run_id": self.run_id,
                "checkpoint": {"id": checkpoint_id, "data": b64encode(json_text(data).encode()).decode()},
                "record": self._record("run_suspended", suspended, key="runtime/terminal"),
            },
            chapter,
        )

    def complete(self, chapter: str = "") -> Step:
        """The run completes."""
        payload = {"status": "success", "phase": "completed", "labels": dict(LABELS)}
        record = self._record("run_completed", payload, key="runtime/terminal")
        return Step("record_terminal", {"run_id": self.run_id, "status": "completed", "record": record}, chapter)

    def _record(self, record_type: str, payload: Json, *, key: str = "", at: str = "") -> dict[str, Any]:
        if not key:
            self._keys += 1
            key = f"{quote(self.run_id, safe='')}/{self._keys}"
        return {
            "event_key": key,
            "run_id": self.run_id,
            "agent_id": self.agent_id,
            "session_id": self._session_id,
            "turn_id": self._turn_id,
            "type": record_type,
            "timestamp": at or self._now(),
            "payload": json_text(payload),
        }

    def _now(self) -> str:
        return format_time(next(self._clock))


def json_text(value: Json) -> str:
    """JSON as the runtime's own encoder writes it: no spaces, and what HTML might trip over is escaped."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
