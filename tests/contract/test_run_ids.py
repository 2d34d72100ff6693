"""Run IDs are unique everywhere, wherever the session lives and wherever the ID's place in the directory is.

A session and its runs live in the partition of the session's ID, a run's directory entry in that of its own ID. Both
are chosen here, so that a second session shares the first one's partition, or the directory's, or neither.
"""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from tests.contract import builders
from tests.contract.builders import PARTITIONS, Command, Run, place
from tests.contract.scene import Scene, meaning

pytestmark = pytest.mark.asyncio(loop_scope="session")

PLACES = list(itertools.product((0, 3, 5), (0, 3, 5), (0, 3, 5)))
"""The partitions of one session, of a run's ID, and of another session: all alike, two alike, none alike."""

FEW = [(0, 0, 0), (0, 3, 0), (0, 0, 3), (0, 3, 3), (0, 3, 5)]


async def test_places_are_spread_over_all_partitions() -> None:
    assert {place(f"run-{number}") for number in range(200)} == set(range(PARTITIONS))


@pytest.mark.parametrize(("home", "directory", "other"), PLACES)
async def test_a_run_id_starts_once_over_all_sessions(scene: Scene, home: int, directory: int, other: int) -> None:
    first = await scene.session(partition=home)
    second = await scene.session(partition=other)
    run = scene.new_run(first, partition=directory)
    answer = await scene.do(run.start())
    await scene.refuses("run_conflict", dataclasses.replace(run, session_id=second).start())
    await scene.repeats(run.start(), answer)


@pytest.mark.parametrize(("home", "directory", "other"), FEW)
async def test_a_run_id_starts_once_in_and_out_of_sessions(scene: Scene, home: int, directory: int, other: int) -> None:
    session_id = await scene.session(partition=home)
    run = scene.new_run(session_id, partition=directory)
    await scene.started(run)
    await scene.refuses("run_conflict", scene.new_run(run_id=run.run_id).start())
    one_shot = await scene.one_shot(partition=directory)
    later = await scene.session(partition=other)
    await scene.refuses("run_conflict", scene.new_run(later, run_id=one_shot.run_id).start())


@pytest.mark.parametrize(("home", "directory", "other"), FEW)
async def test_a_child_id_starts_once_over_all_parents(scene: Scene, home: int, directory: int, other: int) -> None:
    parent = await scene.run(await scene.session(partition=home))
    child = await scene.started(scene.new_child(parent, partition=directory))
    stranger = await scene.run(await scene.session(partition=other))
    await scene.refuses("run_conflict", scene.new_child(stranger, run_id=child.run_id).start())
    await scene.refuses("run_conflict", scene.new_child(await scene.one_shot(), run_id=child.run_id).start())


@pytest.mark.parametrize(("home", "directory", "other"), FEW)
async def test_a_one_shot_child_id_starts_once_over_all_trees(
    scene: Scene, home: int, directory: int, other: int
) -> None:
    parent = await scene.one_shot(partition=home)
    child = await scene.started(scene.new_child(parent, partition=directory))
    stranger = await scene.one_shot(partition=other)
    await scene.refuses("run_conflict", scene.new_child(stranger, run_id=child.run_id).start())
    await scene.refuses("run_conflict", scene.new_run(run_id=child.run_id).start())


@pytest.mark.parametrize(("home", "directory", "other"), FEW)
async def test_a_run_is_found_by_its_id_alone(scene: Scene, home: int, directory: int, other: int) -> None:
    session_id = await scene.session(partition=home)
    run = await scene.started(scene.new_run(session_id, partition=directory))
    await scene.session(partition=other)
    await scene.do(run.append())
    await scene.do(run.cancel())
    await scene.do(run.suspend())
    assert (await scene.load(run))["status"] == "suspended"
    assert len(await scene.records(run)) == 4
    loaded = await scene.do(Command("load_checkpoint", {"run_id": run.run_id}))
    assert loaded["checkpoint"]["id"] == "checkpoint-1"


@pytest.mark.parametrize(("home", "directory", "other"), FEW)
async def test_a_one_shot_tree_is_found_by_its_ids(scene: Scene, home: int, directory: int, other: int) -> None:
    root = await scene.one_shot(partition=home)
    child = await scene.started(scene.new_child(root, partition=directory))
    grandchild = await scene.started(scene.new_child(child, partition=other))
    for run in (root, child, grandchild):
        await scene.do(run.append())
        await scene.do(run.end())
        assert (await scene.load(run))["status"] == "completed"


@pytest.mark.parametrize(("home", "directory", "other"), FEW)
async def test_a_parent_in_another_session_is_refused_for_what_it_is(
    scene: Scene, home: int, directory: int, other: int
) -> None:
    parent = await scene.started(scene.new_run(await scene.session(partition=home), partition=directory))
    session_id = await scene.session(partition=other)
    await scene.refuses("run_session_mismatch", scene.new_run(session_id, parent=parent.run_id).start())
    await scene.refuses("run_session_mismatch", scene.new_run(parent=parent.run_id).start())
    root = await scene.one_shot(partition=directory)
    await scene.refuses("run_session_mismatch", scene.new_run(session_id, parent=root.run_id).start())


@pytest.mark.parametrize(("home", "directory", "other"), FEW)
async def test_a_predecessor_in_another_session_is_refused_for_what_it_is(
    scene: Scene, home: int, directory: int, other: int
) -> None:
    before = await scene.started(scene.new_run(await scene.session(partition=home), partition=directory), "suspended")
    session_id = await scene.session(partition=other)
    await scene.refuses("continuation_mismatch", scene.new_run(session_id, predecessor=before.run_id).start())


@pytest.mark.parametrize(("home", "directory", "other"), FEW)
async def test_a_record_with_another_session_is_refused_for_its_owner(
    scene: Scene, home: int, directory: int, other: int
) -> None:
    run = await scene.started(scene.new_run(await scene.session(partition=home), partition=directory))
    elsewhere = dataclasses.replace(run, session_id=await scene.session(partition=other))
    await scene.refuses("record_owner_mismatch", elsewhere.append())
    for method in builders.CHANGE_METHODS:
        await scene.refuses("record_owner_mismatch", elsewhere.change(method))


@pytest.mark.parametrize(("home", "directory", "other"), FEW)
async def test_an_id_of_a_purged_session_stays_taken_everywhere(
    scene: Scene, home: int, directory: int, other: int
) -> None:
    run = await scene.started(scene.new_run(await scene.session(partition=home), partition=directory), "completed")
    await scene.do(builders.end_session(run.session_id))
    await scene.do(builders.purge_session(run.session_id))
    session_id = await scene.session(partition=other)
    await scene.refuses("run_conflict", scene.new_run(session_id, run_id=run.run_id).start())
    await scene.refuses("run_conflict", scene.new_run(run_id=run.run_id).start())
    await scene.refuses("run_not_found", scene.new_run(session_id, parent=run.run_id).start())
    await scene.refuses("run_not_found", scene.new_run(session_id, predecessor=run.run_id).start())


# A start that was refused takes nothing


async def starts_elsewhere(scene: Scene, run_id: str, partition: int) -> None:
    """The ID is free: it starts in a session of this partition."""
    run = scene.new_run(await scene.session(partition=partition), run_id=run_id)
    answer = await scene.do(run.start())
    assert answer["outcome"] == "proceed"
    assert answer["started"]["inserted"] is True


@pytest.mark.parametrize(("home", "directory", "other"), FEW)
@pytest.mark.parametrize(
    "why", ["shape", "no session", "purged", "no predecessor", "predecessor", "no parent", "parent"]
)
async def test_a_refused_start_leaves_the_id_free(
    scene: Scene, why: str, home: int, directory: int, other: int
) -> None:
    session_id = await scene.session(partition=home)
    run = scene.new_run(session_id, partition=directory)
    refused: dict[str, tuple[str, Run]] = {
        "shape": ("invalid_command", run),
        "no session": ("session_not_found", dataclasses.replace(run, session_id=scene.new_session(home))),
        "purged": ("session_purged", dataclasses.replace(run, session_id=await scene.session("purged", home))),
        "no predecessor": ("run_not_found", dataclasses.replace(run, predecessor=scene.new_run().run_id)),
        "predecessor": ("continuation_mismatch", dataclasses.replace(run, predecessor=(await scene.run()).run_id)),
        "no parent": ("run_not_found", dataclasses.replace(run, parent=scene.new_run().run_id)),
        "parent": ("run_session_mismatch", dataclasses.replace(run, parent=(await scene.run()).run_id)),
    }
    code, wrong = refused[why]
    command = wrong.start()
    await scene.refuses(code, command.but("started.turn_id", 7) if why == "shape" else command)
    await starts_elsewhere(scene, run.run_id, other)


@pytest.mark.parametrize(("home", "directory", "other"), FEW)
async def test_a_refused_child_leaves_the_id_free(scene: Scene, home: int, directory: int, other: int) -> None:
    parent = await scene.run(await scene.session(partition=home), "completed")
    child = scene.new_child(parent, partition=directory)
    await scene.refuses("run_not_active", child.start())
    await starts_elsewhere(scene, child.run_id, other)


@pytest.mark.parametrize(("home", "directory", "other"), FEW)
async def test_a_refused_one_shot_child_leaves_the_id_free(scene: Scene, home: int, directory: int, other: int) -> None:
    parent = await scene.one_shot(partition=home)
    child = scene.new_child(parent, partition=directory)
    await scene.refuses("record_conflict", child.start().but("parent_linked.event_key", parent.started_key))
    await starts_elsewhere(scene, child.run_id, other)


async def test_session_ids_and_run_ids_are_different_names(scene: Scene) -> None:
    name = scene.new_session()
    await scene.do(builders.create_session(name))
    run = await scene.run(name, run_id=name, agent_id=name)
    assert (await scene.load(run))["run_id"] == name
    assert meaning(await scene.do(Command("load_session", {"session_id": name})))["session"]["id"] == name
