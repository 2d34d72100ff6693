"""Starts: of roots and children, in a session and without one."""

from __future__ import annotations

import dataclasses

import pytest

from tests.contract import builders
from tests.contract.builders import LATER, STARTED, Run, compact, ending_payload, started_payload
from tests.contract.scene import Scene, meaning

pytestmark = pytest.mark.asyncio(loop_scope="session")

LABELS = {"tenant": "acme", "note": ""}
FAMILIES = ["root", "child", "one_shot", "one_shot_child"]
SESSIONFUL = ["root", "child"]
CHILDREN = ["child", "one_shot_child"]
OWN_RECORDS = [(family, "started") for family in FAMILIES] + [(family, "canceled") for family in SESSIONFUL]
PARTS = [*OWN_RECORDS, *((family, "run") for family in FAMILIES), *((family, "parent_linked") for family in CHILDREN)]


async def prepared(scene: Scene, family: str, session: str = "active") -> Run:
    """A run of a family, with all that its start needs, not started; a session may end after the parent's start."""
    if family == "root":
        return scene.new_run(await scene.session(session), labels=LABELS)
    if family == "child":
        parent = await scene.run()
        if session == "ended":
            await scene.do(builders.end_session(parent.session_id))
        return scene.new_child(parent, agent_id="agent.research", labels=LABELS)
    if family == "one_shot":
        return scene.new_run(labels=LABELS)
    return scene.new_child(await scene.one_shot(), agent_id="agent.research", labels=LABELS)


# What a start stores and answers


async def test_a_root_starts_in_an_active_session(scene: Scene) -> None:
    run = await prepared(scene, "root")
    answer = await scene.do(run.start())
    assert set(meaning(answer)) == {"outcome", "started"}
    assert answer["outcome"] == "proceed"
    assert meaning(answer["started"]) == {"id": answer["started"]["id"], "inserted": True, "session_status": "active"}
    assert await scene.keys(run) == [run.started_key]
    assert (await scene.records(run))[0]["id"] == answer["started"]["id"]
    meta = await scene.load(run)
    assert meta.pop("updated_at").endswith("Z")
    assert meta == {
        "agent_id": run.agent_id,
        "run_id": run.run_id,
        "session_id": run.session_id,
        "status": "running",
        "start_outcome": "proceed",
        "started_at": STARTED,
        "labels": {"tenant": "acme"},
    }


async def test_a_root_is_stopped_in_an_ended_session(scene: Scene) -> None:
    run = await prepared(scene, "root", "ended")
    answer = await scene.do(run.start())
    assert set(meaning(answer)) == {"outcome", "started", "canceled"}
    assert answer["outcome"] == "stop"
    for name in ("started", "canceled"):
        assert answer[name]["inserted"] is True
        assert answer[name]["session_status"] == "ended"
    records = await scene.records(run)
    assert [record["event_key"] for record in records] == [run.started_key, builders.TERMINAL_KEY]
    assert [record["id"] for record in records] == [answer["started"]["id"], answer["canceled"]["id"]]
    meta = await scene.load(run)
    assert meta["status"] == "canceled"
    assert meta["start_outcome"] == "stop"
    assert meta["cancellation_reason"] == "session_ended"
    assert "runtime.cancellation_intent" not in [record["type"] for record in records]


async def test_a_child_starts_in_an_active_session(scene: Scene) -> None:
    run = await prepared(scene, "child")
    answer = await scene.do(run.start())
    assert set(meaning(answer)) == {"outcome", "parent_linked", "started"}
    assert answer["outcome"] == "proceed"
    order = [record["id"] for record in await scene.session_records(run.session_id)]
    assert order[-2:] == [answer["parent_linked"]["id"], answer["started"]["id"]]
    assert (await scene.load(run))["parent_run_id"] == run.parent
    assert await scene.keys(Run(run.parent)) == [Run(run.parent).started_key, run.link_key]
    assert await scene.keys(run) == [run.started_key]


async def test_a_child_is_stopped_in_an_ended_session(scene: Scene) -> None:
    run = await prepared(scene, "child", "ended")
    answer = await scene.do(run.start())
    assert set(meaning(answer)) == {"outcome", "parent_linked", "started", "canceled"}
    assert answer["outcome"] == "stop"
    order = [record["id"] for record in await scene.session_records(run.session_id)]
    assert order[-3:] == [answer[name]["id"] for name in ("parent_linked", "started", "canceled")]
    meta = await scene.load(run)
    assert (meta["status"], meta["cancellation_reason"]) == ("canceled", "session_ended")
    assert (await scene.load(Run(run.parent)))["status"] == "running"


async def test_a_one_shot_run_starts(scene: Scene) -> None:
    run = await prepared(scene, "one_shot")
    answer = await scene.do(run.start())
    assert meaning(answer) == {"started": {"id": answer["started"]["id"], "inserted": True}}
    meta = await scene.load(run)
    assert "session_id" not in meta
    assert (meta["status"], meta["start_outcome"]) == ("running", "proceed")
    assert await scene.keys(run) == [run.started_key]


async def test_a_one_shot_child_starts(scene: Scene) -> None:
    run = await prepared(scene, "one_shot_child")
    answer = await scene.do(run.start())
    assert set(meaning(answer)) == {"parent_linked", "started"}
    for name in ("parent_linked", "started"):
        assert meaning(answer[name]) == {"id": answer[name]["id"], "inserted": True}
    assert await scene.keys(Run(run.parent)) == [Run(run.parent).started_key, run.link_key]
    assert await scene.keys(run) == [run.started_key]
    assert (await scene.load(run))["parent_run_id"] == run.parent


@pytest.mark.parametrize("family", FAMILIES)
async def test_the_stored_start_is_the_record_that_was_sent(scene: Scene, family: str) -> None:
    run = await prepared(scene, family)
    start = run.start()
    answer = await scene.do(start)
    assert meaning(await scene.records(run)) == [meaning({"id": answer["started"]["id"], **start.at("started")})]


@pytest.mark.parametrize("family", CHILDREN)
async def test_grandchildren_start(scene: Scene, family: str) -> None:
    child = await scene.started(await prepared(scene, family))
    grandchild = await scene.child(child)
    assert (await scene.load(grandchild))["parent_run_id"] == child.run_id


async def test_one_parent_has_many_children(scene: Scene) -> None:
    parent = await scene.run()
    children = [await scene.child(parent) for _ in range(3)]
    assert await scene.keys(parent) == [parent.started_key, *(child.link_key for child in children)]


# The shape of a start, refused before anything else is asked


@pytest.mark.parametrize(("family", "record"), OWN_RECORDS)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run_id", "another-run"),
        ("agent_id", "agent.other"),
        ("session_id", "another-session"),
        ("timestamp", LATER),
        ("type", "note"),
        ("type", "run_suspended"),
        ("payload", "{}x"),
    ],
)
async def test_a_record_of_a_start_is_for_exactly_this_run(
    scene: Scene, family: str, record: str, field: str, value: str
) -> None:
    run = await prepared(scene, family)
    await scene.refuses("invalid_command", run.start().but(f"{record}.{field}", value))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "wrong",
    [
        {"parent_run_id": "another-run"},
        {"predecessor_run_id": "another-run"},
        {"labels": {"tenant": "other", "note": ""}},
        {"labels": {"tenant": "acme"}},
        {"labels": {}},
        {"labels": None},
    ],
    ids=["parent", "predecessor", "label", "fewer labels", "no labels", "null labels"],
)
async def test_the_payload_of_started_equals_the_command(scene: Scene, family: str, wrong: builders.Json) -> None:
    run = await prepared(scene, family)
    await scene.refuses("invalid_command", run.start().payload_but("started", **wrong))


@pytest.mark.parametrize("family", SESSIONFUL)
@pytest.mark.parametrize(
    "payload",
    [
        ending_payload("canceled", LABELS, "engine_canceled"),
        ending_payload("canceled", {"tenant": "acme"}, "session_ended"),
        ending_payload("canceled", {}, "session_ended"),
        ending_payload("completed", LABELS),
        ending_payload("failed", LABELS),
    ],
    ids=["reason", "fewer labels", "no labels", "completed", "failed"],
)
@pytest.mark.parametrize("session", ["active", "ended"])
async def test_canceled_is_the_ending_by_an_ended_session(
    scene: Scene, family: str, payload: str, session: str
) -> None:
    run = await prepared(scene, family, session)
    await scene.refuses("invalid_command", run.start().but("canceled.payload", payload))


@pytest.mark.parametrize("family", SESSIONFUL)
async def test_canceled_and_started_have_different_event_keys(scene: Scene, family: str) -> None:
    run = await prepared(scene, family)
    await scene.refuses("invalid_command", run.start().but("canceled.event_key", run.started_key))


@pytest.mark.parametrize(("family", "record"), PARTS)
async def test_every_part_of_a_start_is_needed(scene: Scene, family: str, record: str) -> None:
    start = (await prepared(scene, family)).start()
    await scene.refuses("invalid_command", start.without(record))
    await scene.refuses("invalid_command", start.but(record, None))


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_run_has_no_parent_that_is_itself(scene: Scene, family: str) -> None:
    run = await prepared(scene, family)
    await scene.refuses("invalid_command", dataclasses.replace(run, parent=run.run_id).start())


@pytest.mark.parametrize("family", SESSIONFUL)
async def test_a_run_continues_not_itself(scene: Scene, family: str) -> None:
    run = await prepared(scene, family)
    await scene.refuses("invalid_command", dataclasses.replace(run, predecessor=run.run_id).start())


async def test_a_root_has_no_parent(scene: Scene) -> None:
    run = await prepared(scene, "root")
    parent = await scene.run(run.session_id)
    start = run.start().but("run.parent_run_id", parent.run_id)
    start = start.but("started.payload", started_payload(parent.run_id, "", run.labels))
    await scene.refuses("invalid_command", start)


@pytest.mark.parametrize("family", CHILDREN)
async def test_a_child_has_a_parent(scene: Scene, family: str) -> None:
    run = await prepared(scene, family)
    start = run.start().but("run.parent_run_id", "").but("started.payload", started_payload("", "", run.labels))
    await scene.refuses("invalid_command", start)


@pytest.mark.parametrize("family", SESSIONFUL)
async def test_a_sessionful_start_names_a_session(scene: Scene, family: str) -> None:
    start = (await prepared(scene, family)).start()
    for record in set(start.args) & {"run", "started", "canceled", "parent_linked"}:
        start = start.but(f"{record}.session_id", "")
    await scene.refuses("invalid_command", start)


@pytest.mark.parametrize("family", ["one_shot", "one_shot_child"])
async def test_a_one_shot_start_names_no_session(scene: Scene, family: str) -> None:
    start = (await prepared(scene, family)).start()
    session_id = await scene.session()
    for record in set(start.args) & {"run", "started", "parent_linked"}:
        start = start.but(f"{record}.session_id", session_id)
    await scene.refuses("invalid_command", start)


@pytest.mark.parametrize("family", ["one_shot", "one_shot_child"])
async def test_a_one_shot_start_continues_no_run(scene: Scene, family: str) -> None:
    before = await scene.one_shot("suspended")
    run = dataclasses.replace(await prepared(scene, family), predecessor=before.run_id)
    await scene.refuses("invalid_command", run.start())


async def test_a_one_shot_root_has_no_parent(scene: Scene) -> None:
    parent = await scene.one_shot()
    run = scene.new_run()
    start = run.start().but("run.parent_run_id", parent.run_id)
    await scene.refuses("invalid_command", start.but("started.payload", started_payload(parent.run_id)))


@pytest.mark.parametrize("family", CHILDREN)
@pytest.mark.parametrize(
    ("field", "value"),
    [("run_id", "another-run"), ("session_id", "another-session"), ("type", "note"), ("type", "run_started")],
)
async def test_a_link_is_a_record_on_the_parent(scene: Scene, family: str, field: str, value: str) -> None:
    run = await prepared(scene, family)
    await scene.refuses("invalid_command", run.start().but(f"parent_linked.{field}", value))


@pytest.mark.parametrize("family", CHILDREN)
@pytest.mark.parametrize(
    "wrong",
    [
        {"ChildRunID": "another-run"},
        {"ChildAgentID": "agent.chat"},
        {"ToolName": ""},
        {"ToolCallID": ""},
        {"ToolName": None},
        {"ToolCallID": None},
    ],
    ids=compact,
)
async def test_a_link_names_the_child_and_its_tool_call(scene: Scene, family: str, wrong: builders.Json) -> None:
    run = await prepared(scene, family)
    await scene.refuses("invalid_command", run.start().payload_but("parent_linked", **wrong))


async def test_the_event_keys_of_a_one_shot_child_start_differ(scene: Scene) -> None:
    run = await prepared(scene, "one_shot_child")
    await scene.refuses("invalid_command", run.start().but("parent_linked.event_key", run.started_key))


async def test_a_link_in_a_session_may_share_the_event_key_of_the_child_since_its_run_is_another(scene: Scene) -> None:
    run = await prepared(scene, "child")
    answer = await scene.do(run.start().but("parent_linked.event_key", run.started_key))
    assert answer["outcome"] == "proceed"


async def test_a_link_may_have_another_time_than_the_start(scene: Scene) -> None:
    run = await prepared(scene, "child")
    answer = await scene.do(run.start().but("parent_linked.timestamp", LATER))
    assert answer["outcome"] == "proceed"


# What a start asks of the store


@pytest.mark.parametrize("family", SESSIONFUL)
async def test_a_start_in_a_missing_session_is_refused(scene: Scene, family: str) -> None:
    run = scene.new_run(scene.new_session(), parent=(await scene.run()).run_id if family == "child" else "")
    await scene.refuses("session_not_found", run.start())


@pytest.mark.parametrize("family", SESSIONFUL)
async def test_a_start_in_a_purged_session_is_refused(scene: Scene, family: str) -> None:
    session_id = await scene.session("purged")
    run = scene.new_run(session_id, parent=(await scene.run()).run_id if family == "child" else "")
    await scene.refuses("session_purged", run.start())


@pytest.mark.parametrize("family", CHILDREN)
async def test_a_new_child_needs_an_existing_parent(scene: Scene, family: str) -> None:
    session_id = await scene.session() if family == "child" else ""
    run = scene.new_run(session_id, parent=scene.new_run().run_id)
    await scene.refuses("run_not_found", run.start())


async def test_a_new_child_needs_a_parent_in_the_same_session(scene: Scene) -> None:
    parent = await scene.run()
    run = scene.new_run(await scene.session(), parent=parent.run_id)
    await scene.refuses("run_session_mismatch", run.start())


async def test_a_new_child_needs_a_parent_that_has_a_session(scene: Scene) -> None:
    parent = await scene.one_shot()
    run = scene.new_run(await scene.session(), parent=parent.run_id)
    await scene.refuses("run_session_mismatch", run.start())


async def test_a_new_one_shot_child_needs_a_parent_without_session(scene: Scene) -> None:
    parent = await scene.run()
    await scene.refuses("run_session_mismatch", scene.new_run(parent=parent.run_id).start())


@pytest.mark.parametrize("family", CHILDREN)
@pytest.mark.parametrize("status", ["suspended", "completed", "failed", "canceled"])
async def test_a_new_child_needs_a_running_parent(scene: Scene, family: str, status: str) -> None:
    parent = await scene.run(status=status) if family == "child" else await scene.one_shot(status)
    await scene.refuses("run_not_active", scene.new_child(parent).start())


async def test_a_new_child_needs_a_parent_that_its_session_has_not_stopped(scene: Scene) -> None:
    await scene.refuses("run_not_active", scene.new_child(await scene.stopped()).start())


@pytest.mark.parametrize("family", CHILDREN)
async def test_a_parent_with_a_cancellation_intent_still_has_children(scene: Scene, family: str) -> None:
    parent = await scene.run() if family == "child" else await scene.one_shot()
    await scene.do(parent.cancel())
    assert (await scene.load(await scene.child(parent)))["status"] == "running"


@pytest.mark.parametrize("family", CHILDREN)
async def test_the_agent_of_a_link_is_the_parents(scene: Scene, family: str) -> None:
    run = await prepared(scene, family)
    await scene.refuses("record_owner_mismatch", run.start().but("parent_linked.agent_id", "agent.other"))


@pytest.mark.parametrize("family", CHILDREN)
async def test_a_link_takes_no_event_key_that_the_parent_has_given(scene: Scene, family: str) -> None:
    run = await prepared(scene, family)
    parent_key = Run(run.parent).started_key
    await scene.refuses("record_conflict", run.start().but("parent_linked.event_key", parent_key))


@pytest.mark.parametrize("family", CHILDREN)
@pytest.mark.parametrize("status", ["suspended", "completed", "failed", "canceled"])
async def test_a_retry_of_a_child_start_stays_valid_after_the_parent_stopped(
    scene: Scene, family: str, status: str
) -> None:
    run = await prepared(scene, family)
    parent = Run(run.parent, run.session_id)
    first = await scene.do(run.start())
    for command in parent.become(status):
        await scene.do(command)
    await scene.repeats(run.start(), first)


# What a start decided, it decided for ever


@pytest.mark.parametrize("family", SESSIONFUL)
async def test_a_retry_reports_proceed_after_the_session_ended(scene: Scene, family: str) -> None:
    run = await prepared(scene, family)
    await scene.do(run.start())
    await scene.do(builders.end_session(run.session_id))
    answer = await scene.do(run.start())
    assert answer["outcome"] == "proceed"
    assert answer["started"]["inserted"] is False
    assert answer["started"]["session_status"] == "ended"
    assert "canceled" not in meaning(answer)


@pytest.mark.parametrize("family", SESSIONFUL)
@pytest.mark.parametrize("status", ["suspended", "completed", "failed", "canceled"])
async def test_a_retry_reports_the_first_decision_not_the_status(scene: Scene, family: str, status: str) -> None:
    run = await prepared(scene, family)
    first = await scene.do(run.start())
    for command in run.become(status):
        await scene.do(command)
    answer = await scene.repeats(run.start(), first)
    assert answer["outcome"] == "proceed"
    assert (await scene.load(run))["start_outcome"] == "proceed"


@pytest.mark.parametrize("family", SESSIONFUL)
async def test_a_retry_reports_stop_with_both_records(scene: Scene, family: str) -> None:
    run = await prepared(scene, family, "ended")
    first = await scene.do(run.start())
    answer = await scene.repeats(run.start(), first)
    assert answer["outcome"] == "stop"
    assert answer["canceled"]["inserted"] is False


@pytest.mark.parametrize("family", FAMILIES)
async def test_absent_null_and_empty_labels_are_the_same(scene: Scene, family: str) -> None:
    run = dataclasses.replace(await prepared(scene, family), labels={})
    start = run.start().without("run.labels")
    first = await scene.do(start)
    await scene.repeats(start.but("run.labels", None), first)
    await scene.repeats(start.but("run.labels", {}), first)


@pytest.mark.parametrize(
    "payload", ['{"labels":null}', '{"labels":{}}', '{"parent_run_id":null}', '{"parent_run_id":""}']
)
async def test_an_empty_field_of_the_started_payload_is_as_good_as_none(scene: Scene, payload: str) -> None:
    run = scene.new_run(await scene.session())
    await scene.do(run.start().but("started.payload", payload))
    assert (await scene.records(run))[0]["payload"] == payload
