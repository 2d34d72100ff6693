"""The prompts that shaped a run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.builders import Json, Run, compact
from tests.contract.reading import prompt, view, view_refused
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")


def names(shown: Json) -> list[str]:
    assert shown["count"] == len(shown["prompts"])
    return [f"{each['prompt_id']} {each['version']}" for each in shown["prompts"]]


async def test_each_prompt_and_version_is_told_once_where_the_log_has_it_first(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(prompt(run, "1", "b", "v1", SessionID="s", Labels={"é": "x"}))
    await scene.do(prompt(run, "2", "a", "v2"))
    await scene.do(prompt(run, "3", "b", "v1", SessionID="other"))
    await scene.do(prompt(run, "4", "b", "v2"))
    ids = {record["event_key"]: record["id"] for record in await scene.records(run)}
    shown = await view(scene, run, "prompts")
    assert shown == {
        "prompts": [
            {
                "prompt_id": prompt_id,
                "version": version,
                "scope": scope,
                "run_id": run.run_id,
                "record_id": ids[key],
            }
            for key, prompt_id, version, scope in (
                ("1", "b", "v1", {"SessionID": "s", "Labels": {"é": "x"}}),
                ("2", "a", "v2", {}),
                ("4", "b", "v2", {}),
            )
        ],
        "count": 3,
    }


async def test_a_run_without_prompts_has_none(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(run.append("1", '{"PromptID":"x"}', "prompt_rendering"))
    assert await view(scene, run, "prompts") == {"prompts": [], "count": 0}


@pytest.mark.parametrize("family", ["session", "one shot"])
async def test_prompts_of_descendants_count_in_the_order_of_the_log(scene: Scene, family: str) -> None:
    run = await (scene.run() if family == "session" else scene.one_shot())
    child = await scene.child(run)
    await scene.do(prompt(child, "1", "child"))
    await scene.do(prompt(run, "1", "run"))
    grandchild = await scene.child(child)
    other = await scene.child(run)
    await scene.do(prompt(other, "1", "other"))
    await scene.do(prompt(grandchild, "1", "grandchild"))
    await scene.do(prompt(run, "2", "child"))
    shown = await view(scene, run, "prompts")
    assert names(shown) == ["child v1", "run v1", "other v1", "grandchild v1"]
    assert shown["prompts"][0]["run_id"] == child.run_id
    assert names(await view(scene, run, "prompts", descendants="true")) == names(shown)
    alone = await view(scene, run, "prompts", descendants="false")
    assert names(alone) == ["run v1", "child v1"]
    assert {each["run_id"] for each in alone["prompts"]} == {run.run_id}
    assert names(await view(scene, child, "prompts")) == ["child v1", "grandchild v1"]


async def test_prompts_of_the_chain_count_when_asked(scene: Scene) -> None:
    runs = [await scene.run()]
    for number in range(4):
        await scene.do(prompt(runs[-1], "1", f"p{number}"))
        await scene.do(prompt(runs[-1], "2", "shared"))
        await scene.do(runs[-1].suspend())
        runs.append(await scene.run(runs[-1].session_id, predecessor=runs[-1].run_id))
    last = runs[-2]
    assert names(await view(scene, last, "prompts")) == ["p3 v1", "shared v1"]
    shown = await view(scene, last, "prompts", predecessors="true")
    assert names(shown) == ["p0 v1", "shared v1", "p1 v1", "p2 v1", "p3 v1"]
    assert shown["prompts"][1]["run_id"] == runs[0].run_id
    assert names(await view(scene, runs[1], "prompts", predecessors="true")) == ["p0 v1", "shared v1", "p1 v1"]
    assert names(await view(scene, runs[-1], "prompts", predecessors="true")) == names(shown)


async def test_nothing_of_other_runs_shaped_a_run(scene: Scene) -> None:
    run = await scene.run()
    sibling = await scene.run(run.session_id)
    await scene.do(prompt(sibling, "1", "sibling"))
    child = await scene.child(sibling)
    await scene.do(prompt(child, "1", "childs"))
    assert names(await view(scene, run, "prompts", predecessors="true")) == []


UNREADABLE = ["null", "[]", "7", "{}", '{"PromptID":""}', '{"PromptID":7}', '{"promptid":"x"}']


@pytest.mark.parametrize("payload", UNREADABLE)
async def test_a_prompt_of_another_shape_is_shown_as_it_is(scene: Scene, payload: str) -> None:
    run = await scene.run()
    await scene.do(prompt(run, "1", "good"))
    await scene.do(run.append("2", payload, "prompt_rendered"))
    record = (await scene.records(run))[-1]
    shown = await view(scene, run, "prompts")
    assert names(shown) == ["good v1"]
    assert [each["record"] for each in shown["unreadable"]] == [record]
    assert [each["record"]["payload"] for each in shown["unreadable"]] == [payload]
    assert (await view(scene, run, "prompts", payload="json"))["unreadable"][0]["record"]["id"] == record["id"]


@pytest.mark.parametrize("name", ["descendants", "predecessors"])
async def test_a_flag_is_true_or_false(http_scene: Scene, name: str) -> None:
    run = await http_scene.run()
    for wrong in ("1", "yes", "True", "no"):
        assert (await view_refused(http_scene, run, "prompts", **{name: wrong})).code == "invalid_command"


async def test_more_in_a_prompt_than_is_read_does_not_matter(scene: Scene) -> None:
    run = await scene.run()
    payload: dict[str, Any] = {"More": [1, {"PromptID": "x"}], "PromptID": "a", "Version": None, "Scope": None}
    await scene.do(run.append("1", compact(payload), "prompt_rendered"))
    (shown,) = (await view(scene, run, "prompts"))["prompts"]
    assert (shown["prompt_id"], shown["version"], shown["scope"]) == ("a", "", None)


async def continued(scene: Scene, run: Run) -> Run:
    """A run that continues another one, which it suspends first."""
    await scene.do(run.suspend())
    after = scene.new_run(run.session_id, parent=run.parent, parent_agent=run.parent_agent, predecessor=run.run_id)
    return await scene.started(after)


async def test_prompts_of_a_continued_child_count_for_its_parent(scene: Scene) -> None:
    run = await scene.run()
    child = await scene.child(run)
    await scene.do(prompt(child, "1", "before"))
    after = await continued(scene, child)
    await scene.do(prompt(after, "1", "after"))
    assert names(await view(scene, run, "prompts")) == ["before v1", "after v1"]
    assert names(await view(scene, after, "prompts")) == ["after v1"]
    assert names(await view(scene, after, "prompts", predecessors="true")) == ["before v1", "after v1"]
