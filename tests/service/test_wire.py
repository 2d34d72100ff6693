"""How arguments are read: what is refused and with which words, and what the store is handed."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from schemas import commands
from schemas.refusals import Code, Refusal
from schemas.values import Checkpoint, NewRecord, RunStart, RunStatus
from service.arguments import CommandArguments
from service.methods import METHODS
from service.wire import read
from tests.service.arguments import ARGUMENTS, Json, record_args, run_args
from tests.service.fake import NOON


def refusal_of(method: str, args: Any) -> Refusal:
    found = read(METHODS[method].arguments, args)
    assert isinstance(found, Refusal), found
    assert found.code is Code.INVALID_COMMAND
    return found


def command_of(method: str, args: Any) -> commands.Command:
    found = read(METHODS[method].arguments, args)
    assert isinstance(found, CommandArguments), found
    return found.command()


def test_every_method_has_arguments_here() -> None:
    assert set(ARGUMENTS) == set(METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_well_formed_arguments_are_read(method: str) -> None:
    assert not isinstance(read(METHODS[method].arguments, ARGUMENTS[method]), Refusal)


@pytest.mark.parametrize("method", METHODS)
def test_an_unknown_field_is_refused_wherever_it_stands(method: str) -> None:
    for place in [(), *((name,) for name, value in ARGUMENTS[method].items() if isinstance(value, dict))]:
        for value in ("x", None):
            args = copy.deepcopy(ARGUMENTS[method])
            target = args[place[0]] if place else args
            target["extra"] = value
            assert refusal_of(method, args).detail == ".".join((*place, "extra")) + ": is not a field here"


REQUIRED = {
    "run_id",
    "agent_id",
    "event_key",
    "type",
    "timestamp",
    "payload",
    "started_at",
    "created_at",
    "ended_at",
    "reason",
    "status",
    "limit",
    "checkpoint",
    "record",
    "run",
    "started",
    "canceled",
    "parent_linked",
    "id",
}


def fields_of(args: Json, place: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, value in args.items():
        found.append((*place, name))
        if isinstance(value, dict) and name != "labels":
            found += fields_of(value, (*place, name))
    return found


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("null", [True, False])
def test_a_field_may_be_absent_only_where_empty_is_legal(method: str, null: bool) -> None:
    for place in fields_of(ARGUMENTS[method]):
        args = copy.deepcopy(ARGUMENTS[method])
        target = args
        for name in place[:-1]:
            target = target[name]
        if null:
            target[place[-1]] = None
        else:
            del target[place[-1]]
        name = place[-1]
        required = name in REQUIRED or (name == "session_id" and len(place) == 1 and method != "load_session_status")
        if required:
            assert refusal_of(method, args).detail == ".".join(place) + ": is missing"
        else:
            assert not isinstance(read(METHODS[method].arguments, args), Refusal), place


@pytest.mark.parametrize("method", ["load_session", "list_runs_by_session", "list_session_records"])
def test_a_session_to_read_is_not_the_empty_one(method: str) -> None:
    assert refusal_of(method, ARGUMENTS[method] | {"session_id": ""}).detail == "session_id: must not be empty"


def test_the_status_of_no_session_may_be_asked() -> None:
    for args in ({}, {"session_id": ""}, {"session_id": None}):
        assert not isinstance(read(METHODS["load_session_status"].arguments, args), Refusal)


@pytest.mark.parametrize(
    ("args", "detail"),
    [
        ({"record": record_args(event_key=7)}, "record.event_key: must be a text"),
        ({"record": record_args(session_id=False)}, "record.session_id: must be a text"),
        ({"record": record_args(id="0001")}, "record.id: is not a field here"),
        ({"record": record_args(payload={})}, "record.payload: must be a text that holds the JSON text"),
        (
            {"record": record_args(payload='"\ud800"')},
            "record.payload: holds a lone surrogate, which no UTF-8 bytes stand for",
        ),
        ({"record": record_args(timestamp=NOON)}, "record.timestamp: must be a time as text"),
        ({"record": "x"}, "record: must be an object"),
        ([], "the arguments: must be an object"),
        (None, "the arguments: must be an object"),
        ("x", "the arguments: must be an object"),
    ],
)
def test_what_has_another_shape_is_told_by_its_path(args: Any, detail: str) -> None:
    assert refusal_of("append_record", args).detail == detail


@pytest.mark.parametrize("text", ["2026-11-30T14:56:46.8121Z", "2026-11-30", "1969-12-31T23:59:59Z", ""])
def test_a_time_is_refused_with_the_rule(text: str) -> None:
    refusal = refusal_of("create_session", {"session_id": "s", "created_at": text})
    assert refusal.detail.startswith("created_at: must be RFC 3339 in UTC")
    assert refusal.ids == {"session_id": "s"}


@pytest.mark.parametrize("limit", [0, 1001, -1, True, 1.0, 10.5, "10", 10**40])
def test_a_limit_is_a_whole_number_from_1_to_1000(limit: Any) -> None:
    refusal = refusal_of("list_run_records", {"run_id": "r", "limit": limit})
    assert refusal.detail.startswith("limit: must be ")


@pytest.mark.parametrize("limit", [1, 1000])
def test_the_limits_of_a_limit_are_in(limit: int) -> None:
    assert not isinstance(read(METHODS["list_run_records"].arguments, {"run_id": "r", "limit": limit}), Refusal)


@pytest.mark.parametrize("data", ["AA", "AA=", "A-_=", "AAE C", "AAEC\n", "AB==", "Ä===", "====", 5, []])
def test_a_checkpoint_is_standard_base64(data: Any) -> None:
    args = {"run_id": "r", "checkpoint": {"id": "c", "data": data}, "record": record_args()}
    assert refusal_of("record_suspension", args).detail.startswith("checkpoint.data: ")


@pytest.mark.parametrize(
    ("sent", "kept"), [("", b""), (None, b""), (..., b""), ("AA==", b"\x00"), ("+/+/", b"\xfb\xff\xbf")]
)
def test_checkpoint_bytes_are_kept(sent: Any, kept: bytes) -> None:
    checkpoint = {"id": "c"} if sent is ... else {"id": "c", "data": sent}
    command = command_of("record_suspension", {"run_id": "r", "checkpoint": checkpoint, "record": record_args()})
    assert isinstance(command, commands.RecordSuspension)
    assert command.checkpoint == Checkpoint("c", kept)


@pytest.mark.parametrize("status", ["running", "suspended", "done", "Completed", 1, ["completed"]])
def test_a_terminal_status_is_one_of_three(status: Any) -> None:
    refusal = refusal_of("record_terminal", ARGUMENTS["record_terminal"] | {"status": status})
    assert refusal.detail == "status: must be one of 'completed', 'failed' or 'canceled'"


@pytest.mark.parametrize("statuses", ["running", ["running", "nope"], [None], {}, [1]])
def test_statuses_are_an_array_of_known_ones(statuses: Any) -> None:
    assert refusal_of("list_runs_by_session", {"session_id": "s", "statuses": statuses}).detail.startswith("statuses")


@pytest.mark.parametrize("labels", [{"secret-key": 1}, {"secret-key": None}, ["secret-value"], "secret-value"])
def test_labels_are_texts_and_are_never_repeated(labels: Any) -> None:
    args = ARGUMENTS["start_root_run"] | {"run": run_args(labels=labels)}
    refusal = refusal_of("start_root_run", args)
    assert refusal.detail.startswith("run.labels: must be ")
    assert "secret" not in refusal.detail


def test_payloads_and_checkpoints_are_never_repeated() -> None:
    secret = ["secret"]
    refused = [
        refusal_of("append_record", {"record": record_args(payload=secret)}),
        refusal_of("append_record", {"record": record_args(payload="secret\ud800")}),
        refusal_of(
            "record_suspension",
            {"run_id": "r", "checkpoint": {"id": "c", "data": "secret!"}, "record": record_args()},
        ),
    ]
    assert [refusal for refusal in refused if "secret" in str(refusal)] == []


def test_a_refusal_names_the_ids_of_the_command() -> None:
    args = ARGUMENTS["start_child_run"] | {"run": run_args(parent_run_id="run-0", started_at="?")}
    assert refusal_of("start_child_run", args).ids == {
        "session_id": "sess-1",
        "run_id": "run-1",
        "parent_run_id": "run-0",
        "agent_id": "demo.chat",
    }


def test_a_refusal_names_no_id_that_cannot_be_one() -> None:
    args = {"record": record_args(run_id="x" * 513, session_id="a\ud800", event_key=3)}
    assert refusal_of("append_record", args).ids == {"agent_id": "demo.chat"}


def test_a_long_unknown_name_is_cut() -> None:
    refusal = refusal_of("load_run", {"run_id": "r", "x" * 5000: 1})
    assert refusal.detail == "x" * 64 + "…: is not a field here"


def test_a_root_start_is_handed_over_whole() -> None:
    args = {
        "run": run_args(labels=None, parent_run_id=None, predecessor_run_id="run-0"),
        "started": record_args(payload='{"a":"ä \\ud800"}', turn_id=None),
        "canceled": record_args(event_key="c"),
    }
    command = command_of("start_root_run", args)
    record = NewRecord("run-1/2", "run-1", "demo.chat", "sess-1", "", "usage", NOON, '{"a":"ä \\ud800"}'.encode())
    assert command == commands.StartRootRun(
        RunStart("demo.chat", "run-1", NOON, "sess-1", "", "run-0", {}),
        record,
        NewRecord("c", "run-1", "demo.chat", "sess-1", "turn-1", "usage", NOON, b"{}"),
    )


@pytest.mark.parametrize("method", [name for name, m in METHODS.items() if issubclass(m.arguments, CommandArguments)])
def test_every_field_reaches_the_command(method: str) -> None:
    command = command_of(method, ARGUMENTS[method])
    expected = {
        name: value if isinstance(value, str) and name not in ("created_at", "ended_at", "status") else ...
        for name, value in ARGUMENTS[method].items()
    }
    assert type(command).__name__.lower() == method.replace("_", "")
    assert set(type(command).__dataclass_fields__) == set(expected)
    for name, value in expected.items():
        if value is not ...:
            assert getattr(command, name) == value
    if "status" in expected:
        assert command.status is RunStatus(ARGUMENTS[method]["status"])  # type: ignore[union-attr]
    for name in ("record", "started", "canceled", "parent_linked"):
        if name in expected:
            assert getattr(command, name).run_id == ARGUMENTS[method][name]["run_id"]
