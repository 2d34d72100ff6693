"""The tool calls of a run, each with its result, and the two IDs of each."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.builders import Json, Run, compact
from tests.contract.reading import view
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")

SCHEDULED = "tool_call_scheduled"
RECEIVED = "tool_result_received"


def scheduled(call: str, model: str | None = None, tool: str = "t") -> tuple[str, str]:
    """A record that schedules a call, by type and payload."""
    value: Json = {"ToolCallID": call, "ToolName": tool, "Payload": {"tool_call_id": "inner"}, "Queue": ""}
    return SCHEDULED, compact(value if model is None else {**value, "ModelToolCallID": model})


def received(call: str, failure: Any = None, tool: str = "t") -> tuple[str, str]:
    """A record of a result, by type and payload."""
    value = {"call_run_id": "r", "tool_call_id": call, "tool_name": tool, "duration": 1}
    return RECEIVED, compact({**value, **({"failure": failure} if failure else {"result_json": 1})})


async def told(scene: Scene, *records: tuple[str, str], run: Run | None = None) -> list[tuple[Any, ...]]:
    """The calls that these records make: IDs, name, and by number from 1 the records that scheduled and ended them."""
    run = await scene.run() if run is None else run
    for number, (kind, payload) in enumerate(records, 1):
        await scene.do(run.append(str(number), payload, kind))
    numbers = {record["id"]: record["event_key"] for record in await scene.records(run)}
    shown = await view(scene, run, "tool-calls")
    assert set(shown) == {"tool_calls"}
    fields = {"tool_call_id", "model_tool_call_id", "tool_name", "scheduled", "result", "failed"}
    assert all(set(each) == fields for each in shown["tool_calls"])
    return [
        (
            each["tool_call_id"],
            each["model_tool_call_id"],
            each["tool_name"],
            None if each["scheduled"] is None else int(numbers[each["scheduled"]]),
            None if each["result"] is None else int(numbers[each["result"]]),
            each["failed"],
        )
        for each in shown["tool_calls"]
    ]


async def test_a_call_is_told_with_its_result_and_both_ids(scene: Scene) -> None:
    calls = (scheduled("c1", "m1"), scheduled("c2", "m2", "u"), received("c2", {"kind": "x"}, "u"), received("c1"))
    assert await told(scene, *calls) == [("c1", "m1", "t", 1, 4, False), ("c2", "m2", "u", 2, 3, True)]


async def test_an_open_call_has_no_result(scene: Scene) -> None:
    assert await told(scene, scheduled("c1", "m1")) == [("c1", "m1", "t", 1, None, False)]


async def test_a_run_without_calls_has_none(scene: Scene) -> None:
    assert await told(scene, ("tool_call_updated", '{"ToolCallID":"c1"}')) == []


@pytest.mark.parametrize("model", [None, ""])
async def test_a_call_may_have_no_id_of_the_model(scene: Scene, model: str | None) -> None:
    assert await told(scene, scheduled("c1", model), received("c1")) == [("c1", None, "t", 1, 2, False)]


async def test_the_two_ids_are_never_joined(scene: Scene) -> None:
    calls = (scheduled("a", "b"), scheduled("b", "a"), received("b"), received("a", {"kind": "x"}))
    assert await told(scene, *calls) == [("a", "b", "t", 1, 4, True), ("b", "a", "t", 2, 3, False)]


async def test_a_result_is_not_joined_by_the_models_id(scene: Scene) -> None:
    calls = (scheduled("c1", "m1"), received("m1"))
    assert await told(scene, *calls) == [("c1", "m1", "t", 1, None, False), ("m1", None, "t", None, 2, False)]


async def test_one_string_may_be_both_ids(scene: Scene) -> None:
    assert await told(scene, scheduled("x", "x"), received("x")) == [("x", "x", "t", 1, 2, False)]


async def test_a_doubled_result_changes_nothing(scene: Scene) -> None:
    calls = (scheduled("c1", "m1"), received("c1"), received("c1", {"kind": "x"}))
    assert await told(scene, *calls) == [("c1", "m1", "t", 1, 2, False)]


async def test_a_call_scheduled_twice_is_one_call(scene: Scene) -> None:
    calls = (scheduled("c1", "m1"), scheduled("c1", "m2", "u"), received("c1"))
    assert await told(scene, *calls) == [("c1", "m1", "t", 1, 3, False)]


async def test_an_early_result_belongs_to_its_call(scene: Scene) -> None:
    calls = (received("c1", tool="early"), scheduled("c2"), scheduled("c1", "m1"))
    assert await told(scene, *calls) == [("c1", "m1", "t", 3, 1, False), ("c2", None, "t", 2, None, False)]


async def test_a_result_of_no_call_is_told_too(scene: Scene) -> None:
    assert await told(scene, received("c1", tool="u")) == [("c1", None, "u", None, 1, False)]


async def test_records_without_an_id_are_joined_with_nothing(scene: Scene) -> None:
    calls = (scheduled("", "m1"), received(""), scheduled("", "m1"))
    assert await told(scene, *calls) == [
        ("", "m1", "t", 1, None, False),
        ("", None, "t", None, 2, False),
        ("", "m1", "t", 3, None, False),
    ]


async def test_calls_of_other_runs_are_not_told(scene: Scene) -> None:
    run = await scene.run()
    child = await scene.child(run)
    await scene.do(child.append("1", scheduled("c1")[1], SCHEDULED))
    assert await told(scene, received("c1"), run=run) == [("c1", None, "t", None, 1, False)]


@pytest.mark.parametrize("kind", [SCHEDULED, RECEIVED])
@pytest.mark.parametrize("payload", ["null", "7", "[]", '{"ToolCallID":7,"tool_call_id":7}'])
async def test_a_call_of_another_shape_is_shown_as_it_is(scene: Scene, kind: str, payload: str) -> None:
    run = await scene.run()
    await scene.do(run.append("1", scheduled("c1")[1], SCHEDULED))
    await scene.do(run.append("2", payload, kind))
    record = (await scene.records(run))[-1]
    shown = await view(scene, run, "tool-calls")
    assert [each["tool_call_id"] for each in shown["tool_calls"]] == ["c1"]
    assert [each["record"] for each in shown["unreadable"]] == [record]
