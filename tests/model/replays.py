"""What is read back from a run's records, in plain loops over all the records that there are."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

from schemas.refusals import Code, Refusal, Refused
from tests.model import shapes, transcripts
from tests.model.shapes import Json, need

TRANSCRIPT = ("transcript_messages_seeded", "transcript_messages_appended")
PARTS: dict[str, tuple[set[str], set[str]]] = {
    "thinking": ({"text", "signature", "redacted", "index", "final"}, set()),
    "text": ({"text"}, set()),
    "image": ({"format", "bytes"}, {"format", "bytes"}),
    "document": ({"name", "format", "bytes", "text", "chunks", "uri", "context", "cite"}, set()),
    "citations": ({"text", "citations"}, set()),
    "tool_use": ({"id", "name", "input", "thought_signature"}, {"input"}),
    "tool_result": ({"tool_use_id", "content", "is_error"}, set()),
    "cache_checkpoint": (set(), set()),
}
"""The fields of each kind of part, and those that must be there."""
VIEWS = {"transcript", "model-input", "prompts", "tree", "tool-calls"}
PARAMETERS: dict[str, set[str]] = {
    "transcript": {"through", "payload"},
    "model-input": {"keep_turns", "payload"},
    "prompts": {"descendants", "predecessors", "payload"},
    "tree": {"payload"},
    "tool-calls": {"payload"},
}


class Replays:
    """The views over all records of a store, and its runs: what each shows, and what started it."""

    def __init__(self, log: list[Json], metas: dict[str, Json], starts: dict[str, Json]) -> None:
        self.log = log
        self.metas = metas
        self.starts = starts

    def view(self, run_id: str, name: str, query: Json) -> Json:
        """A view of a run that is there."""
        need(set(query) <= PARAMETERS[name], "an unknown parameter")
        need(query.get("payload", "json") == "json", "payload can only be json")
        views: dict[str, Callable[[str, Json], Json]] = {
            "transcript": self.transcript,
            "model-input": self.model_input,
            "prompts": self.prompts,
            "tree": lambda run_id, _: self.tree(run_id),
            "tool-calls": self.tool_calls,
        }
        return views[name](run_id, query)

    def records(self, run_id: str, *types: str) -> list[Json]:
        """The records of a run with these types."""
        return [record for record in self.log if record["run_id"] == run_id and record["type"] in types]

    def said(self, run_id: str, through: str = "") -> list[tuple[Json, Json, str]]:
        """Every message with its record and its own text."""
        if through:
            need(any(each["id"] == through and each["run_id"] == run_id for each in self.log), "no record of the run")
        found: list[tuple[Json, Json, str]] = []
        records = [each for each in self.records(run_id, *TRANSCRIPT) if not through or each["id"] <= through]
        for record in records:
            if not decodes(record["payload"]):
                ids = {"run_id": run_id, "record_id": record["id"]}
                raise Refused(Refusal(Code.TRANSCRIPT_INVALID, f"does not decode: {ids}", ids))
            found += [(record, json.loads(text), text) for text in elements(record["payload"])]
        if not records:
            raise Refused(Refusal(Code.TRANSCRIPT_NOT_FOUND, f"no transcript of {run_id}", {"run_id": run_id}))
        return found

    def transcript(self, run_id: str, query: Json) -> Json:
        """See the interface. Of a violation the detail is for people, so there is none here."""
        said = self.said(run_id, query.get("through", ""))
        messages = [message for _, message, _ in said]
        return {
            "messages": [
                {"message": message, "record_id": record["id"], "seed": record["type"].endswith("seeded")}
                for record, message, _ in said
            ],
            "planner": validity(transcripts.planner(messages)),
            "bedrock": validity(transcripts.bedrock(messages)),
        }

    def model_input(self, run_id: str, query: Json) -> Json:
        """See the interface."""
        keep = shapes.whole(int(query.get("keep_turns", 0)), "keep_turns", 0, 999_999_999)
        said = self.said(run_id)
        messages = [message for _, message, _ in said]
        if not messages:
            raise Refused(Refusal(Code.TRANSCRIPT_NOT_FOUND, f"no messages of {run_id}", {"run_id": run_id}))
        if not keep:
            return {"messages": messages}
        starts = [
            index
            for index, message in enumerate(messages)
            if message["role"] == "user" and {part["kind"] for part in message.get("parts") or []} - {"tool_result"}
        ]
        cut = len(messages) if not starts else starts[max(0, len(starts) - keep)]
        digest = hashlib.sha256("".join(text for *_, text in said[:cut]).encode()).hexdigest()
        summaries = [each["payload"] for each in self.records(run_id, "history_summarized")]
        fitting = [each for each in summaries if value_of(each, dict).get("older_digest") == digest]
        return {
            "messages": messages,
            "kept": messages[cut:],
            "older": messages[:cut],
            "older_digest": digest,
            "summary": shown(fitting[-1], query) if fitting else None,
        }

    def prompts(self, run_id: str, query: Json) -> Json:
        """See the interface."""
        runs = {run_id}
        if query.get("descendants", "true") == "true":
            runs |= {child for child, _ in self.descendants(run_id)}
        if query.get("predecessors", "false") == "true":
            runs |= set(self.chain(run_id))
        first: dict[tuple[str, str], Json] = {}
        unreadable = []
        for record in self.log:
            if record["run_id"] in runs and record["type"] == "prompt_rendered":
                told = value_of(record["payload"], dict)
                if not isinstance(told.get("PromptID"), str) or not told["PromptID"]:
                    unreadable.append(record)
                    continue
                use = {"prompt_id": told["PromptID"], "version": told.get("Version") or "", "scope": told.get("Scope")}
                where = {"run_id": record["run_id"], "record_id": record["id"]}
                first.setdefault((use["prompt_id"], use["version"]), {**use, **where})
        return {"prompts": [*first.values()], "count": len(first), **raw(unreadable, query)}

    def tree(self, run_id: str) -> Json:
        """See the interface."""
        after = [self.metas[other] for other, start in self.starts.items() if start["predecessor_run_id"] == run_id]
        before = [self.metas[other] for other in self.chain(run_id)]
        return {**self.branch(run_id), "predecessors": before, "successors": after}

    def branch(self, run_id: str) -> Json:
        """A run and the branches below it."""
        children = [
            {**self.branch(link["ChildRunID"]), "tool_name": link["ToolName"], "tool_call_id": link["ToolCallID"]}
            for link in self.links(run_id)
        ]
        return {"run": self.metas[run_id], "children": children}

    def tool_calls(self, run_id: str, query: Json) -> Json:
        """See the interface."""
        calls: list[Json] = []
        unreadable = []
        for record in self.records(run_id, "tool_call_scheduled", "tool_result_received"):
            told = value_of(record["payload"], dict)
            result = record["type"] == "tool_result_received"
            call_id = told.get("tool_call_id" if result else "ToolCallID") or ""
            if not told or not isinstance(call_id, str):
                unreadable.append(record)
                continue
            known = [each for each in calls if call_id and each["tool_call_id"] == call_id]
            if not known:
                known = [{"tool_call_id": call_id, "model_tool_call_id": None, "tool_name": ""}]
                known[0] |= {"scheduled": None, "result": None, "failed": False}
                calls += known
            call = known[0]
            if result and call["result"] is None:
                call |= {"result": record["id"], "failed": told.get("failure") is not None}
                call["tool_name"] = call["tool_name"] or told["tool_name"]
            if not result and call["scheduled"] is None:
                model_id = told.get("ModelToolCallID") or None
                call |= {"scheduled": record["id"], "model_tool_call_id": model_id, "tool_name": told["ToolName"]}
        return {"tool_calls": calls, **raw(unreadable, query)}

    def links(self, run_id: str) -> Iterator[Json]:
        """What the links on a run say."""
        for record in self.records(run_id, "child_run_linked"):
            yield json.loads(record["payload"])

    def descendants(self, run_id: str) -> Iterator[tuple[str, Json]]:
        """Every run below a run, with its link."""
        for link in self.links(run_id):
            yield link["ChildRunID"], link
            yield from self.descendants(link["ChildRunID"])

    def chain(self, run_id: str) -> Iterator[str]:
        """The runs that a run continues, nearest first."""
        while run_id := self.starts[run_id]["predecessor_run_id"]:
            yield run_id


def validity(place: transcripts.Place | None) -> Json:
    """Whether a rule holds, and where it is first broken."""
    if place is None:
        return {"valid": True, "violation": None}
    message, part, use_id = place
    return {"valid": False, "violation": {"message": message, "part": part, "id": use_id}}


def raw(records: list[Json], query: Json) -> Json:
    """The records that could not be read; why is for people, so it is not told here."""
    told = [{**each, "payload": shown(each["payload"], query)} for each in records]
    timed = [{**each, "timestamp": shapes.time_text(each["timestamp"])} for each in told]
    return {"unreadable": [{"record": each} for each in timed]} if told else {}


def shown(payload: str, query: Json) -> Any:
    """A payload as it is asked for."""
    return json.loads(payload) if query.get("payload") == "json" else payload


def value_of(payload: str, kind: type[dict[Any, Any]]) -> Json:
    """An object; an empty one in place of anything else."""
    value = json.loads(payload)
    return value if isinstance(value, kind) else {}


def elements(payload: str) -> list[str]:
    """The texts of an array's values, cut out of its own text."""
    decoder, found = json.JSONDecoder(), []
    text = payload.strip()
    at = 1
    while text != "null":
        while text[at] in " \t\n\r,":
            at += 1
        if text[at] == "]":
            break
        end = decoder.raw_decode(text, at)[1]
        found.append(text[at:end])
        at = end
    return found


def decodes(payload: str) -> bool:
    """Whether a payload is a list of messages; as far as the suite goes into it."""
    value = json.loads(payload)
    return value is None or (isinstance(value, list) and all(map(is_message, value)))


def is_message(value: Any) -> bool:
    """Whether a value is a message."""
    if not isinstance(value, dict) or not set(value) <= {"role", "parts", "meta"} or not value.get("role"):
        return False
    return all(map(is_part, value.get("parts") or []))


def is_part(value: Any) -> bool:
    """Whether a value is a part of a message."""
    if not isinstance(value, dict) or value.get("kind") not in PARTS:
        return False
    fields, required = PARTS[value["kind"]]
    if not set(value) <= fields | {"kind"} or not all(value.get(name) is not None for name in required):
        return False
    if value.get("bytes"):
        base64.b64decode(value["bytes"], validate=True)
    sources = [name for name in ("bytes", "text", "chunks", "uri") if value.get(name)]
    return (value["kind"] != "document" or len(sources) == 1) and isinstance(value.get("input", {}), dict)
