"""Sessions: created, ended, purged, and how they stand."""

from __future__ import annotations

import pytest

from tests.contract import builders
from tests.contract.builders import CREATED, ENDED, LATER, Command
from tests.contract.scene import Scene, meaning

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_create_session_creates_an_active_session(scene: Scene) -> None:
    session_id = scene.new_session()
    answer = await scene.do(builders.create_session(session_id))
    assert meaning(answer) == {"session": {"id": session_id, "status": "active", "created_at": CREATED}}
    loaded = await scene.do(Command("load_session", {"session_id": session_id}))
    assert meaning(loaded) == meaning(answer)


@pytest.mark.parametrize("created_at", [CREATED, LATER])
async def test_an_active_session_is_returned_as_it_is(scene: Scene, created_at: str) -> None:
    session_id = await scene.session()
    before = await scene.everything()
    answer = await scene.do(builders.create_session(session_id, created_at))
    assert meaning(answer) == {"session": {"id": session_id, "status": "active", "created_at": CREATED}}
    await scene.same(before)


@pytest.mark.parametrize("created_at", [CREATED, LATER])
async def test_an_ended_session_is_not_created_again(scene: Scene, created_at: str) -> None:
    session_id = await scene.session("ended")
    await scene.refuses("session_ended", builders.create_session(session_id, created_at))


async def test_a_purged_session_is_not_created_again(scene: Scene) -> None:
    await scene.refuses("session_purged", builders.create_session(await scene.session("purged")))


@pytest.mark.parametrize("method", ["load_session", "load_session_status"])
async def test_a_missing_session_is_not_loaded(scene: Scene, method: str) -> None:
    await scene.refuses("session_not_found", Command(method, {"session_id": scene.new_session()}))


@pytest.mark.parametrize("method", ["load_session", "load_session_status"])
async def test_a_purged_session_is_not_loaded(scene: Scene, method: str) -> None:
    await scene.refuses("session_purged", Command(method, {"session_id": await scene.session("purged")}))


@pytest.mark.parametrize("args", [{"session_id": ""}, {"session_id": None}, {}])
async def test_the_status_of_no_session_is_not_found(scene: Scene, args: builders.Json) -> None:
    assert await scene.code_of(Command("load_session_status", args)) == "session_not_found"


@pytest.mark.parametrize("status", ["active", "ended"])
async def test_the_status_of_a_session(scene: Scene, status: str) -> None:
    session_id = await scene.session(status)
    answer = await scene.do(Command("load_session_status", {"session_id": session_id}))
    assert answer == {"status": status}


async def test_end_session_ends_an_active_session(scene: Scene) -> None:
    session_id = await scene.session()
    answer = await scene.do(builders.end_session(session_id))
    expected = {"id": session_id, "status": "ended", "created_at": CREATED, "ended_at": ENDED}
    assert answer == {"session": expected}
    assert await scene.do(Command("load_session", {"session_id": session_id})) == {"session": expected}


@pytest.mark.parametrize("ended_at", [ENDED, LATER])
async def test_an_ended_session_is_returned_unchanged(scene: Scene, ended_at: str) -> None:
    session_id = await scene.session("ended")
    before = await scene.everything()
    answer = await scene.do(builders.end_session(session_id, ended_at))
    assert answer["session"]["ended_at"] == ENDED
    await scene.same(before)


async def test_a_missing_session_is_not_ended(scene: Scene) -> None:
    await scene.refuses("session_not_found", builders.end_session(scene.new_session()))


async def test_a_purged_session_is_not_ended(scene: Scene) -> None:
    await scene.refuses("session_purged", builders.end_session(await scene.session("purged")))


async def test_a_session_may_end_before_it_was_created(scene: Scene) -> None:
    session_id = await scene.session()
    answer = await scene.do(builders.end_session(session_id, "1970-01-01T00:00:00.000Z"))
    assert answer["session"]["ended_at"] == "1970-01-01T00:00:00.000Z"


async def test_ending_a_session_leaves_its_runs_running(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(builders.end_session(run.session_id))
    assert (await scene.load(run))["status"] == "running"
    answer = await scene.do(run.append())
    assert answer["inserted"] is True
    assert answer["session_status"] == "ended"


async def test_after_end_session_returned_no_start_proceeds(scene: Scene) -> None:
    session_id = await scene.session()
    assert (await scene.do(scene.new_run(session_id).start()))["outcome"] == "proceed"
    await scene.do(builders.end_session(session_id))
    assert (await scene.do(scene.new_run(session_id).start()))["outcome"] == "stop"


async def test_a_session_shows_nothing_but_its_fields(scene: Scene) -> None:
    session_id = await scene.session("ended")
    answer = await scene.do(Command("load_session", {"session_id": session_id}))
    assert set(answer) == {"session"}
    assert set(answer["session"]) == {"id", "status", "created_at", "ended_at"}
