"""Recorded runs, read back: what a runtime wrote is what its views tell."""

from __future__ import annotations

import itertools
from typing import Any
from urllib.parse import quote

import pytest

from tests.contract.clients import Client
from tests.traces.replay import FOLDER, replay

pytestmark = pytest.mark.asyncio(loop_scope="session")

CHILD = "run-c1/agent/research.ask/call-4db7a407ba487030"
numbers = itertools.count(1)


class Told:
    """A recorded story in a store, and its views; IDs as they were recorded."""

    def __init__(self, store: Client, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    async def view(self, run_id: str, name: str, **query: Any) -> Any:
        """A view of a run."""
        return await self._store.get(f"/v1/runs/{quote(self._prefix + run_id, safe='')}/{name}", **query)

    def ids(self, runs: list[Any]) -> list[str]:
        """The IDs of runs as they were recorded."""
        return [run["run_id"].removeprefix(self._prefix) for run in runs]


async def told(store: Client, story: str) -> Told:
    """Tell a story that nobody else tells."""
    prefix = f"views-{next(numbers)}/"
    await replay(store, FOLDER / f"{story}.jsonl", prefix)
    return Told(store, prefix)


@pytest.mark.parametrize(
    ("story", "run_id", "roles", "bedrock"),
    [
        ("b_tools", "run-b1", ["user", "assistant", "user", "assistant"], True),
        ("c_child", "run-c1", ["user", "assistant", "user", "assistant"], False),
        ("c_child", CHILD, ["user", "assistant"], True),
        ("e_suspended", "run-e1", ["user"], True),
        ("e_suspended", "run-e2", ["user", "user", "assistant"], True),
        ("h_prompts", "run-h2", ["user", "assistant"], True),
    ],
)
async def test_transcripts(store: Client, story: str, run_id: str, roles: list[str], *, bedrock: bool) -> None:
    shown = await (await told(store, story)).view(run_id, "transcript")
    assert [each["message"]["role"] for each in shown["messages"]] == roles
    assert [each["seed"] for each in shown["messages"]] == [True] + [False] * (len(roles) - 1)
    assert (shown["planner"]["valid"], shown["bedrock"]["valid"]) == (True, bedrock)


@pytest.mark.parametrize(
    ("story", "run_id", "expected"),
    [
        ("b_tools", "run-b1", [("toolu_01", "weather.lookup"), ("toolu_02", "weather.lookup")]),
        ("c_child", "run-c1", [("toolu_p1", "research.ask")]),
        ("c_child", CHILD, []),
    ],
)
async def test_tool_calls(store: Client, story: str, run_id: str, expected: list[tuple[str, str]]) -> None:
    """The runtime of these traces used the provider's ID for its own too, and did not tell it apart."""
    calls = (await (await told(store, story)).view(run_id, "tool-calls"))["tool_calls"]
    assert [(each["tool_call_id"], each["tool_name"]) for each in calls] == expected
    assert all(each["scheduled"] < each["result"] and each["failed"] is False for each in calls)
    assert [each["model_tool_call_id"] for each in calls] == [None] * len(expected)


@pytest.mark.parametrize(
    ("story", "run_id", "expected"),
    [
        ("c_child", "run-c1", [("demo.chat.system", "v1", "run-c1"), ("demo.chat.style", "v3", CHILD)]),
        ("c_child", CHILD, [("demo.chat.style", "v3", CHILD)]),
        ("h_prompts", "run-h2", [("demo.chat.system", "v1", "run-h2"), ("demo.chat.style", "v3", "run-h2")]),
        ("e_suspended", "run-e2", []),
    ],
)
async def test_prompts(store: Client, story: str, run_id: str, expected: list[tuple[str, str, str]]) -> None:
    there = await told(store, story)
    shown = (await there.view(run_id, "prompts", predecessors="true"))["prompts"]
    runs = there.ids(shown)
    assert [(each["prompt_id"], each["version"], run) for each, run in zip(shown, runs, strict=True)] == expected


async def test_families(store: Client) -> None:
    there = await told(store, "c_child")
    tree = await there.view("run-c1", "tree")
    assert there.ids([tree["run"], *(each["run"] for each in tree["children"])]) == ["run-c1", CHILD]
    assert (tree["children"][0]["tool_name"], tree["children"][0]["tool_call_id"]) == ("research.ask", "toolu_p1")
    there = await told(store, "e_suspended")
    assert there.ids((await there.view("run-e2", "tree"))["predecessors"]) == ["run-e1"]
    assert there.ids((await there.view("run-e1", "tree"))["successors"]) == ["run-e2"]


async def test_model_input(store: Client) -> None:
    shown = await (await told(store, "b_tools")).view("run-b1", "model-input", keep_turns=1)
    assert (len(shown["messages"]), len(shown["kept"]), shown["older"]) == (4, 4, [])
    uses = [part["input"] for part in shown["messages"][1]["parts"] if part["kind"] == "tool_use"]
    assert uses[0] == {"city": "Paris", "n": 9007199254740993, "x": 1.50}
