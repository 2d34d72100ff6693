"""The conversation that `runstore demo` records: a customer wants a refund.

Three runs. The first one looks up the order, asks a second agent (its child) for the policy, and suspends itself
to wait for the customer's word; the third continues the first, refunds, and completes.

Everything is derived from the session's ID and the time it was created, so that telling the story again for the
same session repeats every command exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from bin.cli.narrator import LABELS, Json, Run, Step, json_text

TOLD_MS: Final = 7_000
"""How long the conversation takes, at most, by its own clock."""

SESSION_ID_BYTES_MAX: Final = 400
"""How long a session's ID may be once it is percent-encoded: event keys hold it so, and more."""


def tell(session_id: str, created_at: int) -> Iterator[Step]:
    """Every command of the story but the one that creates the session, in order."""
    clock = iter(range(created_at, created_at + TOLD_MS, 137))
    first = Run(session_id, f"{session_id}/run-1", "support.chat", "turn-1", clock)
    asked = "call-" + sha256(f"{session_id} policy".encode()).hexdigest()[:16]
    child = Run(session_id, f"{first.run_id}/agent/policy.ask/{asked}", "support.policy", "turn-1", clock)
    second = Run(session_id, f"{session_id}/run-2", "support.chat", "turn-2", clock)
    spoken: list[Json] = [_message("user", _said("The kettle from order 1042 leaks. I would like my money back."))]
    yield from _ask_for_refund(first, child, asked, spoken)
    yield from _refund(first, second, spoken)


def fits(session_id: str) -> bool:
    """Whether the story can be told for a session of this ID."""
    return len(quote(session_id, safe="")) <= SESSION_ID_BYTES_MAX


def run_ids(session_id: str) -> tuple[str, str]:
    """The IDs of the run that is suspended and of the one that continues it."""
    return f"{session_id}/run-1", f"{session_id}/run-2"


def _ask_for_refund(run: Run, child: Run, asked: str, spoken: list[Json]) -> Iterator[Step]:
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


def _look_up_policy(parent: Run, child: Run, asked: str, question: Json) -> Iterator[Step]:
    yield Step("start_child_run", child.start(parent=parent, call=asked))
    yield child.prompt("support.policy.system", "v2")
    yield child.messages(_message("user", _said(json_text(question))), seed=True)
    yield child.phase("planning")
    yield child.usage(188, 22)
    found = "Yes: faulty goods are refunded within 30 days."
    yield child.say(found)
    yield child.messages(_message("assistant", _said(found)))
    yield child.complete()


def _refund(first: Run, run: Run, spoken: list[Json]) -> Iterator[Step]:
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


def _say(run: Run, spoken: list[Json], message: Json) -> Iterator[Step]:
    """Append a message to the transcript, and remember it for the run that continues this one."""
    spoken.append(message)
    yield run.messages(message)


def _message(role: str, *parts: Json) -> Json:
    return {"role": role, "parts": list(parts), "meta": None}


def _said(text: str) -> Json:
    return {"kind": "text", "text": text}


def _use(call: str, tool: str, arguments: Json) -> Json:
    return {"kind": "tool_use", "id": call, "name": tool, "input": arguments, "thought_signature": ""}


def _result(call: str, content: Json) -> Json:
    return {"kind": "tool_result", "tool_use_id": call, "content": content, "is_error": False}
