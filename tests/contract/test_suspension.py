"""Suspensions and the checkpoints that they store."""

from __future__ import annotations

import base64

import pytest

from tests.contract import builders
from tests.contract.builders import CHECKPOINT, SUSPENSION_KEY, Command, encoded
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_suspension_stores_checkpoint_status_and_record_together(scene: Scene) -> None:
    run = await scene.run()
    command = run.suspend()
    answer = await scene.do(command)
    assert answer == {"id": answer["id"], "inserted": True, "session_status": "active"}
    assert (await scene.load(run))["status"] == "suspended"
    assert (await scene.records(run))[-1] == {"id": answer["id"], **command.at("record")}
    loaded = await scene.do(Command("load_checkpoint", {"run_id": run.run_id}))
    assert loaded == {"checkpoint": {"id": "checkpoint-1", "data": encoded(CHECKPOINT)}}


@pytest.mark.parametrize("kind", ["note", "run_completed", "run_started"])
async def test_the_record_of_a_suspension_is_a_suspension(scene: Scene, kind: str) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.suspend().but("record.type", kind))


async def test_the_record_names_the_checkpoint(scene: Scene) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.suspend().payload_but("record", SuspensionID="checkpoint-2"))
    await scene.refuses("invalid_command", run.suspend().but("checkpoint.id", "checkpoint-2"))


async def test_the_record_of_a_suspension_is_of_the_run(scene: Scene) -> None:
    run, other = await scene.run(), await scene.run()
    await scene.refuses("invalid_command", run.suspend().but("record.run_id", other.run_id))


@pytest.mark.parametrize("path", ["checkpoint", "checkpoint.id", "record"])
async def test_every_part_of_a_suspension_is_needed(scene: Scene, path: str) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.suspend().without(path))
    await scene.refuses("invalid_command", run.suspend().but(path, None))


async def test_a_suspension_of_a_missing_run_is_refused(scene: Scene) -> None:
    await scene.refuses("run_not_found", scene.new_run(await scene.session()).suspend())


async def test_a_one_shot_run_is_suspended(scene: Scene) -> None:
    run = await scene.one_shot("suspended")
    assert (await scene.load(run))["status"] == "suspended"


async def test_the_same_suspension_again_is_a_retry(scene: Scene) -> None:
    run = await scene.run()
    first = await scene.do(run.suspend())
    await scene.repeats(run.suspend(), first)


async def test_another_checkpoint_is_a_conflict(scene: Scene) -> None:
    run = await scene.run(status="suspended")
    await scene.refuses("run_suspension_conflict", run.suspend(data=CHECKPOINT + b"!"))
    await scene.refuses("run_suspension_conflict", run.suspend(data=b""))
    await scene.refuses("run_suspension_conflict", run.suspend("checkpoint-2"))


async def test_another_record_is_a_conflict_even_with_the_same_checkpoint(scene: Scene) -> None:
    run = await scene.run(status="suspended")
    await scene.refuses("run_suspension_conflict", run.suspend(event_key="another/key"))


@pytest.mark.parametrize("status", ["completed", "failed", "canceled"])
async def test_a_run_that_ended_is_not_suspended_under_whatever_event_key(scene: Scene, status: str) -> None:
    run = await scene.run()
    await scene.do(run.append())
    await scene.do(run.end(status))
    for event_key in (SUSPENSION_KEY, builders.TERMINAL_KEY, "note/1", run.started_key):
        await scene.refuses("run_terminal_conflict", run.suspend(event_key=event_key))


async def test_a_run_that_its_session_stopped_is_not_suspended(scene: Scene) -> None:
    await scene.refuses("run_terminal_conflict", (await scene.stopped()).suspend())


async def test_the_event_key_of_another_record_is_no_suspensions(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(run.append())
    await scene.refuses("record_conflict", run.suspend(event_key="note/1"))
    await scene.refuses("record_conflict", run.suspend(event_key=run.started_key))


async def test_a_run_in_an_ended_session_is_suspended(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(builders.end_session(run.session_id))
    assert (await scene.do(run.suspend()))["session_status"] == "ended"


# Checkpoints


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00", bytes(range(256)), b"\xff" * 3, b"{}", b"a" * 100_000],
    ids=["empty", "zero", "all bytes", "ones", "text", "long"],
)
async def test_a_checkpoint_is_kept_byte_for_byte(scene: Scene, data: bytes) -> None:
    run = await scene.run()
    first = await scene.do(run.suspend(data=data))
    loaded = await scene.do(Command("load_checkpoint", {"run_id": run.run_id}))
    assert base64.b64decode(loaded["checkpoint"].get("data") or "") == data
    assert loaded["checkpoint"]["id"] == "checkpoint-1"
    await scene.repeats(run.suspend(data=data), first)


async def test_absent_and_null_data_is_an_empty_checkpoint(scene: Scene) -> None:
    run = await scene.run()
    first = await scene.do(run.suspend(data=b""))
    await scene.repeats(run.suspend().without("checkpoint.data"), first)
    await scene.repeats(run.suspend().but("checkpoint.data", None), first)


@pytest.mark.parametrize("data", ["A", "AA", "AA=", "_-8=", "AA==\n", "A A=", "AA==AA==", "é", "====", 7, ["AA=="]])
async def test_checkpoint_data_is_standard_base64(scene: Scene, data: object) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.suspend().but("checkpoint.data", data))


async def test_a_missing_run_has_no_checkpoint(scene: Scene) -> None:
    await scene.refuses("run_not_found", Command("load_checkpoint", {"run_id": scene.new_run().run_id}))


@pytest.mark.parametrize("status", ["running", "completed", "failed", "canceled"])
async def test_a_run_that_was_not_suspended_has_no_checkpoint(scene: Scene, status: str) -> None:
    run = await scene.run(status=status)
    await scene.refuses("run_suspension_not_found", Command("load_checkpoint", {"run_id": run.run_id}))


async def test_a_checkpoint_stays_after_the_run_was_continued(scene: Scene) -> None:
    run = await scene.run(status="suspended")
    await scene.run(run.session_id, predecessor=run.run_id)
    loaded = await scene.do(Command("load_checkpoint", {"run_id": run.run_id}))
    assert loaded["checkpoint"]["data"] == encoded(CHECKPOINT)


async def test_two_runs_may_have_checkpoints_of_one_id(scene: Scene) -> None:
    first, second = await scene.run(), await scene.run()
    await scene.do(first.suspend(data=b"one"))
    await scene.do(second.suspend(data=b"two"))
    for run, data in ((first, b"one"), (second, b"two")):
        loaded = await scene.do(Command("load_checkpoint", {"run_id": run.run_id}))
        assert loaded["checkpoint"]["data"] == encoded(data)
