"""Lifecycle payloads: exactly one JSON object of the right fields, kept as it was written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.contract.builders import Command, Run, compact
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")

Prepared = Callable[[Scene], Awaitable[tuple[Command, str, Run]]]
"""A command that is accepted, the name of its lifecycle record, and the run that the record is stored on."""


async def root(scene: Scene) -> tuple[Command, str, Run]:
    run = scene.new_run(await scene.session())
    return run.start(), "started", run


async def stopped(scene: Scene) -> tuple[Command, str, Run]:
    run = scene.new_run(await scene.session("ended"))
    return run.start(), "canceled", run


async def child(scene: Scene) -> tuple[Command, str, Run]:
    parent = await scene.run()
    return scene.new_child(parent).start(), "parent_linked", parent


async def one_shot_child(scene: Scene) -> tuple[Command, str, Run]:
    parent = await scene.one_shot()
    return scene.new_child(parent).start(), "parent_linked", parent


async def intent(scene: Scene) -> tuple[Command, str, Run]:
    run = await scene.run()
    return run.cancel(), "record", run


async def suspension(scene: Scene) -> tuple[Command, str, Run]:
    run = await scene.run()
    return run.suspend(), "record", run


async def repaired_suspension(scene: Scene) -> tuple[Command, str, Run]:
    run = await scene.run()
    return run.repair_suspension(), "record", run


async def completed(scene: Scene) -> tuple[Command, str, Run]:
    run = await scene.run()
    return run.end("completed"), "record", run


async def failed(scene: Scene) -> tuple[Command, str, Run]:
    run = await scene.run()
    return run.end("failed"), "record", run


async def canceled(scene: Scene) -> tuple[Command, str, Run]:
    run = await scene.run()
    return run.end("canceled"), "record", run


async def repaired(scene: Scene) -> tuple[Command, str, Run]:
    run = await scene.run()
    return run.repair_terminal(), "record", run


STARTS: list[Prepared] = [root, stopped, child, one_shot_child]
CHANGES: list[Prepared] = [intent, suspension, repaired_suspension, completed, failed, canceled, repaired]
EVERY = [*STARTS, *CHANGES]

every = pytest.mark.parametrize("prepared", EVERY, ids=lambda prepared: prepared.__name__)


async def takes(scene: Scene, prepared: Prepared, payload: str) -> None:
    """The payload is accepted and given back byte for byte."""
    command, record, run = await prepared(scene)
    await scene.do(command.but(f"{record}.payload", payload))
    assert await scene.payload_of(run, command.at(f"{record}.event_key")) == payload


async def refuses(scene: Scene, prepared: Prepared, payload: object) -> None:
    """The payload is refused, and nothing is written."""
    command, record, _ = await prepared(scene)
    await scene.refuses("invalid_command", command.but(f"{record}.payload", payload))


# What holds for all of them


@every
async def test_a_valid_payload_is_taken_and_kept(scene: Scene, prepared: Prepared) -> None:
    command, record, run = await prepared(scene)
    await scene.do(command)
    stored = await scene.payload_of(run, command.at(f"{record}.event_key"))
    assert stored == command.at(f"{record}.payload")


@every
@pytest.mark.parametrize(
    "payload",
    [
        "null",
        "[]",
        "7",
        '"text"',
        "true",
        "",
        " ",
        "{",
        "{}}",
        "{},",
        "\ufeff{}",
        "NaN",
        "nul",
        '{"labels":NaN}',
        "{'a':1}",
    ],
    ids=ascii,
)
async def test_a_payload_is_exactly_one_json_object(scene: Scene, prepared: Prepared, payload: str) -> None:
    await refuses(scene, prepared, payload)


@every
@pytest.mark.parametrize("more", ["{}", "null", "x", ",", "\u00a0", "\x00", "// note"], ids=ascii)
async def test_nothing_may_stand_after_the_value(scene: Scene, prepared: Prepared, more: str) -> None:
    command, record, _ = await prepared(scene)
    await scene.refuses("invalid_command", command.but(f"{record}.payload", command.at(f"{record}.payload") + more))


@every
async def test_white_space_may_stand_around_and_inside_and_is_kept(scene: Scene, prepared: Prepared) -> None:
    command, record, run = await prepared(scene)
    payload = command.at(f"{record}.payload").replace(":", " :\t").replace(",", "\n,\r\n")
    payload = f" \t\r\n{payload}\n "
    await scene.do(command.but(f"{record}.payload", payload))
    assert await scene.payload_of(run, command.at(f"{record}.event_key")) == payload


@every
@pytest.mark.parametrize("more", [{"unknown": None}, {"Labels": {}}, {"": 1}, {"STATUS": "success"}], ids=compact)
async def test_an_unknown_field_is_refused(scene: Scene, prepared: Prepared, more: dict[str, object]) -> None:
    command, record, _ = await prepared(scene)
    await scene.refuses("invalid_command", command.payload_but(record, **more))


@every
async def test_a_field_in_another_case_is_refused(scene: Scene, prepared: Prepared) -> None:
    command, record, _ = await prepared(scene)
    payload = command.at(f"{record}.payload")
    swapped = '{"Labels":{}}' if payload == "{}" else "".join((payload[:2], payload[2].swapcase(), payload[3:]))
    await scene.refuses("invalid_command", command.but(f"{record}.payload", swapped))


@every
async def test_a_field_that_stands_twice_is_refused(scene: Scene, prepared: Prepared) -> None:
    command, record, _ = await prepared(scene)
    payload = command.at(f"{record}.payload")
    if payload == "{}":
        twice = '{"labels":{},"labels":{}}'
    else:
        name = payload[1 : payload.index(":")]
        value = payload[payload.index(":") + 1 :].split(",")[0].rstrip("}")
        twice = f"{{{name}:{value},{payload[1:]}"
    await scene.refuses("invalid_command", command.but(f"{record}.payload", twice))


@pytest.mark.parametrize("payload", [None, 7, {}, {"labels": {}}, ["{}"], True])
@every
async def test_a_payload_is_a_string_of_json(scene: Scene, prepared: Prepared, payload: object) -> None:
    await refuses(scene, prepared, payload)


# run_started


@pytest.mark.parametrize(
    "payload",
    [
        "{}",
        '{"parent_run_id":"","predecessor_run_id":"","labels":{}}',
        '{"parent_run_id":null,"predecessor_run_id":null,"labels":null}',
        '{"labels":{},"parent_run_id":""}',
        '{"l\\u0061bels":{}}',
    ],
)
async def test_all_fields_of_run_started_are_optional(scene: Scene, payload: str) -> None:
    await takes(scene, root, payload)


@pytest.mark.parametrize(
    "payload",
    [
        '{"parent_run_id":7}',
        '{"predecessor_run_id":[]}',
        '{"labels":[]}',
        '{"labels":"x"}',
        '{"labels":{"a":1}}',
        '{"labels":{"a":{}}}',
        '{"labels":{},"l\\u0061bels":{}}',
        '{"run_id":"x"}',
    ],
)
async def test_run_started_of_another_shape_is_refused(scene: Scene, payload: str) -> None:
    await refuses(scene, root, payload)


async def test_a_label_that_stands_twice_is_refused(scene: Scene) -> None:
    run = scene.new_run(await scene.session(), labels={"a": "1"})
    await scene.refuses("invalid_command", run.start().but("started.payload", '{"labels":{"a":"1","a":"1"}}'))


async def test_labels_are_compared_as_values_whatever_their_escapes(scene: Scene) -> None:
    run = scene.new_run(await scene.session(), labels={"é": "<&>"})
    payload = '{"labels":{"\\u00e9":"\\u003c\\u0026\\u003e"}}'
    await scene.do(run.start().but("started.payload", payload))
    assert await scene.payload_of(run, run.started_key) == payload


# child_run_linked


@pytest.mark.parametrize("prepared", [child, one_shot_child])
@pytest.mark.parametrize("field", ["ToolName", "ToolCallID", "ChildRunID", "ChildAgentID"])
@pytest.mark.parametrize("value", ["", None, 7, ["x"], "gone"], ids=str)
async def test_every_field_of_a_link_is_a_text_that_is_not_empty(
    scene: Scene, prepared: Prepared, field: str, value: object
) -> None:
    command, record, _ = await prepared(scene)
    if value == "gone":
        link = {name: "x" for name in ("ToolName", "ToolCallID", "ChildRunID", "ChildAgentID") if name != field}
        link |= {"ChildRunID": command.at("run.run_id"), "ChildAgentID": command.at("run.agent_id")}
        link.pop(field, None)
        await scene.refuses("invalid_command", command.but(f"{record}.payload", compact(link)))
    else:
        await scene.refuses("invalid_command", command.payload_but(record, **{field: value}))


@pytest.mark.parametrize("text", [".", "a,b", "tool\nname", "x" * 2000, "run_stream_end"], ids=lambda text: text[:9])
async def test_a_tool_name_and_a_tool_call_id_are_any_text(scene: Scene, text: str) -> None:
    command, record, _ = await child(scene)
    answer = await scene.do(command.payload_but(record, ToolName=text, ToolCallID=text))
    assert answer["outcome"] == "proceed"


# runtime.cancellation_intent


@pytest.mark.parametrize(
    "payload", ["{}", '{"reason":""}', '{"reason":null}', '{"reason":7}', '{"reason":["user_request"]}']
)
async def test_an_intent_has_a_reason(scene: Scene, payload: str) -> None:
    await refuses(scene, intent, payload)


@pytest.mark.parametrize("payload", ['{"reason":"user\\u005frequest"}', '{ "reason" : "user_request" }'])
async def test_the_reason_of_an_intent_is_compared_as_a_value(scene: Scene, payload: str) -> None:
    await takes(scene, intent, payload)


# run_suspended


@pytest.mark.parametrize("prepared", [suspension, repaired_suspension])
@pytest.mark.parametrize(
    "payload",
    [
        '{"SuspensionID":"checkpoint-1"}',
        '{"SuspensionID":"checkpoint-1","Version":null,"PendingCount":null,"RequiredTools":null}',
        '{"SuspensionID":"checkpoint-1","Version":"","PendingCount":0,"RequiredTools":[]}',
        '{"RequiredTools":["a","b"],"PendingCount":17,"Version":"v2","SuspensionID":"checkpoint-1"}',
    ],
)
async def test_only_the_suspension_id_is_required(scene: Scene, prepared: Prepared, payload: str) -> None:
    await takes(scene, prepared, payload)


@pytest.mark.parametrize("prepared", [suspension, repaired_suspension])
@pytest.mark.parametrize(
    "wrong",
    [
        {"SuspensionID": ""},
        {"SuspensionID": None},
        {"SuspensionID": 7},
        {"Version": 7},
        {"PendingCount": -1},
        {"PendingCount": 1.5},
        {"PendingCount": "1"},
        {"PendingCount": True},
        {"RequiredTools": "svc.lookup"},
        {"RequiredTools": {}},
        {"RequiredTools": ["svc.lookup", 7]},
        {"labels": {}},
    ],
    ids=compact,
)
async def test_run_suspended_of_another_shape_is_refused(
    scene: Scene, prepared: Prepared, wrong: dict[str, object]
) -> None:
    command, record, _ = await prepared(scene)
    await scene.refuses("invalid_command", command.payload_but(record, **wrong))


@pytest.mark.parametrize("prepared", [suspension, repaired_suspension])
async def test_a_suspension_without_its_id_is_refused(scene: Scene, prepared: Prepared) -> None:
    await refuses(scene, prepared, '{"Version":"v1","PendingCount":1,"RequiredTools":null}')


# run_completed

FULL_FAILURE = {
    "message": "m",
    "kind": "k",
    "debug_message": "d",
    "retryable": True,
    "provider": "p",
    "operation": "o",
    "code": "c",
    "http_status": 503,
}
EMPTY_FAILURE = {**dict.fromkeys(FULL_FAILURE), "message": "m", "kind": "k"}


@pytest.mark.parametrize(
    ("prepared", "payload"),
    [
        (completed, '{"status":"success","phase":"completed"}'),
        (completed, '{"phase":"completed","status":"success","labels":null}'),
        (completed, '{"status":"success","phase":"completed","labels":{}}'),
        (failed, '{"status":"failed","phase":"failed","failure":{"message":"m","kind":"k"}}'),
        (failed, compact({"status": "failed", "phase": "failed", "failure": FULL_FAILURE})),
        (failed, compact({"status": "failed", "phase": "failed", "failure": EMPTY_FAILURE, "labels": None})),
        (canceled, '{"status":"canceled","phase":"canceled","cancellation":{"reason":"engine_canceled"}}'),
        (canceled, '{"cancellation":{"reason":"engine_canceled"},"labels":{},"phase":"canceled","status":"canceled"}'),
        (stopped, '{"status":"canceled","phase":"canceled","cancellation":{"reason":"session_ended"},"labels":null}'),
    ],
)
async def test_a_completion_of_each_status_is_taken(scene: Scene, prepared: Prepared, payload: str) -> None:
    await takes(scene, prepared, payload)


FAILURE = '"failure":{"message":"m","kind":"k"}'
CANCELLATION = '"cancellation":{"reason":"engine_canceled"}'


@pytest.mark.parametrize(
    ("prepared", "payload"),
    [
        (completed, '{"status":"success"}'),
        (completed, '{"phase":"completed"}'),
        (completed, "{}"),
        (completed, '{"status":"success","phase":"failed"}'),
        (completed, '{"status":"completed","phase":"completed"}'),
        (completed, '{"status":"Success","phase":"completed"}'),
        (completed, '{"status":null,"phase":"completed"}'),
        (completed, f'{{"status":"success","phase":"completed",{FAILURE}}}'),
        (completed, f'{{"status":"success","phase":"completed",{CANCELLATION}}}'),
        (failed, '{"status":"failed","phase":"failed"}'),
        (failed, '{"status":"failed","phase":"failed","failure":null}'),
        (failed, '{"status":"failed","phase":"failed","failure":{}}'),
        (failed, '{"status":"failed","phase":"failed","failure":"m"}'),
        (failed, '{"status":"failed","phase":"failed","failure":{"message":"m"}}'),
        (failed, '{"status":"failed","phase":"failed","failure":{"kind":"k"}}'),
        (failed, '{"status":"failed","phase":"failed","failure":{"message":null,"kind":"k"}}'),
        (failed, '{"status":"failed","phase":"failed","failure":{"message":"m","kind":7}}'),
        (failed, '{"status":"failed","phase":"failed","failure":{"message":"m","kind":"k","retryable":"yes"}}'),
        (failed, '{"status":"failed","phase":"failed","failure":{"message":"m","kind":"k","http_status":"503"}}'),
        (failed, '{"status":"failed","phase":"failed","failure":{"message":"m","kind":"k","debug_message":7}}'),
        (failed, '{"status":"failed","phase":"failed","failure":{"message":"m","kind":"k","unknown":1}}'),
        (failed, '{"status":"failed","phase":"failed","failure":{"message":"m","kind":"k","Code":"c"}}'),
        (failed, '{"status":"failed","phase":"failed","failure":{"message":"m","kind":"k","kind":"k"}}'),
        (failed, f'{{"status":"failed","phase":"completed",{FAILURE}}}'),
        (failed, f'{{"status":"failed","phase":"failed",{FAILURE},{CANCELLATION}}}'),
        (canceled, '{"status":"canceled","phase":"canceled"}'),
        (canceled, '{"status":"canceled","phase":"canceled","cancellation":null}'),
        (canceled, '{"status":"canceled","phase":"canceled","cancellation":{}}'),
        (canceled, '{"status":"canceled","phase":"canceled","cancellation":{"reason":""}}'),
        (canceled, '{"status":"canceled","phase":"canceled","cancellation":{"reason":7}}'),
        (canceled, '{"status":"canceled","phase":"canceled","cancellation":"engine_canceled"}'),
        (canceled, '{"status":"canceled","phase":"canceled","cancellation":{"reason":"engine_canceled","by":"x"}}'),
        (canceled, f'{{"status":"canceled","phase":"canceled",{CANCELLATION},{FAILURE}}}'),
        (canceled, '{"status":"canceled","phase":"canceled","reason":"engine_canceled"}'),
        (stopped, '{"status":"canceled","phase":"canceled"}'),
        (stopped, '{"status":"canceled","phase":"canceled","cancellation":{}}'),
    ],
)
async def test_a_completion_of_another_shape_is_refused(scene: Scene, prepared: Prepared, payload: str) -> None:
    await refuses(scene, prepared, payload)
