"""How a run ends."""

from __future__ import annotations

import itertools

import pytest

from tests.contract import builders
from tests.contract.builders import ending_payload
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENDINGS = ["completed", "failed", "canceled"]
LABELS = {"tenant": "acme", "region": "west"}


@pytest.mark.parametrize("status", ENDINGS)
async def test_a_running_run_ends(scene: Scene, status: str) -> None:
    run = await scene.run(labels=LABELS)
    command = run.end(status)
    answer = await scene.do(command)
    assert answer == {"id": answer["id"], "inserted": True, "session_status": "active"}
    assert (await scene.load(run))["status"] == status
    assert (await scene.records(run))[-1] == {"id": answer["id"], **command.at("record")}


@pytest.mark.parametrize("status", ENDINGS)
async def test_a_one_shot_run_ends(scene: Scene, status: str) -> None:
    assert (await scene.load(await scene.one_shot(status)))["status"] == status


@pytest.mark.parametrize("method", ["record_terminal", "repair_terminal"])
@pytest.mark.parametrize(("status", "told"), list(itertools.permutations(ENDINGS, 2)))
async def test_the_record_tells_the_commands_status(scene: Scene, method: str, status: str, told: str) -> None:
    run = await scene.run()
    command = run.end(status, method=method).but("record.payload", ending_payload(told))
    await scene.refuses("invalid_command", command)


@pytest.mark.parametrize("method", ["record_terminal", "repair_terminal"])
@pytest.mark.parametrize("status", ["running", "suspended", "success", "pending", "", "COMPLETED", None, 1])
async def test_no_other_status_ends_a_run(scene: Scene, method: str, status: object) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.end(method=method).but("status", status))


@pytest.mark.parametrize("kind", ["note", "run_suspended", "run_started"])
async def test_the_record_of_an_ending_is_an_ending(scene: Scene, kind: str) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.end().but("record.type", kind))


async def test_the_record_of_an_ending_is_of_the_run(scene: Scene) -> None:
    run, other = await scene.run(), await scene.run()
    await scene.refuses("invalid_command", run.end().but("record.run_id", other.run_id))


@pytest.mark.parametrize("path", ["status", "record", "run_id"])
async def test_every_part_of_an_ending_is_needed(scene: Scene, path: str) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.end().without(path))


async def test_a_missing_run_does_not_end(scene: Scene) -> None:
    await scene.refuses("run_not_found", scene.new_run(await scene.session()).end())


@pytest.mark.parametrize("status", ENDINGS)
@pytest.mark.parametrize(
    "labels",
    [{}, {"tenant": "acme"}, {**LABELS, "more": ""}, {**LABELS, "tenant": "Acme"}],
    ids=["none", "fewer", "more", "other"],
)
async def test_the_labels_of_an_ending_are_the_runs(scene: Scene, status: str, labels: dict[str, str]) -> None:
    run = await scene.run(labels=LABELS)
    await scene.refuses("invalid_command", run.end(status, labels=labels))


@pytest.mark.parametrize("status", ENDINGS)
async def test_a_run_without_labels_ends_without_labels(scene: Scene, status: str) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.end(status, labels={"tenant": "acme"}))
    assert (await scene.do(run.end(status).payload_but("record", labels=None)))["inserted"] is True


async def test_the_order_of_labels_does_not_matter(scene: Scene) -> None:
    run = await scene.run(labels=LABELS)
    assert (await scene.do(run.end(labels=dict(reversed(LABELS.items())))))["inserted"] is True


@pytest.mark.parametrize("status", ENDINGS)
async def test_the_same_ending_again_is_a_retry(scene: Scene, status: str) -> None:
    run = await scene.run()
    first = await scene.do(run.end(status))
    await scene.repeats(run.end(status), first)


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(["suspended", *ENDINGS], 2)))
async def test_a_run_ends_once(scene: Scene, first: str, second: str) -> None:
    run = await scene.run(status=first)
    for command in run.become(second):
        await scene.refuses("run_terminal_conflict", command)
    assert (await scene.load(run))["status"] == first


@pytest.mark.parametrize("status", ENDINGS)
async def test_another_record_is_a_conflict_even_with_the_same_status(scene: Scene, status: str) -> None:
    run = await scene.run(status=status)
    await scene.refuses("run_terminal_conflict", run.end(status, event_key="another/key"))


async def test_a_run_that_its_session_stopped_has_ended(scene: Scene) -> None:
    run = await scene.stopped()
    await scene.refuses("run_terminal_conflict", run.end("completed"))
    await scene.refuses("run_terminal_conflict", run.end("canceled", event_key="another/key"))


async def test_the_canceled_record_of_a_stopped_start_is_its_ending(scene: Scene) -> None:
    run = scene.new_run(await scene.session("ended"))
    start = run.start()
    first = await scene.do(start)
    again = run.end("canceled", reason="session_ended").but("record", start.at("canceled"))
    await scene.repeats(again, first["canceled"])


async def test_the_event_key_of_another_record_is_no_endings(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(run.append())
    await scene.refuses("record_conflict", run.end(event_key="note/1"))
    await scene.refuses("record_conflict", run.end(event_key=run.started_key))


async def test_a_parent_may_end_before_its_children(scene: Scene) -> None:
    parent = await scene.run()
    child = await scene.child(parent)
    await scene.do(parent.end())
    assert (await scene.load(child))["status"] == "running"
    assert (await scene.do(child.append()))["inserted"] is True
    assert (await scene.do(child.end()))["inserted"] is True


async def test_a_run_in_an_ended_session_ends(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(builders.end_session(run.session_id))
    assert (await scene.do(run.end()))["session_status"] == "ended"
