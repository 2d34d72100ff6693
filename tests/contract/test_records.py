"""Ordinary records: whose they are, when they are taken, and when they are retries."""

from __future__ import annotations

import dataclasses

import pytest

from tests.contract import builders
from tests.contract.builders import LATER, Command
from tests.contract.scene import Scene, meaning

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIFECYCLE_TYPES = ["run_started", "child_run_linked", "runtime.cancellation_intent", "run_suspended", "run_completed"]
TERMINAL = ["suspended", "completed", "failed", "canceled"]


async def test_a_record_is_appended(scene: Scene) -> None:
    run = await scene.run()
    command = run.append()
    answer = await scene.do(command)
    assert answer == {"id": answer["id"], "inserted": True, "session_status": "active"}
    stored = (await scene.records(run))[-1]
    assert stored == {"id": answer["id"], **command.at("record")}


async def test_a_record_of_a_sessionless_run_is_appended(scene: Scene) -> None:
    run = await scene.one_shot()
    answer = await scene.do(run.append())
    assert meaning(answer) == {"id": answer["id"], "inserted": True}
    assert await scene.keys(run) == [run.started_key, "note/1"]


@pytest.mark.parametrize("kind", LIFECYCLE_TYPES)
async def test_a_lifecycle_type_is_not_appended(scene: Scene, kind: str) -> None:
    run = await scene.run()
    payload = {
        "run_started": "{}",
        "child_run_linked": '{"ToolName":"t","ToolCallID":"c","ChildRunID":"r","ChildAgentID":"a"}',
        "runtime.cancellation_intent": '{"reason":"user_request"}',
        "run_suspended": '{"SuspensionID":"checkpoint-1"}',
        "run_completed": '{"status":"success","phase":"completed"}',
    }[kind]
    await scene.refuses("invalid_command", run.append(kind=kind, payload=payload))


@pytest.mark.parametrize("kind", ["run_resumed", "RUN_STARTED", "run_started ", "note", "prompt_rendered", "日本"])
async def test_any_other_type_is_appended(scene: Scene, kind: str) -> None:
    run = await scene.run()
    await scene.do(run.append(kind=kind))
    assert (await scene.records(run))[-1]["type"] == kind


@pytest.mark.parametrize("kind", ["prompt_rendered", "transcript_messages_seeded", "transcript_messages_appended"])
@pytest.mark.parametrize("payload", ["7", '"text"', "[]", '{"Unknown":[null]}', "null"])
async def test_the_payload_of_an_ordinary_record_is_not_interpreted(scene: Scene, kind: str, payload: str) -> None:
    run = await scene.run()
    await scene.do(run.append(kind=kind, payload=payload))
    assert await scene.payload_of(run, "note/1") == payload


async def test_a_record_of_a_missing_run_is_refused(scene: Scene) -> None:
    await scene.refuses("run_not_found", scene.new_run(await scene.session()).append())


async def test_a_record_of_a_missing_run_in_a_missing_session_is_refused_for_its_run(scene: Scene) -> None:
    await scene.refuses("run_not_found", scene.new_run(scene.new_session()).append())


async def test_a_record_of_another_agent_is_refused(scene: Scene) -> None:
    run = await scene.run()
    await scene.refuses("record_owner_mismatch", run.append().but("record.agent_id", "agent.other"))


@pytest.mark.parametrize("other", ["another", "missing", "none"])
async def test_a_record_of_another_session_is_refused(scene: Scene, other: str) -> None:
    run = await scene.run()
    session_id = {"another": await scene.session(), "missing": scene.new_session(), "none": ""}[other]
    await scene.refuses("record_owner_mismatch", run.append().but("record.session_id", session_id))


async def test_a_record_of_a_sessionless_run_names_no_session(scene: Scene) -> None:
    run = await scene.one_shot()
    await scene.refuses("record_owner_mismatch", run.append().but("record.session_id", await scene.session()))


@pytest.mark.parametrize("status", TERMINAL)
async def test_a_terminal_run_takes_nothing_new(scene: Scene, status: str) -> None:
    run = await scene.run(status=status)
    await scene.refuses("run_not_active", run.append())


async def test_a_run_that_its_session_stopped_takes_nothing_new(scene: Scene) -> None:
    await scene.refuses("run_not_active", (await scene.stopped()).append())


@pytest.mark.parametrize("status", TERMINAL)
async def test_an_exact_retry_on_a_terminal_run_still_succeeds(scene: Scene, status: str) -> None:
    run = await scene.run()
    first = await scene.do(run.append())
    for command in run.become(status):
        await scene.do(command)
    await scene.repeats(run.append(), first)


@pytest.mark.parametrize("status", TERMINAL)
async def test_a_known_event_key_with_other_content_on_a_terminal_run_is_a_conflict(scene: Scene, status: str) -> None:
    run = await scene.run()
    await scene.do(run.append())
    for command in run.become(status):
        await scene.do(command)
    await scene.refuses("record_conflict", run.append(payload='{"n":2}'))


async def test_an_event_key_of_a_lifecycle_record_is_taken(scene: Scene) -> None:
    run = await scene.run()
    await scene.refuses("record_conflict", run.append(run.started_key))
    await scene.do(run.cancel())
    await scene.refuses("record_conflict", run.append(builders.INTENT_KEY))
    await scene.do(run.suspend())
    await scene.refuses("record_conflict", run.append(builders.SUSPENSION_KEY))


async def test_an_event_key_of_a_link_is_taken_on_the_parent_only(scene: Scene) -> None:
    parent = await scene.run()
    child = await scene.child(parent)
    await scene.refuses("record_conflict", parent.append(child.link_key))
    assert (await scene.do(child.append(child.link_key)))["inserted"] is True


async def test_the_canceled_record_that_was_not_used_keeps_its_event_key_free(scene: Scene) -> None:
    run = await scene.run()
    assert (await scene.do(run.append(builders.TERMINAL_KEY)))["inserted"] is True


async def test_the_same_event_key_on_two_runs_is_two_records(scene: Scene) -> None:
    session_id = await scene.session()
    first, second = await scene.run(session_id), await scene.run(session_id)
    answers = [await scene.do(run.append()) for run in (first, second)]
    assert [answer["inserted"] for answer in answers] == [True, True]
    assert answers[0]["id"] != answers[1]["id"]


async def test_equal_content_under_another_event_key_is_another_record(scene: Scene) -> None:
    run = await scene.run()
    answers = [await scene.do(run.append(key)) for key in ("note/1", "note/2")]
    assert [answer["inserted"] for answer in answers] == [True, True]
    assert len(await scene.records(run)) == 3


@pytest.mark.parametrize("status", ["active", "ended"])
async def test_the_session_status_in_an_answer_is_the_current_one(scene: Scene, status: str) -> None:
    run = await scene.run()
    first = await scene.do(run.append())
    if status == "ended":
        await scene.do(builders.end_session(run.session_id))
    again = await scene.do(run.append())
    assert again == {"id": first["id"], "inserted": False, "session_status": status}
    assert (await scene.do(run.append("note/2")))["session_status"] == status


async def test_a_record_may_be_older_than_its_run(scene: Scene) -> None:
    run = await scene.run()
    answer = await scene.do(run.append().but("record.timestamp", "1970-01-01T00:00:00.000Z"))
    assert answer["inserted"] is True


async def test_records_stand_in_the_order_of_their_commands_not_of_their_times(scene: Scene) -> None:
    run = await scene.run()
    for number, year in enumerate((2030, 1999, 2040)):
        await scene.do(run.append(f"note/{number}").but("record.timestamp", f"{year}-01-01T00:00:00.000Z"))
    assert await scene.keys(run) == [run.started_key, "note/0", "note/1", "note/2"]


async def test_a_child_and_its_parent_keep_their_own_histories(scene: Scene) -> None:
    parent = await scene.run()
    child = await scene.child(parent)
    await scene.do(child.append())
    assert await scene.keys(child) == [child.started_key, "note/1"]
    assert await scene.keys(parent) == [parent.started_key, child.link_key]


async def test_a_run_is_known_by_its_whole_id(scene: Scene) -> None:
    run = await scene.run()
    for run_id in (run.run_id + "/", run.run_id[:-1], run.run_id.upper(), run.run_id + " "):
        other = dataclasses.replace(run, run_id=run_id)
        await scene.refuses("run_not_found", other.append())
        await scene.refuses("run_not_found", Command("load_run", {"run_id": run_id}))


async def test_another_time_zone_in_the_same_instant_is_a_retry(scene: Scene) -> None:
    run = await scene.run()
    first = await scene.do(run.append())
    for same in (LATER.replace("Z", "+00:00"), LATER.replace(".250Z", ".25Z"), LATER.replace(".250Z", ".250000Z")):
        await scene.repeats(run.append().but("record.timestamp", same), first)
