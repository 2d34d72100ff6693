"""How answers are written: exactly the fields of the interface, and payloads as they were stored."""

from __future__ import annotations

import msgspec
import pytest
from pydantic import TypeAdapter

from schemas.refusals import Code, Refused, refuse
from schemas.values import (
    Answer,
    AppendResult,
    Checkpoint,
    ChildLink,
    Purged,
    RepairOutcome,
    RepairResult,
    RunDetail,
    RunStatus,
    Session,
    SessionDetail,
    SessionPage,
    SessionStatus,
    SessionSummary,
    StartOutcome,
    StartResult,
)
from service import render
from service.methods import METHODS, call
from service.ports import KafkaPlace
from tests.service.arguments import ARGUMENTS
from tests.service.fake import NOON, NOON_TEXT, FakeState, FakeStore, page, run_meta

HERE = AppendResult("0001", inserted=True, session_status=SessionStatus.ACTIVE)
RETRIED = AppendResult("0002", inserted=False, session_status=None)
SHOWN = {"id": "0001", "inserted": True, "session_status": "active"}
SHOWN_RETRIED = {"id": "0002", "inserted": False, "session_status": ""}
ENDED = Session("s", SessionStatus.ENDED, NOON, NOON + 1)


def test_commands_are_answered_as_the_interface_says() -> None:
    assert render.answer(HERE) == SHOWN
    assert render.answer(RETRIED) == SHOWN_RETRIED
    assert render.answer(Purged()) == {}
    assert render.answer(Session("s", SessionStatus.ACTIVE, NOON)) == {
        "session": {"id": "s", "status": "active", "created_at": NOON_TEXT}
    }
    assert render.answer(ENDED) == {
        "session": {
            "id": "s",
            "status": "ended",
            "created_at": NOON_TEXT,
            "ended_at": "2026-11-30T14:56:46.813Z",
        }
    }
    assert render.answer(StartResult(RETRIED)) == {"started": SHOWN_RETRIED}
    assert render.answer(StartResult(HERE, StartOutcome.STOP, RETRIED, HERE)) == {
        "outcome": "stop",
        "parent_linked": SHOWN_RETRIED,
        "started": SHOWN,
        "canceled": SHOWN,
    }
    assert render.answer(RepairResult(RepairOutcome.DIFFERENT_TERMINAL, RunStatus.FAILED)) == {
        "outcome": "different_terminal",
        "status": "failed",
    }
    assert render.answer(RepairResult(RepairOutcome.STORED, RunStatus.SUSPENDED, HERE)) == {
        "outcome": "stored",
        "status": "suspended",
        "append": SHOWN,
    }


def test_a_run_is_shown_with_all_its_fields() -> None:
    assert render.run(run_meta(labels={"tenant": "acme"})) == {
        "agent_id": "demo.chat",
        "run_id": "run-1",
        "session_id": "sess-1",
        "parent_run_id": "",
        "status": "running",
        "start_outcome": "proceed",
        "started_at": NOON_TEXT,
        "updated_at": "2026-11-30T14:56:46.817Z",
        "labels": {"tenant": "acme"},
        "cancellation_reason": "",
    }


def test_a_page_holds_payloads_as_text() -> None:
    assert render.page(page('"ä\\u003c"'.encode(), next_cursor="c")) == {
        "records": [
            {
                "id": "0001",
                "event_key": "run-1/2",
                "run_id": "run-1",
                "agent_id": "demo.chat",
                "session_id": "sess-1",
                "turn_id": "turn-1",
                "type": "usage",
                "timestamp": NOON_TEXT,
                "payload": '"ä\\u003c"',
            }
        ],
        "next_cursor": "c",
    }


@pytest.mark.parametrize(
    "payload",
    [
        b"123456789012345678901234567890.10",
        b'{"a":1e400,"a":"\\ud800"}',
        b'{"b":[1.0,-0, "\\u0026 \xe2\x80\xa8"]}',
    ],
)
def test_an_embedded_payload_keeps_every_digit(payload: bytes) -> None:
    encoded = msgspec.json.encode(render.embedded_page(page(payload)))
    assert b'"payload":' + payload + b"}]" in encoded


def test_an_embedded_payload_is_one_line() -> None:
    encoded = msgspec.json.encode(render.embedded_page(page(b'{\r\n"a":\n"\\n"\r}')))
    assert b'"payload":{  "a": "\\n" }' in encoded
    assert b"\n" not in encoded
    assert b"\r" not in encoded


def test_views_are_shown_with_exactly_their_fields() -> None:
    counts = {RunStatus.RUNNING: 1, RunStatus.FAILED: 2}
    assert render.session_page(SessionPage((SessionSummary(ENDED, counts),), "n")) == {
        "sessions": [
            {
                "id": "s",
                "status": "ended",
                "created_at": NOON_TEXT,
                "ended_at": "2026-11-30T14:56:46.813Z",
                "run_counts": {"running": 1, "failed": 2},
            }
        ],
        "next_cursor": "n",
    }
    assert set(render.session_detail(SessionDetail(ENDED, counts, NOON))) == {
        "session",
        "run_counts",
        "last_activity_at",
    }
    detail = RunDetail(run_meta(), (ChildLink("c", "a", "t", "tc"),), "", ("n1", "n2"), 7, has_checkpoint=True)
    shown = render.run_detail(detail)
    assert shown["children"] == [{"run_id": "c", "agent_id": "a", "tool_name": "t", "tool_call_id": "tc"}]
    assert {name: shown[name] for name in ("predecessor", "successors", "record_count", "has_checkpoint")} == {
        "predecessor": "",
        "successors": ["n1", "n2"],
        "record_count": 7,
        "has_checkpoint": True,
    }
    assert render.store_state(FakeState(), None, ready=False)["kafka"] is None
    told = render.store_state(FakeState(), KafkaPlace("a:1,b:2", "p.log", "p.keys"), ready=False)
    assert told["kafka"] == {"bootstrap_servers": "a:1,b:2", "log_topic": "p.log", "keys_topic": "p.keys"}
    assert told["partitions"][0] == {
        "partition": 0,
        "state": "serving",
        "log_start": 0,
        "log_end": 12,
        "applied": 10,
        "lag": 2,
        "void_records": 3,
        "lost_records": 1,
        "last_error": "",
        "rebuild": None,
        "queued": 4,
    }


READ_VALUES = {
    "load_session": ENDED,
    "load_session_status": SessionStatus.ENDED,
    "list_runs_by_session": (run_meta(), run_meta("run-2")),
    "list_run_records": page(b"1", b"2"),
    "list_session_records": page(b"1"),
    "load_run": run_meta(),
    "load_checkpoint": Checkpoint("c", b"\x00\xff"),
}
COMMAND_VALUES: dict[str, Answer] = {
    "create_session": ENDED,
    "end_session": ENDED,
    "purge_session": Purged(),
    "start_root_run": StartResult(HERE, StartOutcome.STOP, canceled=HERE),
    "start_child_run": StartResult(HERE, StartOutcome.PROCEED, HERE),
    "start_one_shot_run": StartResult(HERE),
    "start_one_shot_child_run": StartResult(HERE, parent_linked=HERE),
    "repair_suspension": RepairResult(RepairOutcome.ALREADY_STORED, RunStatus.SUSPENDED, HERE),
    "repair_terminal": RepairResult(RepairOutcome.DIFFERENT_TERMINAL, RunStatus.FAILED),
}


@pytest.mark.parametrize("method", METHODS)
async def test_every_method_answers_in_the_shape_it_is_described_with(method: str) -> None:
    store = FakeStore()
    store.values = dict(READ_VALUES)
    store.decide = lambda _: COMMAND_VALUES.get(method, HERE)
    answer = await call(store, method, ARGUMENTS[method])
    TypeAdapter(METHODS[method].answer).validate_python(answer, strict=True, extra="forbid")
    assert len(store.commands) + len(store.reads) == 1


async def test_a_checkpoint_is_answered_as_base64() -> None:
    store = FakeStore()
    store.values = dict(READ_VALUES)
    assert await call(store, "load_checkpoint", {"run_id": "r"}) == {"checkpoint": {"id": "c", "data": "AP8="}}


@pytest.mark.parametrize("method", METHODS)
async def test_a_refusal_is_raised(method: str) -> None:
    store = FakeStore()
    refusal = refuse(Code.UNAVAILABLE, "not now")
    store.values = dict.fromkeys(READ_VALUES, refusal)
    store.decide = lambda _: refusal
    with pytest.raises(Refused) as raised:
        await call(store, method, ARGUMENTS[method])
    assert raised.value.refusal is refusal


async def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(Refused, match="the store has no method append_events") as raised:
        await call(FakeStore(), "append_events", {})
    assert raised.value.code is Code.INVALID_COMMAND
