"""Continuation: a start that names a predecessor."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.contract import builders
from tests.contract.builders import Run, started_payload
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")

FAMILIES = ["root", "child"]


async def predecessor(scene: Scene, family: str, status: str = "suspended") -> Run:
    """A run of a family in some status."""
    if family == "root":
        return await scene.run(status=status)
    return await scene.child(await scene.run(), status)


def successor(scene: Scene, before: Run, **changes: Any) -> Run:
    """The run that continues another one, not started."""
    run = dataclasses.replace(before, run_id=scene.new_run().run_id, predecessor=before.run_id)
    return dataclasses.replace(run, **changes)


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_suspended_run_is_continued(scene: Scene, family: str) -> None:
    before = await predecessor(scene, family)
    run = successor(scene, before)
    answer = await scene.do(run.start())
    assert answer["outcome"] == "proceed"
    assert (await scene.load(run))["status"] == "running"
    assert (await scene.load(before))["status"] == "suspended"


@pytest.mark.parametrize("family", FAMILIES)
async def test_the_predecessor_stays_in_the_started_payload_only(scene: Scene, family: str) -> None:
    before = await predecessor(scene, family)
    run = await scene.started(successor(scene, before))
    assert await scene.payload_of(run, run.started_key) == started_payload(run.parent, before.run_id)
    answer = await scene.client.call("load_run", {"run_id": run.run_id})
    assert before.run_id not in str(answer["run"].values())
    answer = await scene.client.call("load_run", {"run_id": before.run_id})
    assert run.run_id not in str(answer["run"].values())


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_missing_predecessor_is_not_continued(scene: Scene, family: str) -> None:
    before = await predecessor(scene, family)
    await scene.refuses("run_not_found", successor(scene, before, predecessor=scene.new_run().run_id).start())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("status", ["running", "completed", "failed", "canceled"])
async def test_only_a_suspended_run_is_continued(scene: Scene, family: str, status: str) -> None:
    before = await predecessor(scene, family, status)
    await scene.refuses("continuation_mismatch", successor(scene, before).start())


async def test_a_run_that_its_session_stopped_is_not_continued(scene: Scene) -> None:
    await scene.refuses("continuation_mismatch", successor(scene, await scene.stopped()).start())


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_continuation_has_the_same_agent(scene: Scene, family: str) -> None:
    before = await predecessor(scene, family)
    await scene.refuses("continuation_mismatch", successor(scene, before, agent_id="agent.other").start())


async def test_a_continuation_has_the_same_session(scene: Scene) -> None:
    before = await predecessor(scene, "root")
    await scene.refuses("continuation_mismatch", successor(scene, before, session_id=await scene.session()).start())


async def test_a_continuation_in_a_session_continues_no_one_shot_run(scene: Scene) -> None:
    before = await scene.one_shot("suspended")
    await scene.refuses("continuation_mismatch", successor(scene, before, session_id=await scene.session()).start())


async def test_a_child_continues_no_root(scene: Scene) -> None:
    parent = await scene.run()
    before = await scene.run(parent.session_id, "suspended")
    await scene.refuses("continuation_mismatch", successor(scene, before, parent=parent.run_id).start())


async def test_a_root_continues_no_child(scene: Scene) -> None:
    before = await predecessor(scene, "child")
    await scene.refuses("continuation_mismatch", successor(scene, before, parent="").start())


async def test_a_child_continues_no_child_of_another_parent(scene: Scene) -> None:
    before = await predecessor(scene, "child")
    other = await scene.run(before.session_id)
    await scene.refuses("continuation_mismatch", successor(scene, before, parent=other.run_id).start())


async def test_a_mismatch_writes_no_parent_link_either(scene: Scene) -> None:
    before = await predecessor(scene, "child", "completed")
    run = successor(scene, before)
    await scene.refuses("continuation_mismatch", run.start())
    assert run.link_key not in await scene.keys(Run(before.parent))


async def test_a_suspended_parent_is_no_reason_to_take_a_child_for_its_continuation(scene: Scene) -> None:
    parent = await scene.run(status="suspended")
    child = scene.new_child(parent, predecessor=parent.run_id)
    await scene.refuses("continuation_mismatch", child.start())


@pytest.mark.parametrize("family", FAMILIES)
async def test_two_successors_of_one_predecessor_are_both_accepted(scene: Scene, family: str) -> None:
    before = await predecessor(scene, family)
    for _ in range(2):
        assert (await scene.do(successor(scene, before).start()))["outcome"] == "proceed"


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_continuation_of_a_continuation(scene: Scene, family: str) -> None:
    first = await predecessor(scene, family)
    second = await scene.started(successor(scene, first), "suspended")
    third = await scene.started(successor(scene, second))
    assert (await scene.load(third))["status"] == "running"


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_continuation_in_an_ended_session_is_stopped(scene: Scene, family: str) -> None:
    before = await predecessor(scene, family)
    await scene.do(builders.end_session(before.session_id))
    assert (await scene.do(successor(scene, before).start()))["outcome"] == "stop"


async def test_a_mismatch_in_an_ended_session_is_refused_all_the_same(scene: Scene) -> None:
    before = await predecessor(scene, "root", "completed")
    await scene.do(builders.end_session(before.session_id))
    await scene.refuses("continuation_mismatch", successor(scene, before).start())


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_retry_of_a_continuation_is_answered_again(scene: Scene, family: str) -> None:
    run = successor(scene, await predecessor(scene, family))
    first = await scene.do(run.start())
    await scene.repeats(run.start(), first)
