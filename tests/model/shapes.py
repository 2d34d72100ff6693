"""What a well-formed command looks like, before any state is asked.

Every function takes plain JSON values and returns them checked and brought to one form: times as milliseconds, what is
absent or null as empty, payloads as text. What is wrong raises `Refused` with `invalid_command`.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Final

from schemas.refusals import Code, Refusal, Refused

Json = dict[str, Any]

KIB: Final = 1024
MIB: Final = 1024 * 1024
LIFECYCLE: Final = ("run_started", "child_run_linked", "runtime.cancellation_intent", "run_suspended", "run_completed")
CHANGES: Final = tuple(kind for kind in LIFECYCLE if kind != "child_run_linked")  # of the run they are records of
RESERVED: Final = ("run_stream_end", "session_purged")
STATUSES: Final = ("running", "suspended", "completed", "failed", "canceled")
MEMORY_TYPES: Final = ("user_message", "assistant_message", "tool_call", "tool_result", "planner_note", "thinking")
OUTCOME_OF: Final = {"completed": "success", "failed": "failed", "canceled": "canceled"}
EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
SURROGATE: Final = re.compile("[\ud800-\udfff]")
TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?(?:Z|\+00:00)"
)


def invalid(detail: str) -> Refused:
    """The refusal of a command whose own shape is wrong."""
    return Refused(Refusal(Code.INVALID_COMMAND, detail))


def need(condition: bool, detail: str) -> None:
    """Refuse the command unless the condition holds."""
    if not condition:
        raise invalid(detail)


def fields(value: object, name: str, *names: str) -> Json:
    """A JSON object with no other fields than these; those that are absent or null are left out."""
    if not isinstance(value, dict):
        raise invalid(f"{name} must be an object")
    unknown = sorted(set(value) - set(names))
    need(not unknown, f"{name} has unknown fields {unknown}")
    return {key: item for key, item in value.items() if item is not None}


# Text


def text(value: object, name: str, bytes_max: int | None = None) -> str:
    """Any text that UTF-8 can hold; null is the empty text."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise invalid(f"{name} must be a string")
    need(SURROGATE.search(value) is None, f"{name} holds a lone surrogate")
    need(bytes_max is None or len(value.encode()) <= bytes_max, f"{name} is longer than {bytes_max} bytes")
    return value


def name_text(value: object, name: str, bytes_max: int = 512) -> str:
    """The common rule of IDs, event keys, types and label keys: something, not too long, no control characters."""
    found = text(value, name, bytes_max)
    need(found != "", f"{name} is missing")
    need(not any(unicodedata.category(char) == "Cc" for char in found), f"{name} holds a control character")
    return found


def identifier(value: object, name: str) -> str:
    """An ID."""
    found = name_text(value, name)
    need(found not in (".", ".."), f"{name} must not be . or ..")
    return found


def optional_identifier(value: object, name: str) -> str:
    """An ID or nothing."""
    return "" if value in (None, "") else identifier(value, name)


def type_text(value: object, name: str, bytes_max: int = 512) -> str:
    """A record type, and with another length a cancellation reason."""
    found = name_text(value, name, bytes_max)
    need("," not in found, f"{name} holds a comma")
    need(found not in RESERVED, f"{name} is reserved")
    return found


def labels(value: object, name: str = "labels") -> dict[str, str]:
    """A map of string to string."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid(f"{name} must be an object")
    need(len(value) <= 64, f"{name} holds more than 64 labels")
    found = {name_text(key, "a label key"): text(item, "a label value") for key, item in value.items()}
    need(all(isinstance(item, str) for item in value.values()), "a label value must be a string")
    for key, item in found.items():
        need(len(key.encode()) + len(item.encode()) <= KIB, "a label is longer than 1 KiB")
    return found


# Times and numbers


def time_ms(value: object, name: str) -> int:
    """RFC 3339 in UTC, nothing finer than a millisecond, years 1970 to 9999; answers milliseconds since 1970."""
    if not isinstance(value, str):
        raise invalid(f"{name} is missing or no text")
    match = TIME.fullmatch(value)
    if match is None:
        raise invalid(f"{name} is no time")
    year, month, day, hour, minute, second = (int(match[index]) for index in range(1, 7))
    decimals = match[7] or ""
    need(set(decimals[3:]) <= {"0"}, f"{name} is finer than a millisecond")
    need(year >= 1970, f"{name} is before 1970")
    try:
        moment = datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.UTC)
    except ValueError:
        raise invalid(f"{name} is no time") from None
    return (moment - EPOCH) // datetime.timedelta(milliseconds=1) + int(decimals[:3].ljust(3, "0"))


def time_text(ms: int) -> str:
    """The one way a time is written."""
    moment = EPOCH + datetime.timedelta(milliseconds=ms)
    return f"{moment.replace(tzinfo=None):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z".rjust(24, "0")


def whole(value: object, name: str, low: int, high: int) -> int:
    """A whole number between two bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise invalid(f"{name} must be a whole number from {low} to {high}")
    return value


# JSON text


def depth(json_text: str) -> int:
    """How deep brackets nest, outside strings."""
    deepest = now = 0
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', json_text, re.DOTALL):
        if token[0][0] in "[{":
            now += 1
            deepest = max(deepest, now)
        elif token[0][0] in "]}":
            now -= 1
    return deepest


def unique_pairs(pairs: list[tuple[str, Any]]) -> Json:
    """A JSON object in which no key stands twice."""
    found = dict(pairs)
    need(len(found) == len(pairs), "a key stands twice")
    return found


def parse_json(json_text: str, pairs: Callable[[list[tuple[str, Any]]], Any]) -> Any:
    """One JSON value by the grammar, nested at most 128 deep; numbers with a fraction or exponent stay text."""
    need(depth(json_text) <= 128, "payload nests deeper than 128")

    def no_constant(name: str) -> None:
        raise invalid(f"{name} is not JSON")

    try:
        return json.loads(
            json_text,
            parse_int=lambda digits: int(digits) if len(digits) < 20 else digits,
            parse_float=str,
            parse_constant=no_constant,
            object_pairs_hook=pairs,
        )
    except ValueError as error:
        raise invalid(f"payload is not one JSON value: {error}") from None


def payload(value: object) -> str:
    """One JSON text of 1 byte to 4 MiB, kept as it is."""
    found = text(value, "payload", 4 * MIB)
    parse_json(found, dict)
    return found


def memory(args: Json) -> tuple[str, str]:
    """The agent and the run that a memory is of."""
    return identifier(args.get("agent_id"), "agent_id"), identifier(args.get("run_id"), "run_id")


def memory_events(value: object) -> list[Json]:
    """What is to be remembered: a list of events, which may be empty or absent."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise invalid("events must be an array")
    return [memory_event(each) for each in value]


def memory_event(value: object) -> Json:
    """One event, in one form."""
    found = fields(value, "an event", "type", "timestamp", "data", "labels")
    need(found.get("type") in MEMORY_TYPES, "an event is of an unknown type")
    timestamp = time_ms(found.get("timestamp"), "timestamp")
    data, its_labels = payload(found.get("data")), labels(found.get("labels"))
    return {"type": found["type"], "timestamp": timestamp, "data": data, "labels": its_labels}


def string_of(value: Json, key: str, *, required: bool = False) -> str:
    """A string field of a lifecycle payload; absent or null is empty unless it is required."""
    found = value.get(key, "")
    need(isinstance(found, str), f"{key} must be a string")
    need(found != "" or not required, f"{key} is missing")
    return str(found)


def lifecycle(record: Json) -> Json:
    """The payload of a lifecycle record, checked field by field."""
    value = parse_json(record["payload"], unique_pairs)
    match record["type"]:
        case "run_started":
            found = fields(value, "payload", "parent_run_id", "predecessor_run_id", "labels")
            return {
                "parent_run_id": string_of(found, "parent_run_id"),
                "predecessor_run_id": string_of(found, "predecessor_run_id"),
                "labels": labels(found.get("labels")),
            }
        case "child_run_linked":
            names = ("ToolName", "ToolCallID", "ChildRunID", "ChildAgentID")
            found = fields(value, "payload", *names)
            return {key: string_of(found, key, required=True) for key in names}
        case "runtime.cancellation_intent":
            found = fields(value, "payload", "reason")
            return {"reason": string_of(found, "reason", required=True)}
        case "run_suspended":
            found = fields(value, "payload", "SuspensionID", "Version", "PendingCount", "RequiredTools")
            string_of(found, "Version")
            whole(found.get("PendingCount", 0), "PendingCount", 0, 2**63 - 1)
            tools = found.get("RequiredTools", [])
            need(isinstance(tools, list) and all(isinstance(tool, str) for tool in tools), "RequiredTools: strings")
            return {"SuspensionID": string_of(found, "SuspensionID", required=True)}
        case _:
            return completion(value)


def completion(value: object) -> Json:
    """The payload of `run_completed`: its status, its labels, and the reason of a canceled one."""
    need(isinstance(value, dict), "payload must be an object")
    assert isinstance(value, dict)
    common = ("status", "phase", "labels")
    pair = (value.get("status"), value.get("phase"))
    found: Json = {"status": pair[0], "labels": labels(value.get("labels")), "reason": ""}
    if pair == ("success", "completed"):
        fields(value, "payload", *common)
    elif pair == ("failed", "failed"):
        outer = fields(value, "payload", *common, "failure")
        texts = ("message", "kind", "debug_message", "provider", "operation", "code")
        failure = fields(outer.get("failure"), "failure", *texts, "retryable", "http_status")
        for key in texts:
            string_of(failure, key, required=key in ("message", "kind"))
        need(isinstance(failure.get("retryable", False), bool), "retryable must be true or false")
        whole(failure.get("http_status", 0), "http_status", -(2**63), 2**63 - 1)
    elif pair == ("canceled", "canceled"):
        outer = fields(value, "payload", *common, "cancellation")
        reason = fields(outer.get("cancellation"), "cancellation", "reason")
        found["reason"] = string_of(reason, "reason", required=True)
    else:
        raise invalid(f"status and phase {pair} do not go together")
    return found


# The parts of commands


def new_record(value: object, name: str, kind: str | None = None) -> Json:
    """A record as a caller sends it: of this lifecycle type, or ordinary where none is asked for."""
    found = fields(
        value, name, "event_key", "run_id", "agent_id", "session_id", "turn_id", "type", "timestamp", "payload"
    )
    record = {
        "event_key": name_text(found.get("event_key"), "event_key"),
        "run_id": identifier(found.get("run_id"), "run_id"),
        "agent_id": identifier(found.get("agent_id"), "agent_id"),
        "session_id": optional_identifier(found.get("session_id"), "session_id"),
        "turn_id": optional_identifier(found.get("turn_id"), "turn_id"),
        "type": type_text(found.get("type"), "type"),
        "timestamp": time_ms(found.get("timestamp"), "timestamp"),
        "payload": payload(found.get("payload")),
    }
    if kind is None:
        need(record["type"] not in LIFECYCLE, f"{record['type']} is written by lifecycle commands only")
    else:
        need(record["type"] == kind, f"{name} must be a {kind} record")
    return record


def checkpoint(value: object) -> Json:
    """A checkpoint: an ID and standard base64, perhaps of nothing."""
    found = fields(value, "checkpoint", "id", "data")
    encoded = text(found.get("data"), "data")
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise invalid("data is not standard base64") from None
    need(len(data) <= 8 * MIB, "a checkpoint is at most 8 MiB")
    return {"id": identifier(found.get("id"), "checkpoint id"), "data": data}


def run_start(value: object) -> Json:
    """The identity of a run that is to start."""
    names = ("agent_id", "run_id", "session_id", "parent_run_id", "predecessor_run_id", "started_at", "labels")
    found = fields(value, "run", *names)
    run = {
        "agent_id": identifier(found.get("agent_id"), "agent_id"),
        "run_id": identifier(found.get("run_id"), "run_id"),
        "session_id": optional_identifier(found.get("session_id"), "session_id"),
        "parent_run_id": optional_identifier(found.get("parent_run_id"), "parent_run_id"),
        "predecessor_run_id": optional_identifier(found.get("predecessor_run_id"), "predecessor_run_id"),
        "started_at": time_ms(found.get("started_at"), "started_at"),
        "labels": labels(found.get("labels")),
    }
    need(run["run_id"] not in (run["parent_run_id"], run["predecessor_run_id"]), "a run cannot follow itself")
    return run


def start(args: Json, *, sessionful: bool, child: bool) -> Mapping[str, Json]:
    """The whole of a start, with every record that could be written."""
    parts = ["run", "started", *(["parent_linked"] if child else []), *(["canceled"] if sessionful else [])]
    args = fields(args, "arguments", *parts)
    run = run_start(args.get("run"))
    need((run["session_id"] != "") == sessionful, "session_id does not fit this start")
    need((run["parent_run_id"] != "") == child, "parent_run_id does not fit this start")
    need(sessionful or run["predecessor_run_id"] == "", "a run without session continues none")
    found = {"run": run, "started": own_record(args, "started", "run_started", run)}
    payload_of = lifecycle(found["started"])
    for key in ("parent_run_id", "predecessor_run_id", "labels"):
        need(payload_of[key] == run[key], f"started names another {key}")
    if sessionful:
        canceled = own_record(args, "canceled", "run_completed", run)
        ending = lifecycle(canceled)
        need((ending["status"], ending["reason"]) == ("canceled", "session_ended"), "canceled is another ending")
        need(ending["labels"] == run["labels"], "canceled has other labels")
        need(canceled["event_key"] != found["started"]["event_key"], "two records with one event key")
        found["canceled"] = canceled
    if child:
        link = new_record(args.get("parent_linked"), "parent_linked", "child_run_linked")
        named = lifecycle(link)
        need(link["run_id"] == run["parent_run_id"], "the link is a record of the parent")
        need(link["session_id"] == run["session_id"], "the link is in another session")
        need(named["ChildRunID"] == run["run_id"], "the link names another run")
        need(named["ChildAgentID"] == run["agent_id"], "the link names another agent")
        need(sessionful or link["event_key"] != found["started"]["event_key"], "two records with one event key")
        found["parent_linked"] = link
    return found


def own_record(args: Json, name: str, kind: str, run: Json) -> Json:
    """A record that a start writes on the run it starts."""
    record = new_record(args.get(name), name, kind)
    for key in ("run_id", "agent_id", "session_id"):
        need(record[key] == run[key], f"{name} has another {key}")
    need(record["timestamp"] == run["started_at"], f"{name} has another time than the start")
    return record


def change(args: Json, kind: str | None, *others: str) -> Json:
    """A change of an existing run: its ID, its record, and what else the change takes."""
    args = fields(args, "arguments", "run_id", "record", *others)
    record = new_record(args.get("record"), "record", kind)
    need(identifier(args.get("run_id"), "run_id") == record["run_id"], "record is of another run")
    return {**args, "record": record}
