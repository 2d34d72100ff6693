"""Purging: what goes, what stays taken, and what every later call answers."""

from __future__ import annotations

import pytest

from tests.contract import builders
from tests.contract.builders import CHANGE_METHODS, Command
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_an_active_session_is_not_purged(scene: Scene) -> None:
    run = await scene.run(status="completed")
    await scene.refuses("session_active", builders.purge_session(run.session_id))


async def test_an_active_session_with_running_runs_is_first_of_all_active(scene: Scene) -> None:
    run = await scene.run()
    await scene.refuses("session_active", builders.purge_session(run.session_id))


async def test_an_ended_session_with_a_running_run_is_not_purged(scene: Scene) -> None:
    session_id = await scene.session()
    await scene.run(session_id, "completed")
    running = await scene.run(session_id)
    await scene.do(builders.end_session(session_id))
    await scene.refuses("session_has_active_runs", builders.purge_session(session_id))
    await scene.do(running.end())
    assert await scene.do(builders.purge_session(session_id)) == {}


async def test_a_run_with_a_cancellation_intent_still_runs_and_is_not_purged(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(run.cancel())
    await scene.do(builders.end_session(run.session_id))
    await scene.refuses("session_has_active_runs", builders.purge_session(run.session_id))


async def test_an_unknown_session_is_not_purged(scene: Scene) -> None:
    await scene.refuses("session_not_found", builders.purge_session(scene.new_session()))


async def test_purging_a_purged_session_succeeds(scene: Scene) -> None:
    session_id = await scene.session("purged")
    before = await scene.everything()
    assert await scene.do(builders.purge_session(session_id)) == {}
    await scene.same(before)


@pytest.mark.parametrize("status", ["suspended", "completed", "failed", "canceled"])
async def test_a_purge_removes_runs_of_every_terminal_status(scene: Scene, status: str) -> None:
    run = await scene.run(status=status)
    await scene.do(builders.end_session(run.session_id))
    assert await scene.do(builders.purge_session(run.session_id)) == {}
    assert await scene.code_of(Command("load_run", {"run_id": run.run_id})) == "run_not_found"


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("load_session", {}),
        ("load_session_status", {}),
        ("list_runs_by_session", {}),
        ("list_session_records", {"limit": 10}),
        ("end_session", {"ended_at": builders.ENDED}),
        ("create_session", {"created_at": builders.CREATED}),
    ],
)
async def test_a_purged_session_answers_that_it_is_purged(scene: Scene, method: str, more: builders.Json) -> None:
    run = await scene.purged_run()
    await scene.refuses("session_purged", Command(method, {"session_id": run.session_id, **more}))


@pytest.mark.parametrize(
    ("method", "more"), [("load_run", {}), ("load_checkpoint", {}), ("list_run_records", {"limit": 10})]
)
async def test_a_run_of_a_purged_session_is_not_found(scene: Scene, method: str, more: builders.Json) -> None:
    run = await scene.run(status="suspended")
    await scene.do(builders.end_session(run.session_id))
    await scene.do(builders.purge_session(run.session_id))
    await scene.refuses("run_not_found", Command(method, {"run_id": run.run_id, **more}))


async def test_an_exact_retry_of_a_start_is_refused_after_the_purge(scene: Scene) -> None:
    run = await scene.purged_run()
    await scene.refuses("session_purged", run.start())


async def test_an_exact_retry_of_a_stopped_start_is_refused_after_the_purge(scene: Scene) -> None:
    run = await scene.stopped()
    await scene.do(builders.purge_session(run.session_id))
    await scene.refuses("session_purged", run.start())


async def test_an_exact_retry_of_a_child_start_is_refused_after_the_purge(scene: Scene) -> None:
    parent = await scene.run()
    child = await scene.child(parent, "completed")
    await scene.do(parent.end())
    await scene.do(builders.end_session(parent.session_id))
    await scene.do(builders.purge_session(parent.session_id))
    await scene.refuses("session_purged", child.start())


async def test_an_exact_retry_of_a_record_is_refused_after_the_purge(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(run.append())
    await scene.do(run.end())
    await scene.do(builders.end_session(run.session_id))
    await scene.do(builders.purge_session(run.session_id))
    await scene.refuses("session_purged", run.append())


@pytest.mark.parametrize("method", CHANGE_METHODS)
async def test_an_exact_retry_of_a_change_is_refused_after_the_purge(scene: Scene, method: str) -> None:
    run = await scene.run()
    change = run.change(method)
    await scene.do(change)
    if method == "record_cancellation":
        await scene.do(run.end("canceled", reason="user_request"))
    await scene.do(builders.end_session(run.session_id))
    await scene.do(builders.purge_session(run.session_id))
    await scene.refuses("session_purged", change)


async def test_a_new_start_is_refused_after_the_purge(scene: Scene) -> None:
    await scene.refuses("session_purged", scene.new_run(await scene.session("purged")).start())


async def test_a_run_id_of_a_purged_session_stays_taken_in_another_session(scene: Scene) -> None:
    purged = await scene.purged_run()
    await scene.refuses("run_conflict", scene.new_run(await scene.session(), run_id=purged.run_id).start())


async def test_a_run_id_of_a_purged_session_stays_taken_without_a_session(scene: Scene) -> None:
    purged = await scene.purged_run()
    await scene.refuses("run_conflict", scene.new_run(run_id=purged.run_id).start())


async def test_a_run_id_of_a_purged_session_stays_taken_for_a_child(scene: Scene) -> None:
    purged = await scene.purged_run()
    await scene.refuses("run_conflict", scene.new_child(await scene.run(), run_id=purged.run_id).start())


async def test_a_parent_of_a_purged_session_counts_as_missing(scene: Scene) -> None:
    purged = await scene.purged_run()
    session_id = await scene.session()
    await scene.refuses("run_not_found", scene.new_run(session_id, parent=purged.run_id).start())


async def test_a_one_shot_parent_of_a_purged_session_counts_as_missing(scene: Scene) -> None:
    purged = await scene.purged_run()
    await scene.refuses("run_not_found", scene.new_run(parent=purged.run_id).start())


async def test_a_predecessor_of_a_purged_session_counts_as_missing(scene: Scene) -> None:
    before = await scene.run(status="suspended")
    await scene.do(builders.end_session(before.session_id))
    await scene.do(builders.purge_session(before.session_id))
    session_id = await scene.session()
    await scene.refuses("run_not_found", scene.new_run(session_id, predecessor=before.run_id).start())


async def test_a_record_of_a_purged_run_that_names_another_session_finds_no_run(scene: Scene) -> None:
    purged = await scene.purged_run()
    session_id = await scene.session()
    await scene.refuses("run_not_found", scene.new_run(session_id, run_id=purged.run_id).append())


async def test_a_purge_leaves_other_sessions_alone(scene: Scene) -> None:
    other = await scene.run()
    await scene.do(other.append())
    await scene.do(other.suspend())
    before = await scene.everything()
    await scene.purged_run()
    await scene.same(before)
    assert (await scene.load(other))["status"] == "suspended"


async def test_a_purge_leaves_one_shot_runs_alone(scene: Scene) -> None:
    other = await scene.one_shot("suspended")
    before = await scene.everything()
    await scene.purged_run()
    await scene.same(before)
    assert (await scene.load(other))["status"] == "suspended"
