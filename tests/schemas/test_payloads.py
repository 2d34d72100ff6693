"""Lifecycle payloads are of their type's shape exactly, and refusals keep them private."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.payloads import (
    CancellationPayload,
    ChildRunLinkedPayload,
    PayloadError,
    RunCompletedPayload,
    RunFailure,
    RunStartedPayload,
    RunSuspendedPayload,
    parse_lifecycle,
)
from schemas.values import (
    CANCELLATION_INTENT,
    CHILD_RUN_LINKED,
    LIFECYCLE_TYPES,
    RUN_COMPLETED,
    RUN_STARTED,
    RUN_SUSPENDED,
    RunStatus,
)

TRACES = Path(__file__).parent.parent / "data" / "traces"

LINK = {"ToolName": "svc.ask", "ToolCallID": "call-1", "ChildRunID": "r/1", "ChildAgentID": "svc.child"}
SUSPENDED = {"SuspensionID": "s", "Version": "v1", "PendingCount": 1, "RequiredTools": ["a", "b"]}
SUCCESS = {"status": "success", "phase": "completed"}
FAILED = {"status": "failed", "phase": "failed", "failure": {"message": "m", "kind": "internal"}}
CANCELED = {"status": "canceled", "phase": "canceled", "cancellation": {"reason": "stop"}}
COMPLETE: dict[str, dict[str, Any]] = {
    RUN_STARTED: {"parent_run_id": "p", "predecessor_run_id": "q", "labels": {"k": "v"}},
    CHILD_RUN_LINKED: LINK,
    CANCELLATION_INTENT: {"reason": "stop"},
    RUN_SUSPENDED: SUSPENDED,
    RUN_COMPLETED: SUCCESS,
}


def parse(record_type: str, payload: object) -> Any:
    return parse_lifecycle(record_type, json.dumps(payload).encode())


def refusal(record_type: str, payload: object) -> str:
    with pytest.raises(PayloadError) as refused:
        parse(record_type, payload)
    return str(refused.value)


def test_run_started() -> None:
    assert parse(RUN_STARTED, COMPLETE[RUN_STARTED]) == RunStartedPayload("p", "q", {"k": "v"})
    plain = RunStartedPayload("", "", {})
    assert parse(RUN_STARTED, {}) == plain
    assert parse(RUN_STARTED, {"parent_run_id": None, "predecessor_run_id": None, "labels": None}) == plain
    assert parse(RUN_STARTED, {"parent_run_id": "", "labels": {}}) == plain
    assert parse_lifecycle(RUN_STARTED, b" \n\t{ }\r ") == plain


@pytest.mark.parametrize("labels", [[], "a", 1, {"k": 1}, {"k": None}, {"k": {}}, {"k": "v", "l": True}])
def test_labels_are_an_object_of_strings(labels: object) -> None:
    assert "labels must be an object of strings" in refusal(RUN_STARTED, {"labels": labels})


def test_child_run_linked() -> None:
    assert parse(CHILD_RUN_LINKED, LINK) == ChildRunLinkedPayload("svc.ask", "call-1", "r/1", "svc.child")
    for name in LINK:
        assert f"{name} is required" in refusal(CHILD_RUN_LINKED, {**LINK, name: ""})
        assert f"{name} is required" in refusal(CHILD_RUN_LINKED, {**LINK, name: None})
        assert f"{name} must be a string" in refusal(CHILD_RUN_LINKED, {**LINK, name: 1})
        assert f"{name} is required" in refusal(CHILD_RUN_LINKED, {key: LINK[key] for key in LINK if key != name})


def test_cancellation_intent() -> None:
    assert parse(CANCELLATION_INTENT, {"reason": "stop"}) == CancellationPayload("stop")
    for payload in ({}, {"reason": ""}, {"reason": None}, {"reason": 1}, {"reason": ["stop"]}):
        assert "reason" in refusal(CANCELLATION_INTENT, payload)


def test_run_suspended() -> None:
    assert parse(RUN_SUSPENDED, SUSPENDED) == RunSuspendedPayload("s", "v1", 1, ("a", "b"))
    least = RunSuspendedPayload("s", "", 0, ())
    assert parse(RUN_SUSPENDED, {"SuspensionID": "s"}) == least
    nulls = {"SuspensionID": "s", "Version": None, "PendingCount": None, "RequiredTools": None}
    assert parse(RUN_SUSPENDED, nulls) == least
    assert parse(RUN_SUSPENDED, {**SUSPENDED, "PendingCount": 2**63 - 1}).pending_count == 2**63 - 1
    for wrong in (-1, 2**63, 1.0, 1.5, True, "1", [1]):
        assert "PendingCount" in refusal(RUN_SUSPENDED, {**SUSPENDED, "PendingCount": wrong})
    wrong_tools: list[Any] = ["a", {}, [None], [1], ["a", ["b"]]]
    for tools in wrong_tools:
        assert "RequiredTools" in refusal(RUN_SUSPENDED, {**SUSPENDED, "RequiredTools": tools})
    assert "SuspensionID" in refusal(RUN_SUSPENDED, {"SuspensionID": ""})
    assert "SuspensionID" in refusal(RUN_SUSPENDED, {})


@pytest.mark.parametrize("number", [b"1e2", b"1.0", b"-1", b"1E0", b"9" * 5000, b"1e400"])
def test_a_count_is_written_as_a_whole_number(number: bytes) -> None:
    with pytest.raises(PayloadError):
        parse_lifecycle(RUN_SUSPENDED, b'{"SuspensionID":"s","PendingCount":' + number + b"}")


def test_run_completed_with_success() -> None:
    done = RunCompletedPayload(RunStatus.COMPLETED, {}, "", None)
    assert parse(RUN_COMPLETED, SUCCESS) == done
    assert parse(RUN_COMPLETED, {**SUCCESS, "failure": None, "cancellation": None, "labels": None}) == done
    assert parse(RUN_COMPLETED, {**SUCCESS, "labels": {"k": "v"}}).labels == {"k": "v"}
    assert "failure" in refusal(RUN_COMPLETED, {**SUCCESS, "failure": FAILED["failure"]})
    assert "cancellation" in refusal(RUN_COMPLETED, {**SUCCESS, "cancellation": {"reason": "r"}})
    assert "failure" in refusal(RUN_COMPLETED, {**SUCCESS, "failure": {}})


def test_run_completed_with_a_failure() -> None:
    failure = RunFailure("m", "internal", "", retryable=False, provider="", operation="", code="", http_status=0)
    assert parse(RUN_COMPLETED, FAILED) == RunCompletedPayload(RunStatus.FAILED, {}, "", failure)
    full = {
        "message": "m",
        "kind": "k",
        "debug_message": "d",
        "retryable": True,
        "provider": "p",
        "operation": "o",
        "code": "c",
        "http_status": 503,
    }
    parsed = parse(RUN_COMPLETED, {**FAILED, "failure": full}).failure
    assert parsed == RunFailure("m", "k", "d", retryable=True, provider="p", operation="o", code="c", http_status=503)
    optional = {name: None for name in full if name not in {"message", "kind"}}
    assert (
        parse(RUN_COMPLETED, {**FAILED, "failure": {"message": "m", "kind": "internal", **optional}}).failure == failure
    )


@pytest.mark.parametrize(
    ("failure", "field"),
    [
        (None, "failure must be there"),
        ([], "failure must be an object"),
        ("m", "failure must be an object"),
        ({}, "failure.message is required"),
        ({"message": "m"}, "failure.kind is required"),
        ({"message": "", "kind": "k"}, "failure.message is required"),
        ({"message": "m", "kind": ""}, "failure.kind is required"),
        ({"message": "m", "kind": None}, "failure.kind is required"),
        ({"message": 1, "kind": "k"}, "failure.message must be a string"),
        ({"message": "m", "kind": "k", "retryable": 1}, "failure.retryable"),
        ({"message": "m", "kind": "k", "retryable": "true"}, "failure.retryable"),
        ({"message": "m", "kind": "k", "http_status": "503"}, "failure.http_status"),
        ({"message": "m", "kind": "k", "http_status": 503.0}, "failure.http_status"),
        ({"message": "m", "kind": "k", "http_status": True}, "failure.http_status"),
        ({"message": "m", "kind": "k", "http_status": 2**63}, "failure.http_status"),
        ({"message": "m", "kind": "k", "Code": "c"}, "a field in failure is unknown"),
        ({"message": "m", "kind": "k", "extra": None}, "a field in failure is unknown"),
    ],
)
def test_a_failure_is_checked_field_by_field(failure: object, field: str) -> None:
    assert field in refusal(RUN_COMPLETED, {**FAILED, "failure": failure})


def test_run_completed_with_a_cancellation() -> None:
    assert parse(RUN_COMPLETED, CANCELED) == RunCompletedPayload(RunStatus.CANCELED, {}, "stop", None)
    assert parse(RUN_COMPLETED, {**CANCELED, "failure": None}).reason == "stop"
    assert "failure" in refusal(RUN_COMPLETED, {**CANCELED, "failure": FAILED["failure"]})
    assert "cancellation" in refusal(RUN_COMPLETED, {**CANCELED, "cancellation": None})
    for wrong in ({}, {"reason": ""}, {"reason": None}, {"reason": 1}):
        assert "cancellation.reason" in refusal(RUN_COMPLETED, {**CANCELED, "cancellation": wrong})
    assert "in cancellation" in refusal(RUN_COMPLETED, {**CANCELED, "cancellation": {"reason": "r", "by": "x"}})
    assert "cancellation" in refusal(RUN_COMPLETED, {**FAILED, "cancellation": {"reason": "r"}})


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        ("success", "failed"),
        ("success", "success"),
        ("completed", "completed"),
        ("", ""),
        (None, None),
        ("Success", "x"),
    ],
)
def test_status_and_phase_belong_together(status: object, phase: object) -> None:
    message = refusal(RUN_COMPLETED, {"status": status, "phase": phase})
    assert "status" in message or "phase" in message


@pytest.mark.parametrize("record_type", sorted(LIFECYCLE_TYPES))
def test_every_type_refuses_what_is_no_object_of_its_fields(record_type: str) -> None:
    good = json.dumps(COMPLETE[record_type]).encode()
    parse_lifecycle(record_type, good)
    first = next(iter(COMPLETE[record_type]))
    for payload in (
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"1",
        b"[" + good + b"]",
        good + b"x",
        good + good,
        good + b"\x00",
        b"\xef\xbb\xbf" + good,
        good[:-1] + b',"extra":1}',
        good[:-1] + b',"extra":null}',
        good[:-1] + b"," + good[1:],
        good[:-1] + b',"' + first.swapcase().encode() + b'":null}',
        good.replace(b'":', b'\xff":', 1),
        good.decode().encode("utf-16"),
    ):
        with pytest.raises(PayloadError, match=record_type):
            parse_lifecycle(record_type, payload)


def test_deep_payloads_are_refused_and_not_followed() -> None:
    for depth in (128, 129, 500_000):
        with pytest.raises(PayloadError):
            parse_lifecycle(RUN_STARTED, b'{"labels":' + b"[" * depth + b"]" * depth + b"}")


def test_an_ordinary_type_is_no_matter_of_this_parser() -> None:
    with pytest.raises(KeyError):
        parse_lifecycle("usage", b"{}")


@pytest.mark.parametrize(
    ("record_type", "payload"),
    [
        (RUN_STARTED, b'{"labels":{"secret":1}}'),
        (RUN_STARTED, b'{"labels":{"secret":"a","secret":"b"}}'),
        (RUN_STARTED, b'{"secret":"secret"}'),
        (RUN_STARTED, b'{"parent_run_id":["secret"]}'),
        (RUN_STARTED, b'{"labels":{"a":"secret}'),
        (RUN_COMPLETED, b'{"status":"secret"}'),
        (RUN_COMPLETED, b'{"status":"success","phase":"secret"}'),
        (RUN_COMPLETED, b'{"status":"failed","phase":"failed","failure":{"message":"secret"}}'),
        (RUN_COMPLETED, b'{"status":"canceled","phase":"canceled","cancellation":{"reason":"secret","secret":1}}'),
        (CANCELLATION_INTENT, b'{"reason":"secret"} secret'),
    ],
)
def test_a_refusal_keeps_values_private(record_type: str, payload: bytes) -> None:
    with pytest.raises(PayloadError) as refused:
        parse_lifecycle(record_type, payload)
    assert "secret" not in str(refused.value)


def test_escapes_of_go_and_of_lone_surrogates_are_read() -> None:
    payload = b'{"labels":{"\\u003ck\\u003e":"\\u0026"}}'
    assert parse_lifecycle(RUN_STARTED, payload) == RunStartedPayload("", "", {"<k>": "&"})
    assert parse_lifecycle(CANCELLATION_INTENT, b'{"reason":"\\ud800"}') == CancellationPayload("\ud800")


@given(st.dictionaries(st.text(), st.text()), st.text(), st.text())
def test_written_values_read_back(labels: dict[str, str], parent: str, predecessor: str) -> None:
    payload = {"parent_run_id": parent, "predecessor_run_id": predecessor, "labels": labels}
    assert parse(RUN_STARTED, payload) == RunStartedPayload(parent, predecessor, labels)


def recorded() -> list[tuple[str, str]]:
    found = set()
    for path in sorted(TRACES.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            left = [json.loads(line)]
            while left:
                value = left.pop()
                if isinstance(value, dict):
                    left.extend(value.values())
                    if value.get("type") in LIFECYCLE_TYPES and isinstance(value.get("payload"), str):
                        found.add((value["type"], value["payload"]))
                elif isinstance(value, list):
                    left.extend(value)
    return sorted(found)


def test_everything_a_runtime_recorded_is_of_these_shapes() -> None:
    payloads = recorded()
    assert {record_type for record_type, _ in payloads} >= LIFECYCLE_TYPES - {CANCELLATION_INTENT}
    for record_type, payload in payloads:
        parse_lifecycle(record_type, payload.encode())
