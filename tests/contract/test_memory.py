"""Product memory: what is remembered of a run by an agent, apart from the runtime's own data."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import pytest

from schemas.refusals import Refused
from tests.contract import builders
from tests.contract.builders import LATER, PARTITIONS, STARTED, Json
from tests.contract.clients import Cloggable
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")

AGENT: Final = "agent.chat"
TYPES: Final = ("user_message", "assistant_message", "tool_call", "tool_result", "planner_note", "thinking")
ODD_TEXTS: Final = (
    '"\\ud800"',
    "123456789012345678901234567890",
    "1.10",
    '"\\u0000"',
    ' {"a": 1, "a": 2, "b": 1e400}\n',
    '"é\u2028 / \\/ \\u00e9"',
    "null",
)


def event(data: str = "{}", type_: str = "user_message", **fields: Any) -> Json:
    """An event as it is sent, and shown."""
    return {"type": type_, "timestamp": STARTED, "data": data, "labels": {}, **fields}


class Memory:
    """One memory in a scene."""

    def __init__(self, scene: Scene, agent_id: str = AGENT, run_id: str = "") -> None:
        self.client = scene.client
        self.ids = {"agent_id": agent_id, "run_id": run_id or scene.new_id("m")}

    async def append(self, *events: Any, **fields: Any) -> Json:
        return await self.client.call("memory/append_events", {**self.ids, "events": list(events), **fields})

    async def events(self) -> list[Json]:
        snapshot = await self.client.call("memory/load_run", self.ids)
        assert {name: snapshot[name] for name in self.ids} == self.ids
        assert snapshot.keys() == {"agent_id", "run_id", "events"}
        found: list[Json] = snapshot["events"]
        return found

    async def purge(self) -> Json:
        return await self.client.call("memory/purge_run", self.ids)

    async def refuses(self, args: Json, method: str = "append_events") -> str:
        """The call is `invalid_command`, and changes nothing of this memory."""
        before = await self.events()
        with pytest.raises(Refused) as refused:
            await self.client.call(f"memory/{method}", args)
        assert refused.value.code == "invalid_command"
        assert await self.events() == before
        return refused.value.refusal.detail


async def test_what_was_appended_is_loaded_in_order(scene: Scene) -> None:
    memory = Memory(scene)
    first = [event(f"{{{json.dumps(kind)}: 1.10}}", kind, labels={"kind": kind, "": ""}) for kind in TYPES]
    first = [{**each, "labels": {"kind": each["type"], "empty": ""}} for each in first]
    assert await memory.append(*first) == {}
    assert await memory.append(event("2", timestamp=LATER)) == {}
    assert await memory.append(event("1")) == {}
    assert await memory.events() == [*first, event("2", timestamp=LATER), event("1")]


async def test_without_a_history_a_memory_is_empty(scene: Scene) -> None:
    assert await Memory(scene).events() == []


async def test_no_events_change_nothing(scene: Scene) -> None:
    memory = Memory(scene)
    assert await memory.append() == {}
    assert await memory.append(events=None) == {}
    assert await memory.client.call("memory/append_events", memory.ids) == {}
    assert await memory.events() == []
    await memory.append(event("1"))
    assert await memory.append() == {}
    assert await memory.events() == [event("1")]


async def test_data_is_kept_exactly(scene: Scene) -> None:
    memory = Memory(scene)
    await memory.append(*map(event, ODD_TEXTS))
    assert [each["data"] for each in await memory.events()] == list(ODD_TEXTS)


async def test_labels_may_be_absent_null_or_empty(scene: Scene) -> None:
    memory = Memory(scene)
    await memory.append(event("1", labels=None))
    await memory.append(event("1"))
    without = event("1")
    del without["labels"]
    await memory.append(without)
    assert await memory.events() == [event("1")]


async def test_an_earlier_whole_append_again_is_a_retry(scene: Scene) -> None:
    memory = Memory(scene)
    appends = [[event("1"), event("2")], [event("3")], [event("4"), event("4")]]
    for each in appends:
        await memory.append(*each)
    for each in appends:
        assert await memory.append(*each) == {}
    assert await memory.events() == [one for each in appends for one in each]


@pytest.mark.parametrize(
    "change",
    [
        {"data": "2"},
        {"data": " 1"},
        {"type": "thinking"},
        {"timestamp": LATER},
        {"labels": {"a": "b"}},
    ],
    ids="-".join,
)
async def test_an_append_that_differs_in_anything_is_another(scene: Scene, change: Json) -> None:
    memory = Memory(scene)
    await memory.append(event("1"), event("1"))
    for events in ([event("1"), {**event("1"), **change}], [{**event("1"), **change}, event("1")]):
        await memory.append(*events)
    assert len(await memory.events()) == 6


async def test_a_part_of_an_append_or_two_of_them_joined_are_no_retry(scene: Scene) -> None:
    memory = Memory(scene)
    await memory.append(event("1"), event("2"))
    await memory.append(event("1"))
    await memory.append(event("2"))
    await memory.append(event("2"), event("1"))
    await memory.append(event("1"), event("2"), event("1"))
    assert [each["data"] for each in await memory.events()] == ["1", "2", "1", "2", "2", "1", "1", "2", "1"]


async def test_the_order_of_labels_says_nothing(scene: Scene) -> None:
    memory = Memory(scene)
    await memory.append(event(labels={"a": "1", "b": "2"}))
    await memory.append(event(labels={"b": "2", "a": "1"}))
    assert len(await memory.events()) == 1


async def test_equal_appends_at_once_are_one(scene: Scene) -> None:
    memory = Memory(scene)
    await asyncio.gather(*(memory.append(event("1"), event("2")) for _ in range(8)))
    assert await memory.events() == [event("1"), event("2")]


async def test_different_appends_at_once_are_all_kept_whole(scene: Scene) -> None:
    memory = Memory(scene)
    await asyncio.gather(*(memory.append(event(f"{number}"), event(f"-{number}")) for number in range(10, 30)))
    numbers = [int(each["data"]) for each in await memory.events()]
    assert sorted(numbers[::2]) == list(range(10, 30))
    assert [-number for number in numbers[::2]] == numbers[1::2]


async def test_memories_of_other_agents_and_runs_are_apart(scene: Scene) -> None:
    run_id = scene.new_id("m")
    # The last two join to the same text.
    memories = [
        Memory(scene, "a", run_id),
        Memory(scene, "b", run_id),
        Memory(scene, "a", f"{run_id}x"),
        Memory(scene, "a:b", run_id),
        Memory(scene, "a", f"b:{run_id}"),
        Memory(scene, "a/b", run_id),
        Memory(scene, "a", f"b/{run_id}"),
    ]
    for number, memory in enumerate(memories):
        await memory.append(event(str(number)))
    assert [await memory.events() for memory in memories] == [[event(str(number))] for number in range(7)]
    await memories[3].purge()
    assert [len(await memory.events()) for memory in memories] == [1, 1, 1, 0, 1, 1, 1]


async def test_memory_works_in_every_partition(scene: Scene) -> None:
    memories: dict[int, Memory] = {}
    while len(memories) < PARTITIONS:
        memory = Memory(scene)
        memories.setdefault(builders.place(f"{AGENT}\0{memory.ids['run_id']}"), memory)
    for memory in memories.values():
        await memory.append(event())
        assert await memory.events() == [event()]
        await memory.purge()
        assert await memory.events() == []


async def test_a_purge_removes_all_and_a_later_append_starts_afresh(scene: Scene) -> None:
    memory = Memory(scene)
    for _ in range(3):
        await memory.append(event("1"))
        await memory.append(event("2"))
        assert await memory.purge() == {}
        assert await memory.events() == []
    # What was purged is no earlier append.
    await memory.append(event("2"))
    await memory.append(event("1"))
    assert await memory.events() == [event("2"), event("1")]


async def test_a_purge_again_or_of_nothing_changes_nothing(scene: Scene) -> None:
    memory = Memory(scene)
    assert await memory.purge() == {}
    await memory.append(event("1"))
    assert [await memory.purge(), await memory.purge()] == [{}, {}]
    assert await memory.events() == []


async def test_appends_and_purges_at_once_leave_whole_appends(scene: Scene) -> None:
    memory = Memory(scene)

    async def churn(number: int) -> None:
        for turn in range(4):
            await memory.append(event(f"{number}{turn}"), event(f"-{number}{turn}"))
            if number == 1:
                await memory.purge()

    await asyncio.gather(*map(churn, range(1, 5)))
    numbers = [int(each["data"]) for each in await memory.events()]
    assert [-number for number in numbers[::2]] == numbers[1::2]
    await memory.purge()
    assert await memory.events() == []


async def test_purging_a_session_leaves_memory_and_the_other_way_round(scene: Scene) -> None:
    run = await scene.run(status="completed")
    memory = Memory(scene, run.agent_id, run.run_id)
    other = await scene.run(status="completed")
    other_memory = Memory(scene, other.agent_id, other.run_id)
    for each in (memory, other_memory):
        await each.append(event("1"))
    await scene.do(builders.end_session(run.session_id))
    await scene.do(builders.purge_session(run.session_id))
    assert await memory.events() == [event("1")]
    await memory.append(event("2"))
    assert await memory.events() == [event("1"), event("2")]
    before = await scene.everything()
    await other_memory.purge()
    assert await other_memory.events() == []
    await scene.same(before)
    assert len(await scene.records(other)) == 2


async def test_memory_is_no_record_of_its_run(scene: Scene) -> None:
    run = await scene.run()
    before = await scene.everything()
    memory = Memory(scene, run.agent_id, run.run_id)
    await memory.append(event("1"))
    await scene.same(before)
    await scene.do(run.append("note/1", "{}"))
    assert await memory.events() == [event("1")]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"type": "note"}, "type"),
        ({"type": ""}, "type"),
        ({"type": None}, "type"),
        ({"timestamp": None}, "timestamp"),
        ({"timestamp": "2026-03-01T09:00:00.0001Z"}, "timestamp"),
        ({"timestamp": "1969-12-31T23:59:59.999Z"}, "timestamp"),
        ({"timestamp": 1}, "timestamp"),
        ({"data": None}, "data"),
        ({"data": ""}, "data"),
        ({"data": "{"}, "data"),
        ({"data": "1 2"}, "data"),
        ({"data": {}}, "data"),
        ({"data": "[" * 129 + "]" * 129}, "data"),
        ({"labels": {"": "x"}}, "labels"),
        ({"labels": {"a": 1}}, "labels"),
        ({"labels": {str(number): "" for number in range(65)}}, "labels"),
        ({"labels": {"a": "x" * 1024}}, "labels"),
        ({"labels": []}, "labels"),
        ({"id": "1"}, "id"),
    ],
)
async def test_an_event_of_another_form_refuses_the_whole_append(scene: Scene, change: Json, named: str) -> None:
    memory = Memory(scene)
    await memory.append(event("0"))
    wrong = {**event("2"), **change}
    detail = await memory.refuses({**memory.ids, "events": [event("1"), wrong, event("3")]})
    if scene.client.__class__.__name__ != "Model":
        assert f"events.1.{named}" in detail


@pytest.mark.parametrize("method", ["append_events", "load_run", "purge_run"])
@pytest.mark.parametrize("name", ["agent_id", "run_id"])
@pytest.mark.parametrize("value", [None, "", ".", "..", "a\nb", "x" * 513, 1])
async def test_the_ids_of_a_memory_follow_the_rules(scene: Scene, method: str, name: str, value: object) -> None:
    memory = Memory(scene)
    more: Json = {"events": []} if method == "append_events" else {}
    await memory.refuses({**memory.ids, **more, name: value}, method)
    await memory.refuses({**memory.ids, **more, "session_id": "s"}, method)


@pytest.mark.parametrize("events", [{}, "", [1], [None], [[]]])
async def test_events_are_an_array_of_objects(scene: Scene, events: object) -> None:
    memory = Memory(scene)
    await memory.refuses({**memory.ids, "events": events})


async def test_data_is_at_most_4_mib(scene: Scene) -> None:
    memory = Memory(scene)
    most = '"' + "x" * (4 * 1024 * 1024 - 2) + '"'
    await memory.append(event(most), event("1"))
    assert [each["data"] for each in await memory.events()] == [most, "1"]
    await memory.refuses({**memory.ids, "events": [event(most + " ")]})


async def test_while_nothing_can_be_written_memory_is_unavailable_and_unchanged(clogged: Cloggable, title: str) -> None:
    scene = Scene(clogged.client, title)
    memory, fresh = Memory(scene), Memory(scene)
    await memory.append(event("1"))
    await clogged.clog()
    for call in (memory.append(event("2")), fresh.append(event("1"))):
        task = asyncio.ensure_future(call)
        with pytest.raises(Refused) as refused:
            await asyncio.wait_for(task, 60)
        assert refused.value.code == "unavailable"
    await clogged.unclog()
    await memory.append(event("2"))
    await memory.append(event("2"))
    await fresh.append(event("1"))
    assert await memory.events() == [event("1"), event("2")]
    assert await fresh.events() == [event("1")]
