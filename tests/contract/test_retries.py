"""Exact retries: what repeats is answered again and writes nothing; what differs in one fixed field is a conflict."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

import pytest

from tests.contract import builders
from tests.contract.builders import LATER, STARTED, Command, Run
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")

LABELS = {"tenant": "acme"}
SITUATIONS = ["root", "stopped root", "child", "stopped child", "one_shot", "one_shot_child"]
STOPPED = ["stopped root", "stopped child"]
PROCEEDED = ["root", "child"]
WITH_PARENT = ["child", "stopped child", "one_shot_child"]

Change = Callable[[Scene, Run], Awaitable[Command]]


async def first_start(scene: Scene, situation: str) -> tuple[Run, builders.Json]:
    """A run that has started in some situation, and the answer of its start."""
    if "child" in situation:
        parent = await (scene.one_shot() if "one_shot" in situation else scene.run())
        run = scene.new_child(parent, agent_id="agent.research", labels=LABELS)
    else:
        run = scene.new_run("" if situation == "one_shot" else await scene.session(), labels=LABELS)
    if "stopped" in situation:
        await scene.do(builders.end_session(run.session_id))
    return run, await scene.do(run.start())


# Starts


@pytest.mark.parametrize("situation", SITUATIONS)
async def test_an_exact_start_is_answered_again(scene: Scene, situation: str) -> None:
    run, first = await first_start(scene, situation)
    for _ in range(2):
        await scene.repeats(run.start(), first)


async def _another_parent(scene: Scene, run: Run) -> Run:
    parent = await (scene.run(run.session_id) if run.session_id else scene.one_shot())
    return dataclasses.replace(run, parent=parent.run_id)


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize(
    "changes",
    [
        {"agent_id": "agent.other"},
        {"started_at": LATER},
        {"labels": {}},
        {"labels": {"tenant": "other"}},
        {"labels": {"tenant": "acme", "more": ""}},
    ],
    ids=["agent", "time", "no labels", "a label", "more labels"],
)
async def test_another_identity_is_a_conflict(scene: Scene, situation: str, changes: builders.Json) -> None:
    run, _ = await first_start(scene, situation)
    await scene.refuses("run_conflict", dataclasses.replace(run, **changes).start())


@pytest.mark.parametrize("situation", SITUATIONS)
async def test_another_session_is_a_conflict(scene: Scene, situation: str) -> None:
    run, _ = await first_start(scene, situation)
    other = dataclasses.replace(run, session_id=await scene.session())
    await scene.refuses("run_conflict", other.start())


@pytest.mark.parametrize("situation", ["root", "stopped root", "child", "stopped child"])
async def test_no_session_is_another_identity(scene: Scene, situation: str) -> None:
    run, _ = await first_start(scene, situation)
    await scene.refuses("run_conflict", dataclasses.replace(run, session_id="").start())


@pytest.mark.parametrize("situation", WITH_PARENT)
async def test_another_parent_is_a_conflict(scene: Scene, situation: str) -> None:
    run, _ = await first_start(scene, situation)
    if situation == "stopped child":
        missing = dataclasses.replace(run, parent=scene.new_run().run_id)
        await scene.refuses("run_conflict", missing.start())
    else:
        await scene.refuses("run_conflict", (await _another_parent(scene, run)).start())
    await scene.refuses("run_conflict", dataclasses.replace(run, parent="").start())


@pytest.mark.parametrize("situation", ["root", "one_shot"])
async def test_a_root_is_no_child(scene: Scene, situation: str) -> None:
    run, _ = await first_start(scene, situation)
    await scene.refuses("run_conflict", (await _another_parent(scene, run)).start())


@pytest.mark.parametrize("situation", ["root", "child"])
async def test_another_predecessor_is_a_conflict(scene: Scene, situation: str) -> None:
    run, _ = await first_start(scene, situation)
    before = await scene.started(dataclasses.replace(run, run_id=scene.new_run().run_id), "suspended")
    await scene.refuses("run_conflict", dataclasses.replace(run, predecessor=before.run_id).start())
    after = await scene.started(dataclasses.replace(run, run_id=scene.new_run().run_id, predecessor=before.run_id))
    await scene.refuses("run_conflict", dataclasses.replace(after, predecessor="").start())
    await scene.refuses("run_conflict", dataclasses.replace(after, predecessor=scene.new_run().run_id).start())


@pytest.mark.parametrize("situation", SITUATIONS)
async def test_another_event_key_of_started_is_a_conflict(scene: Scene, situation: str) -> None:
    run, _ = await first_start(scene, situation)
    await scene.refuses("run_conflict", run.start().but("started.event_key", "another/key"))


@pytest.mark.parametrize("situation", SITUATIONS)
async def test_other_content_of_started_is_another_record(scene: Scene, situation: str) -> None:
    run, _ = await first_start(scene, situation)
    await scene.refuses("record_conflict", run.start().but("started.turn_id", "turn-2"))
    await scene.refuses("record_conflict", run.start().but("started.turn_id", ""))
    await scene.refuses("record_conflict", run.start().respaced("started"))


@pytest.mark.parametrize("situation", WITH_PARENT)
async def test_another_event_key_of_the_link_is_a_conflict(scene: Scene, situation: str) -> None:
    run, _ = await first_start(scene, situation)
    await scene.refuses("run_conflict", run.start().but("parent_linked.event_key", "another/key"))
    await scene.refuses("run_conflict", run.start().but("parent_linked.event_key", Run(run.parent).started_key))


@pytest.mark.parametrize("situation", WITH_PARENT)
async def test_other_content_of_the_link_is_another_record(scene: Scene, situation: str) -> None:
    run, _ = await first_start(scene, situation)
    start = run.start()
    await scene.refuses("record_conflict", start.but("parent_linked.turn_id", ""))
    await scene.refuses("record_conflict", start.but("parent_linked.timestamp", LATER))
    await scene.refuses("record_conflict", start.but("parent_linked.agent_id", "agent.other"))
    await scene.refuses("record_conflict", start.payload_but("parent_linked", ToolCallID="call-2"))
    await scene.refuses("record_conflict", start.payload_but("parent_linked", ToolName="another"))
    await scene.refuses("record_conflict", start.respaced("parent_linked"))


@pytest.mark.parametrize("situation", STOPPED)
async def test_another_event_key_of_a_stored_canceled_is_a_conflict(scene: Scene, situation: str) -> None:
    run, _ = await first_start(scene, situation)
    await scene.refuses("run_conflict", run.start().but("canceled.event_key", "another/key"))


@pytest.mark.parametrize("situation", STOPPED)
async def test_other_content_of_a_stored_canceled_is_another_record(scene: Scene, situation: str) -> None:
    run, _ = await first_start(scene, situation)
    await scene.refuses("record_conflict", run.start().but("canceled.turn_id", "turn-2"))
    await scene.refuses("record_conflict", run.start().respaced("canceled"))


@pytest.mark.parametrize("situation", PROCEEDED)
async def test_a_canceled_that_was_not_stored_need_not_repeat(scene: Scene, situation: str) -> None:
    run, first = await first_start(scene, situation)
    await scene.repeats(run.start().but("canceled.event_key", "another/key"), first)
    await scene.repeats(run.start().but("canceled.turn_id", "turn-2"), first)
    await scene.repeats(run.start().respaced("canceled"), first)


@pytest.mark.parametrize("situation", [*PROCEEDED, *STOPPED])
async def test_a_canceled_is_validated_on_a_retry_too(scene: Scene, situation: str) -> None:
    run, _ = await first_start(scene, situation)
    await scene.refuses("invalid_command", run.start().but("canceled.timestamp", LATER))
    await scene.refuses("invalid_command", run.start().but("canceled.event_key", run.started_key))


# The order in which a retry is compared


@pytest.mark.parametrize("situation", SITUATIONS)
async def test_identity_is_compared_before_the_started_record(scene: Scene, situation: str) -> None:
    run, _ = await first_start(scene, situation)
    other = dataclasses.replace(run, labels={})
    await scene.refuses("run_conflict", other.start().but("started.turn_id", "turn-2"))


@pytest.mark.parametrize("situation", WITH_PARENT)
async def test_identity_is_compared_before_the_link(scene: Scene, situation: str) -> None:
    run, _ = await first_start(scene, situation)
    other = dataclasses.replace(run, labels={})
    await scene.refuses("run_conflict", other.start().but("parent_linked.turn_id", "turn-2"))


@pytest.mark.parametrize("situation", WITH_PARENT)
async def test_the_link_is_compared_before_the_started_record(scene: Scene, situation: str) -> None:
    run, _ = await first_start(scene, situation)
    start = run.start()
    other_link = start.but("parent_linked.turn_id", "turn-2")
    await scene.refuses("record_conflict", other_link.but("started.event_key", "another/key"))
    key_of_link = start.but("parent_linked.event_key", "another/link")
    await scene.refuses("run_conflict", key_of_link.but("started.turn_id", "turn-2"))


@pytest.mark.parametrize("situation", STOPPED)
async def test_the_started_record_is_compared_before_the_canceled_one(scene: Scene, situation: str) -> None:
    run, _ = await first_start(scene, situation)
    start = run.start()
    other_started = start.but("started.turn_id", "turn-2")
    await scene.refuses("record_conflict", other_started.but("canceled.event_key", "another/key"))
    key_of_started = start.but("started.event_key", "another/started")
    await scene.refuses("run_conflict", key_of_started.but("canceled.turn_id", "turn-2"))


async def test_the_link_is_compared_before_the_canceled_record(scene: Scene) -> None:
    run, _ = await first_start(scene, "stopped child")
    start = run.start()
    other_link = start.but("parent_linked.turn_id", "turn-2")
    await scene.refuses("record_conflict", other_link.but("canceled.event_key", "another/key"))
    key_of_link = start.but("parent_linked.event_key", "another/link")
    await scene.refuses("run_conflict", key_of_link.but("canceled.turn_id", "turn-2"))


# Ordinary records


async def test_an_exact_record_is_answered_again(scene: Scene) -> None:
    run = await scene.run()
    first = await scene.do(run.append())
    await scene.do(run.append("note/2"))
    for _ in range(2):
        await scene.repeats(run.append(), first)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("turn_id", "turn-2"),
        ("turn_id", ""),
        ("type", "remark"),
        ("timestamp", STARTED),
        ("payload", '{"n":2}'),
        ("payload", '{"n": 1}'),
        ("payload", '{"n":1.0}'),
        ("payload", '{"n":1}\n'),
    ],
)
async def test_other_content_under_a_known_event_key_is_a_conflict(scene: Scene, field: str, value: str) -> None:
    run = await scene.run()
    await scene.do(run.append())
    await scene.refuses("record_conflict", run.append().but(f"record.{field}", value))


@pytest.mark.parametrize("field", ["agent_id", "session_id"])
async def test_another_owner_under_a_known_event_key_is_not_the_owner(scene: Scene, field: str) -> None:
    run = await scene.run()
    await scene.do(run.append())
    value = await scene.session() if field == "session_id" else "agent.other"
    await scene.refuses("record_owner_mismatch", run.append().but(f"record.{field}", value))


# Changes of a run


@pytest.mark.parametrize("method", builders.CHANGE_METHODS)
async def test_an_exact_change_is_answered_again(scene: Scene, method: str) -> None:
    run = await scene.run()
    first = await scene.do(run.change(method))
    for _ in range(2):
        await scene.repeats(run.change(method), first)


@pytest.mark.parametrize("method", ["record_cancellation", "record_suspension", "record_terminal"])
async def test_other_content_of_the_record_of_a_change_is_another_record(scene: Scene, method: str) -> None:
    run = await scene.run()
    change = run.change(method)
    await scene.do(change)
    await scene.refuses("record_conflict", change.but("record.turn_id", "turn-2"))
    await scene.refuses("record_conflict", change.but("record.timestamp", STARTED))
    await scene.refuses("record_conflict", change.respaced("record"))


@pytest.mark.parametrize(
    ("method", "code"),
    [
        ("record_cancellation", "run_cancellation_conflict"),
        ("record_suspension", "run_suspension_conflict"),
        ("record_terminal", "run_terminal_conflict"),
    ],
)
async def test_another_event_key_of_a_change_is_the_changes_conflict(scene: Scene, method: str, code: str) -> None:
    run = await scene.run()
    change = run.change(method)
    await scene.do(change)
    await scene.refuses(code, change.but("record.event_key", "another/key"))
    await scene.refuses(code, change.but("record.event_key", "another/key").but("record.turn_id", "turn-2"))
    await scene.refuses(code, change.but("record.event_key", run.started_key))


async def test_another_reason_comes_before_other_content(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(run.cancel("first"))
    await scene.refuses("run_cancellation_conflict", run.cancel("second").but("record.turn_id", "turn-2"))


async def test_another_checkpoint_comes_before_other_content(scene: Scene) -> None:
    run = await scene.run(status="suspended")
    await scene.refuses("run_suspension_conflict", run.suspend(data=b"other").but("record.turn_id", "turn-2"))


async def test_another_status_comes_before_other_content(scene: Scene) -> None:
    run = await scene.run(status="completed")
    await scene.refuses("run_terminal_conflict", run.end("failed").but("record.turn_id", "turn-2"))


async def test_other_labels_in_the_record_of_an_ending_are_other_content(scene: Scene) -> None:
    run = await scene.run(status="completed")
    await scene.refuses("record_conflict", run.end(labels={"tenant": "acme"}))


@pytest.mark.parametrize("status", ["failed", "canceled"])
async def test_another_failure_or_reason_is_other_content(scene: Scene, status: str) -> None:
    run = await scene.run(status=status)
    other = {
        "failed": {"failure": {"message": "Other.", "kind": "internal"}},
        "canceled": {"cancellation": {"reason": "x"}},
    }
    await scene.refuses("record_conflict", run.end(status).payload_but("record", **other[status]))


# Sessions


async def test_creating_a_session_again_keeps_the_stored_time(scene: Scene) -> None:
    session_id = await scene.session()
    first = await scene.do(builders.create_session(session_id))
    assert await scene.do(builders.create_session(session_id, LATER)) == first


async def test_ending_a_session_again_keeps_the_stored_time(scene: Scene) -> None:
    session_id = await scene.session("ended")
    first = await scene.do(builders.end_session(session_id))
    assert await scene.do(builders.end_session(session_id, LATER)) == first


async def test_a_retry_long_after_is_still_a_retry(scene: Scene) -> None:
    run = await scene.run()
    first = await scene.do(run.append("note/first"))
    for number in range(50):
        await scene.do(run.append(f"note/{number}"))
    await scene.repeats(run.append("note/first"), first)
