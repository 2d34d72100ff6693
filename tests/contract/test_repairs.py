"""Repairs: written only while the run still runs; otherwise they tell which record owns its state."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract import builders
from tests.contract.builders import CHECKPOINT, Command, Json, Run, encoded
from tests.contract.scene import Scene, meaning

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENDINGS = ["completed", "failed", "canceled"]
STATUSES = ["suspended", *ENDINGS]


def repair_of(run: Run, status: str, **changes: Any) -> Command:
    """The repair that would bring a run to a status."""
    if status == "suspended":
        return run.suspend(method="repair_suspension", **changes)
    return run.end(status, method="repair_terminal", **changes)


async def finds_another(scene: Scene, status: str, command: Command) -> None:
    """The repair tells that another record owns the state, and writes nothing."""
    before = await scene.everything()
    answer = meaning(await scene.do(command))
    assert answer == {"outcome": "different_terminal", "status": status}
    await scene.same(before)


def owned(outcome: str, status: str, append: Json, *, inserted: bool) -> Json:
    """What a repair answers when its record owns the state."""
    return {"outcome": outcome, "status": status, "append": {**append, "inserted": inserted}}


@pytest.mark.parametrize("status", STATUSES)
async def test_a_repair_of_a_running_run_is_stored(scene: Scene, status: str) -> None:
    run = await scene.run()
    command = repair_of(run, status)
    answer = await scene.do(command)
    assert answer == owned("stored", status, answer["append"], inserted=True)
    assert answer["append"] == {"id": answer["append"]["id"], "inserted": True, "session_status": "active"}
    assert (await scene.load(run))["status"] == status
    assert (await scene.records(run))[-1] == {"id": answer["append"]["id"], **command.at("record")}


async def test_a_repaired_suspension_stores_its_checkpoint(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(run.repair_suspension())
    loaded = await scene.do(Command("load_checkpoint", {"run_id": run.run_id}))
    assert loaded == {"checkpoint": {"id": "checkpoint-1", "data": encoded(CHECKPOINT)}}


@pytest.mark.parametrize("status", STATUSES)
async def test_a_repair_of_a_one_shot_run_is_stored(scene: Scene, status: str) -> None:
    run = await scene.one_shot()
    answer = meaning(await scene.do(repair_of(run, status)))
    assert answer == {
        "outcome": "stored",
        "status": status,
        "append": {"id": answer["append"]["id"], "inserted": True},
    }


@pytest.mark.parametrize("status", STATUSES)
async def test_the_same_repair_again_was_already_stored(scene: Scene, status: str) -> None:
    run = await scene.run()
    first = await scene.do(repair_of(run, status))
    again = await scene.repeats(repair_of(run, status), first)
    assert again == owned("already_stored", status, first["append"], inserted=False)


@pytest.mark.parametrize("status", STATUSES)
async def test_a_repair_with_the_record_of_the_change_was_already_stored(scene: Scene, status: str) -> None:
    run = await scene.run()
    (change,) = run.become(status)
    first = await scene.do(change)
    before = await scene.everything()
    assert await scene.do(repair_of(run, status)) == owned("already_stored", status, first, inserted=False)
    await scene.same(before)


@pytest.mark.parametrize("status", STATUSES)
async def test_a_change_with_the_record_of_a_repair_is_a_retry(scene: Scene, status: str) -> None:
    run = await scene.run()
    first = await scene.do(repair_of(run, status))
    (change,) = run.become(status)
    await scene.repeats(change, first["append"])


async def test_a_repair_with_the_canceled_record_of_a_stopped_start_was_already_stored(scene: Scene) -> None:
    run = scene.new_run(await scene.session("ended"))
    start = run.start()
    first = await scene.do(start)
    repair = run.end("canceled", reason="session_ended", method="repair_terminal")
    answer = await scene.do(repair.but("record", start.at("canceled")))
    assert answer == owned("already_stored", "canceled", first["canceled"], inserted=False)


@pytest.mark.parametrize("found", STATUSES)
@pytest.mark.parametrize("wanted", STATUSES)
async def test_another_record_owns_the_state(scene: Scene, found: str, wanted: str) -> None:
    run = await scene.run(status=found)
    await finds_another(scene, found, repair_of(run, wanted, event_key="runtime/repaired"))


@pytest.mark.parametrize("wanted", STATUSES)
async def test_another_record_owns_the_state_of_a_stopped_run(scene: Scene, wanted: str) -> None:
    await finds_another(scene, "canceled", repair_of(await scene.stopped(), wanted, event_key="runtime/repaired"))


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize(
    ("field", "value"), [("turn_id", "turn-2"), ("timestamp", builders.STARTED), ("payload", "spaced")]
)
async def test_the_same_event_key_with_other_content_is_another_record(
    scene: Scene, status: str, field: str, value: str
) -> None:
    run = await scene.run(status=status)
    command = repair_of(run, status)
    value = builders.spaced(command.at("record.payload")) if field == "payload" else value
    await finds_another(scene, status, command.but(f"record.{field}", value))


@pytest.mark.parametrize("data", [b"", CHECKPOINT + b"!"])
async def test_the_same_record_with_another_checkpoint_is_another_record(scene: Scene, data: bytes) -> None:
    run = await scene.run(status="suspended")
    await finds_another(scene, "suspended", run.repair_suspension(data=data))
    loaded = await scene.do(Command("load_checkpoint", {"run_id": run.run_id}))
    assert loaded["checkpoint"]["data"] == encoded(CHECKPOINT)


@pytest.mark.parametrize("wanted", STATUSES)
async def test_the_event_key_of_an_ordinary_record_owns_no_state(scene: Scene, wanted: str) -> None:
    run = await scene.run()
    await scene.do(run.append())
    await scene.do(run.end("failed"))
    await finds_another(scene, "failed", repair_of(run, wanted, event_key="note/1"))


@pytest.mark.parametrize("status", ENDINGS)
async def test_labels_are_not_asked_of_a_repair_that_writes_nothing(scene: Scene, status: str) -> None:
    run = await scene.run(status="failed")
    command = run.end(status, labels={"tenant": "acme"}, method="repair_terminal", event_key="runtime/repaired")
    await finds_another(scene, "failed", command)


# A repair that would store is checked as its command is


@pytest.mark.parametrize("status", STATUSES)
async def test_a_repair_takes_no_event_key_of_another_record(scene: Scene, status: str) -> None:
    run = await scene.run()
    await scene.do(run.append())
    await scene.refuses("record_conflict", repair_of(run, status, event_key="note/1"))
    await scene.refuses("record_conflict", repair_of(run, status, event_key=run.started_key))


@pytest.mark.parametrize("status", ENDINGS)
async def test_a_repair_has_the_labels_of_the_run(scene: Scene, status: str) -> None:
    run = await scene.run(labels={"tenant": "acme"})
    await scene.refuses("invalid_command", run.end(status, labels={}, method="repair_terminal"))


async def test_a_repair_of_a_run_with_an_intent_has_its_reason(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(run.cancel())
    await scene.refuses("invalid_command", run.repair_terminal("canceled", reason="engine_canceled"))
    answer = await scene.do(run.repair_terminal("canceled", reason="user_request"))
    assert answer["outcome"] == "stored"


@pytest.mark.parametrize("status", STATUSES)
async def test_a_repair_of_a_missing_run_is_refused(scene: Scene, status: str) -> None:
    await scene.refuses("run_not_found", repair_of(scene.new_run(await scene.session()), status))


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("found", ["running", "failed"])
async def test_a_repair_of_another_owner_is_refused(scene: Scene, status: str, found: str) -> None:
    run = await scene.run(status=found)
    command = repair_of(run, status)
    await scene.refuses("record_owner_mismatch", command.but("record.agent_id", "agent.other"))
    await scene.refuses("record_owner_mismatch", command.but("record.session_id", await scene.session()))


@pytest.mark.parametrize("status", STATUSES)
async def test_a_repair_in_an_ended_session_is_stored(scene: Scene, status: str) -> None:
    run = await scene.run()
    await scene.do(builders.end_session(run.session_id))
    answer = await scene.do(repair_of(run, status))
    assert answer["outcome"] == "stored"
    assert answer["append"]["session_status"] == "ended"
