"""The conversation that `runstore demo` records: a customer wants a refund.

Three runs. The first one looks up the order, asks a second agent (its child) for the policy, and suspends itself
to wait for the customer's word; the third continues the first, refunds, and completes.

Everything is derived from the session's ID and the time it was created, so that telling the story again for the
same session repeats every command exactly.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

from schemas.times import format_time

TOLD_MS: Final = 7_000
"""How long the conversation takes, at most, by its own clock."""

SESSION_ID_BYTES_MAX: Final = 400
"""How long a session's ID may be once it is percent-encoded: event keys hold it so, and more."""

LABELS: Final[Mapping[str, str]] = {"tenant": "acme", "channel": "web-chat"}

_Json = Any


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

    def append(self, record_type: str, payload: _Json, *, key: str = "", chapter: str = "") -> Step:
        """A step that appends a record."""
        return Step("append_record", {"record": self._record(record_type, payload, key=key)}, chapter)

    def phase(self, name: str) -> Step:
        """A step of the runtime's own."""
        return self.append("run_phase_changed", {"Phase": name})

    def prompt(self, prompt_id: str, version: str) -> Step:
        """A prompt is rendered."""
        scope = {"SessionID": self._session_id, "Labels": dict(LABELS)}
        return self.append("prompt_rendered", {"PromptID": prompt_id, "Version": version, "Scope": scope})

    def messages(self, *messages: _Json, seed: bool = False) -> Step:
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

    def scheduled(self, call: str, model_call: str, tool: str, payload: _Json, chapter: str = "") -> Step:
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

    def result(self, call: str, tool: str, result: _Json, nanoseconds: int) -> Step:
        """The result of a tool call."""
        return self.append(
            "tool_result_received",
            {
                "call_run_id": self.run_id,
                "tool_call_id": call,
                "tool_name": tool,
                "result_json": result,
                "result_bytes": len(_text(result).encode()),
                "duration": nanoseconds,
            },
            key=f"{self.run_id}/tool/{call}/tool_result_received",
        )

    def say(self, message: str) -> Step:
        """The assistant says something."""
        return self.append("assistant_message", {"Message": message, "Structured": None})

    def suspend(self, tool: str, state: _Json, chapter: str) -> Step:
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
                "checkpoint": {"id": checkpoint_id, "data": b64encode(_text(data).encode()).decode()},
                "record": self._record("run_suspended", suspended, key="runtime/terminal"),
            },
            chapter,
        )

    def complete(self, chapter: str = "") -> Step:
        """The run completes."""
        payload = {"status": "success", "phase": "completed", "labels": dict(LABELS)}
        record = self._record("run_completed", payload, key="runtime/terminal")
        return Step("record_terminal", {"run_id": self.run_id, "status": "completed", "record": record}, chapter)

    def _record(self, record_type: str, payload: _Json, *, key: str = "", at: str = "") -> dict[str, Any]:
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
            "payload": _text(payload),
        }

    def _now(self) -> str:
        return format_time(next(self._clock))


def tell(session_id: str, created_at: int) -> Iterator[Step]:
    """Every command of the story but the one that creates the session, in order."""
    clock = iter(range(created_at, created_at + TOLD_MS, 137))
    first = Run(session_id, f"{session_id}/run-1", "support.chat", "turn-1", clock)
    asked = "call-" + sha256(f"{session_id} policy".encode()).hexdigest()[:16]
    child = Run(session_id, f"{first.run_id}/agent/policy.ask/{asked}", "support.policy", "turn-1", clock)
    second = Run(session_id, f"{session_id}/run-2", "support.chat", "turn-2", clock)
    spoken: list[_Json] = [_message("user", _said("The kettle from order 1042 leaks. I would like my money back."))]
    yield from _ask_for_refund(first, child, asked, spoken)
    yield from _refund(first, second, spoken)


def fits(session_id: str) -> bool:
    """Whether the story can be told for a session of this ID."""
    return len(quote(session_id, safe="")) <= SESSION_ID_BYTES_MAX


def run_ids(session_id: str) -> tuple[str, str]:
    """The IDs of the run that is suspended and of the one that continues it."""
    return f"{session_id}/run-1", f"{session_id}/run-2"


def _ask_for_refund(run: Run, child: Run, asked: str, spoken: list[_Json]) -> Iterator[Step]:
    yield Step("start_root_run", run.start(), "a customer asks for a refund, and support.chat starts a run")
    yield run.phase("prompted")
    yield run.prompt("support.chat.system", "v7")
    yield run.messages(*spoken, seed=True)
    yield run.phase("planning")
    yield run.usage(412, 58)
    yield run.phase("executing_tools")
    order = {"order": 1042, "item": "Kettle 1.7 l", "paid": 42.50, "currency": "EUR", "delivered": "2026-11-21"}
    lookup = {"order": 1042}
    yield from _say(run, spoken, _message("assistant", _use("toolu_01", "orders.lookup", lookup)))
    yield run.scheduled("call-1", "toolu_01", "orders.lookup", lookup, "it looks up the order with a tool")
    yield run.result("call-1", "orders.lookup", order, 84_211_530)
    yield from _say(run, spoken, _message("user", _result("toolu_01", order)))
    question = {"question": "Is a leaking kettle refunded 9 days after delivery?"}
    yield from _say(run, spoken, _message("assistant", _use("toolu_02", "policy.ask", question)))
    yield run.scheduled(asked, "toolu_02", "policy.ask", question, "it asks support.policy, which runs as its child")
    yield from _look_up_policy(run, child, asked, question)
    yield run.result(asked, "policy.ask", "Yes: faulty goods are refunded within 30 days.", 1_204_500_118)
    answer = _message("user", _result("toolu_02", "Yes: faulty goods are refunded within 30 days."))
    yield from _say(run, spoken, answer)
    offer = "I am sorry about that. I can refund 42.50 EUR to your card. Shall I?"
    yield run.say(offer)
    yield run.usage(655, 31)
    yield from _say(run, spoken, _message("assistant", _said(offer)))
    yield run.append(
        "await_confirmation",
        {
            "ID": "await-1",
            "Title": "Refund",
            "Prompt": offer,
            "ToolName": "refunds.create",
            "ToolCallID": "call-2",
            "Payload": {"order": 1042, "amount": 42.50},
        },
    )
    state = {"AgentID": run.agent_id, "Labels": dict(LABELS), "BaseMessages": spoken}
    yield run.suspend("refunds.create", state, "it must not refund without a yes: the run is suspended, its state kept")


def _look_up_policy(parent: Run, child: Run, asked: str, question: _Json) -> Iterator[Step]:
    yield Step("start_child_run", child.start(parent=parent, call=asked))
    yield child.prompt("support.policy.system", "v2")
    yield child.messages(_message("user", _said(_text(question))), seed=True)
    yield child.phase("planning")
    yield child.usage(188, 22)
    found = "Yes: faulty goods are refunded within 30 days."
    yield child.say(found)
    yield child.messages(_message("assistant", _said(found)))
    yield child.complete()


def _refund(first: Run, run: Run, spoken: list[_Json]) -> Iterator[Step]:
    yield Step(
        "start_root_run",
        run.start(predecessor=first),
        "the customer says yes, and a second run continues the first",
    )
    yield run.phase("prompted")
    yield run.prompt("support.chat.system", "v7")
    yield run.messages(*spoken, seed=True)
    yield run.messages(_message("user", _said("Yes, please.")))
    yield run.append(
        "tool_authorization",
        {
            "ToolName": "refunds.create",
            "ToolCallID": "call-2",
            "Approved": True,
            "Summary": "Refund 42.50 EUR for order 1042",
            "ApprovedBy": "customer",
        },
    )
    refund = {"order": 1042, "amount": 42.50}
    receipt = {"refund": "re_7731", "state": "booked"}
    yield run.phase("executing_tools")
    yield run.messages(_message("assistant", _use("toolu_03", "refunds.create", refund)))
    yield run.scheduled("call-2", "toolu_03", "refunds.create", refund)
    yield run.result("call-2", "refunds.create", receipt, 312_008_774)
    yield run.messages(_message("user", _result("toolu_03", receipt)))
    done = "Done: 42.50 EUR are on their way to your card, receipt re_7731."
    yield run.say(done)
    yield run.usage(731, 24)
    yield run.messages(_message("assistant", _said(done)))
    yield run.complete("it refunds, tells the customer, and completes")


def _say(run: Run, spoken: list[_Json], message: _Json) -> Iterator[Step]:
    """Append a message to the transcript, and remember it for the run that continues this one."""
    spoken.append(message)
    yield run.messages(message)


def _message(role: str, *parts: _Json) -> _Json:
    return {"role": role, "parts": list(parts), "meta": None}


def _said(text: str) -> _Json:
    return {"kind": "text", "text": text}


def _use(call: str, tool: str, arguments: _Json) -> _Json:
    return {"kind": "tool_use", "id": call, "name": tool, "input": arguments, "thought_signature": ""}


def _result(call: str, content: _Json) -> _Json:
    return {"kind": "tool_result", "tool_use_id": call, "content": content, "is_error": False}


def _text(value: _Json) -> str:
    """JSON as the runtime's own encoder writes it: no spaces, and what HTML might trip over is escaped."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
