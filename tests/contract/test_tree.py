"""The family of a run."""

from __future__ import annotations

import pytest

from tests.contract.builders import Json, Run
from tests.contract.reading import view
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def meta(scene: Scene, run: Run) -> Json:
    answer: Json = (await scene.client.call("load_run", {"run_id": run.run_id}))["run"]
    return answer


def ids(runs: list[Json]) -> list[str]:
    return [each["run_id"] for each in runs]


def shape(tree: Json) -> Json:
    """A tree by its runs' IDs."""
    return {tree["run"]["run_id"]: [shape(child) for child in tree["children"]]}


@pytest.mark.parametrize("family", ["session", "one shot"])
async def test_a_tree_is_a_run_with_its_descendants(scene: Scene, family: str) -> None:
    run = await (scene.run() if family == "session" else scene.one_shot())
    first, second = await scene.child(run), await scene.child(run)
    below = await scene.child(first)
    third = await scene.child(run, "completed")
    lowest = await scene.child(below)
    tree = await view(scene, run, "tree")
    assert shape(tree) == {
        run.run_id: [
            {first.run_id: [{below.run_id: [{lowest.run_id: []}]}]},
            {second.run_id: []},
            {third.run_id: []},
        ]
    }
    assert set(tree) == {"run", "children", "predecessors", "successors"}
    assert (tree["run"], tree["predecessors"], tree["successors"]) == (await meta(scene, run), [], [])
    for child, at in ((first, 0), (second, 1), (third, 2)):
        shown = tree["children"][at]
        assert set(shown) == {"run", "children", "tool_name", "tool_call_id"}
        assert shown["run"] == await meta(scene, child)
        assert (shown["tool_name"], shown["tool_call_id"]) == ("research.ask", "call-1")
    assert shape(await view(scene, below, "tree")) == {below.run_id: [{lowest.run_id: []}]}


async def test_a_run_alone_is_a_tree(scene: Scene) -> None:
    run = await scene.one_shot()
    assert await view(scene, run, "tree") == {
        "run": await meta(scene, run),
        "children": [],
        "predecessors": [],
        "successors": [],
    }


async def test_a_tree_holds_200_children(scene: Scene) -> None:
    run = await scene.run()
    children = [scene.new_child(run) for _ in range(200)]
    for child in children:
        await scene.do(child.start())
    tree = await view(scene, run, "tree")
    assert [each["run"]["run_id"] for each in tree["children"]] == [child.run_id for child in children]
    assert all(each["children"] == [] for each in tree["children"])
    assert tree["children"][-1]["run"] == await meta(scene, children[-1])


async def test_a_tree_may_be_deep(scene: Scene) -> None:
    runs = [await scene.one_shot()]
    for _ in range(60):
        runs.append(await scene.child(runs[-1]))
    tree = await view(scene, runs[0], "tree")
    for run in runs:
        assert tree["run"]["run_id"] == run.run_id
        tree = tree["children"][0] if tree["children"] else {}
    assert tree == {}


async def test_a_chain_of_50_continuations_is_told_nearest_first(scene: Scene) -> None:
    runs = [await scene.run()]
    for _ in range(50):
        await scene.do(runs[-1].suspend())
        runs.append(await scene.run(runs[-1].session_id, predecessor=runs[-1].run_id))
    names = [run.run_id for run in runs]
    tree = await view(scene, runs[-1], "tree")
    assert ids(tree["predecessors"]) == names[-2::-1]
    assert tree["predecessors"][0] == await meta(scene, runs[-2])
    assert (tree["successors"], tree["children"]) == ([], [])
    middle = await view(scene, runs[20], "tree")
    assert ids(middle["predecessors"]) == names[19::-1]
    assert ids(middle["successors"]) == [names[21]]


async def test_all_that_continue_a_run_are_told(scene: Scene) -> None:
    run = await scene.run(status="suspended")
    after = [await scene.run(run.session_id, predecessor=run.run_id) for _ in range(3)]
    tree = await view(scene, run, "tree")
    assert ids(tree["successors"]) == [each.run_id for each in after]
    assert tree["successors"][0] == await meta(scene, after[0])


async def test_a_child_and_the_run_that_continues_it_are_both_children(scene: Scene) -> None:
    run = await scene.run()
    child = await scene.child(run, "suspended")
    after = await scene.started(scene.new_child(run, predecessor=child.run_id))
    assert shape(await view(scene, run, "tree")) == {run.run_id: [{child.run_id: []}, {after.run_id: []}]}
    tree = await view(scene, after, "tree")
    assert ids(tree["predecessors"]) == [child.run_id]


async def test_a_tree_shows_runs_as_they_stand(scene: Scene) -> None:
    run = await scene.run()
    child = await scene.child(run)
    before = await view(scene, run, "tree")
    await scene.do(child.end("failed"))
    after = await view(scene, run, "tree")
    told = [tree["children"][0]["run"]["status"] for tree in (before, after)]
    assert told == ["running", "failed"]


async def test_the_family_is_found_wherever_the_directory_entries_lie(scene: Scene) -> None:
    session_id = await scene.session(partition=1)
    run = await scene.run(session_id, partition=6)
    children = [await scene.child(run, partition=partition) for partition in range(8)]
    assert shape(await view(scene, run, "tree")) == {run.run_id: [{child.run_id: []} for child in children]}
