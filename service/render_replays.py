"""How what is read back from a run's records is written: values of the store to the JSON objects of the interface.

Messages and scopes are embedded as they are stored. `embed` says whether payloads are too, or stay texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from schemas.replays import ModelInput, Prompts, RunTree, ToolCalls, Transcript, TreeRun, Unreadable
from schemas.transcripts import Violation
from service.answers import JsonObject
from service.json_text import encoded
from service.render import embedded, embedded_record, record, run


def transcript(value: Transcript) -> JsonObject:
    """A transcript."""
    return {
        "messages": [
            {"message": embedded(each.stored), "record_id": each.record_id, "seed": each.seed}
            for each in value.messages
        ],
        "planner": _validity(value.planner),
        "bedrock": _validity(value.bedrock),
    }


def model_input(value: ModelInput, *, embed: bool) -> JsonObject:
    """What the next model call would see."""
    shown: dict[str, object] = {"messages": _messages(value.messages)}
    if value.turns is not None:
        turns = value.turns
        shown["kept"] = _messages(turns.kept)
        shown["older"] = _messages(turns.older)
        shown["older_digest"] = turns.older_digest
        shown["summary"] = None if turns.summary is None else _payload(turns.summary, embed=embed)
    return shown


def prompts(value: Prompts, *, embed: bool) -> JsonObject:
    """The prompts that shaped a run."""
    shown = [
        {
            "prompt_id": each.prompt_id,
            "version": each.version,
            "scope": embedded(each.scope.encode()),
            "run_id": each.run_id,
            "record_id": each.record_id,
        }
        for each in value.prompts
    ]
    return {"prompts": shown, "count": len(shown), **_unreadable(value.unreadable, embed=embed)}


def tree(value: RunTree) -> JsonObject:
    """The family of a run."""
    return {
        "run": run(value.runs[0].run),
        "children": _children(value.runs),
        "predecessors": [run(each) for each in value.predecessors],
        "successors": [run(each) for each in value.successors],
    }


def tool_calls(value: ToolCalls, *, embed: bool) -> JsonObject:
    """The tool calls of a run."""
    shown = [
        {
            "tool_call_id": each.tool_call_id,
            "model_tool_call_id": each.model_tool_call_id,
            "tool_name": each.tool_name,
            "scheduled": each.scheduled,
            "result": each.result,
            "failed": each.failed,
        }
        for each in value.calls
    ]
    return {"tool_calls": shown, **_unreadable(value.unreadable, embed=embed)}


def _children(runs: Sequence[TreeRun]) -> msgspec.Raw:
    """The trees below the first run, written from their flat list, since they may be deeper than an encoder goes."""
    parts: list[bytes] = []
    depth = 0
    for each in runs[1:]:
        link = each.link
        assert link is not None, "only the top of a tree has no link"
        # Below the run before it, or after the end of that one and of all that it is deeper by.
        parts.append(b"[" if each.depth > depth else b"[]}" + b"]}" * (depth - each.depth) + b",")
        head = {"run": run(each.run), "tool_name": link.tool_name, "tool_call_id": link.tool_call_id}
        parts.append(encoded(head)[:-1] + b',"children":')
        depth = each.depth
    return msgspec.Raw(b"".join(parts) + b"[]" + b"}]" * depth)


def _messages(stored: Sequence[bytes]) -> list[msgspec.Raw]:
    return [embedded(each) for each in stored]


def _validity(violation: Violation | None) -> JsonObject:
    told: Any = None
    if violation is not None:
        told = {
            "message": violation.message,
            "part": violation.part,
            "id": violation.id,
            "detail": violation.detail,
        }
    return {"valid": violation is None, "violation": told}


def _unreadable(values: Sequence[Unreadable], *, embed: bool) -> JsonObject:
    """The records that a view could not read, under a name of their own; nothing at all where there are none."""
    shown = [
        {"record": embedded_record(each.record) if embed else record(each.record), "problem": each.problem}
        for each in values
    ]
    return {"unreadable": shown} if shown else {}


def _payload(payload: bytes, *, embed: bool) -> object:
    return embedded(payload) if embed else payload.decode()
