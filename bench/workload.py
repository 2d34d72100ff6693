"""What is written: records with the shapes and sizes that agents' runtimes write, the same for every side.

A payload is made before the clock starts, from a seed. On average one is about 500 bytes long: most are
shorter, a few are model texts and tool results of one or two kilobytes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Final

AGENT: Final = "demo.chat"
CHILD_AGENT: Final = "demo.research"
EPOCH_MS: Final = 1_790_000_000_000
"""Timestamps start here: commands carry their caller's time, and no result depends on it."""

TERMINAL_KEY: Final = "runtime/terminal"

_LABELS: Final = '{"tenant":"acme","region":"west"}'
_CANCELED: Final = (
    f'{{"status":"canceled","phase":"canceled","labels":{_LABELS},"cancellation":{{"reason":"session_ended"}}}}'
)

_CONTENTS: Final = 7 * 32
_TEXT: Final = (
    "the a of to and in that it for with as on was at by from weather forecast order invoice customer city report "
    "shows rain sunny degrees wind delivery refund status account because therefore however between next previous "
    "total amount please check again result found nothing three seven Paris Rome Berlin Tokyo temperature humidity"
)
_WORDS: Final = _TEXT.split()


@dataclass(frozen=True, slots=True)
class Content:
    """A record's type and payload: JSON text."""

    type: str
    payload: str


@dataclass(frozen=True, slots=True)
class Child:
    """The three records of a child run that its ended session stops at its start: link, start and end."""

    run_id: str
    link: Content
    started: Content
    canceled: Content


def contents(seed: str) -> Iterator[Content]:
    """Ordinary records, without end; the same ones for the same seed."""
    source = random.Random(seed)
    return cycle([_content(source, number) for number in range(_CONTENTS)])


def child(run_id: str, parent_run_id: str) -> Child:
    """The records of a child run. Cheap, since it is called while the clock runs."""
    link = (
        f'{{"ToolName":"demo.research.ask","ToolCallID":"call-{run_id}","ChildRunID":"{run_id}",'
        f'"ChildAgentID":"{CHILD_AGENT}"}}'
    )
    started = f'{{"parent_run_id":"{parent_run_id}","labels":{_LABELS}}}'
    return Child(
        run_id, Content("child_run_linked", link), Content("run_started", started), Content("run_completed", _CANCELED)
    )


def child_labels() -> dict[str, str]:
    """The labels that `child` writes into its payloads."""
    labels: dict[str, str] = json.loads(_LABELS)
    return labels


def _content(source: random.Random, number: int) -> Content:
    kind, value = _SHAPES[number % len(_SHAPES)]
    return Content(kind, _text(value(source)))


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _prose(source: random.Random, words: int) -> str:
    return " ".join(source.choices(_WORDS, k=words))


def _call_id(source: random.Random) -> str:
    return f"call_{source.getrandbits(96):024x}"


def _phase(source: random.Random) -> Any:
    return {"Phase": source.choice(["prompted", "planning", "executing_tools", "synthesizing"])}


def _thinking(source: random.Random) -> Any:
    return {
        "Text": _prose(source, 45),
        "Signature": f"{source.getrandbits(512):0128x}",
        "Redacted": None,
        "ContentIndex": 0,
        "Final": True,
    }


def _scheduled(source: random.Random) -> Any:
    return {
        "ToolCallID": _call_id(source),
        "ToolName": "svc.lookup",
        "Payload": {"city": source.choice(["Paris", "Rome", "Berlin"]), "units": "celsius", "days": 3},
        "Queue": "default",
        "ParentToolCallID": "",
        "ContinuationRootToolCallID": "",
        "ExpectedChildrenTotal": 0,
        "DisplayHint": "",
    }


def _tool_result(source: random.Random) -> Any:
    return {
        "call_run_id": f"run-{source.getrandbits(64):016x}",
        "tool_call_id": _call_id(source),
        "tool_name": "svc.lookup",
        "result_json": {"rows": [{"day": day, "text": _prose(source, 16), "t": 21.5} for day in range(8)]},
        "result_bytes": 960,
        "server_data": None,
        "result_preview": _prose(source, 12),
        "duration": source.randrange(10**6, 10**9),
    }


def _appended(source: random.Random) -> Any:
    text = {"kind": "text", "text": _prose(source, 60)}
    use = {"kind": "tool_use", "id": _call_id(source), "name": "svc.lookup", "input": {"city": "Paris"}}
    return [{"role": "assistant", "parts": [text, use], "meta": None}]


def _usage(source: random.Random) -> Any:
    return {
        "Model": "large-2",
        "ModelClass": "default",
        "InputTokens": source.randrange(9000),
        "OutputTokens": source.randrange(900),
        "TotalTokens": source.randrange(9900),
        "CacheReadTokens": 0,
        "CacheWriteTokens": 0,
    }


def _message(source: random.Random) -> Any:
    return {"Message": _prose(source, 110), "Structured": None}


_SHAPES: Final = (
    ("run_phase_changed", _phase),
    ("thinking_block", _thinking),
    ("transcript_messages_appended", _appended),
    ("tool_call_scheduled", _scheduled),
    ("tool_result_received", _tool_result),
    ("usage", _usage),
    ("assistant_message", _message),
)
