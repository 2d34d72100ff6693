"""Cancellation intents, and the three ways in which a run is canceled."""

from __future__ import annotations

import pytest

from tests.contract import builders
from tests.contract.builders import INTENT_KEY, LATER, TERMINAL_KEY, ending_payload
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")

TERMINAL = ["suspended", "completed", "failed", "canceled"]


async def test_the_first_intent_stores_reason_and_record_and_the_run_stays_running(scene: Scene) -> None:
    run = await scene.run()
    command = run.cancel()
    answer = await scene.do(command)
    assert answer == {"id": answer["id"], "inserted": True, "session_status": "active"}
    meta = await scene.load(run)
    assert (meta["status"], meta["cancellation_reason"]) == ("running", "user_request")
    assert (await scene.records(run))[-1] == {"id": answer["id"], **command.at("record")}


async def test_a_running_run_without_intent_has_no_reason(scene: Scene) -> None:
    assert "cancellation_reason" not in await scene.load(await scene.run())


@pytest.mark.parametrize("kind", ["note", "run_completed", "run_suspended"])
async def test_the_record_of_an_intent_is_an_intent(scene: Scene, kind: str) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.cancel().but("record.type", kind))


async def test_the_reason_in_the_record_is_the_commands(scene: Scene) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.cancel().payload_but("record", reason="another"))


async def test_the_record_of_an_intent_is_of_the_run(scene: Scene) -> None:
    run, other = await scene.run(), await scene.run()
    await scene.refuses("invalid_command", run.cancel().but("record.run_id", other.run_id))


async def test_an_intent_for_a_missing_run_is_refused(scene: Scene) -> None:
    await scene.refuses("run_not_found", scene.new_run(await scene.session()).cancel())


async def test_the_same_reason_and_record_are_a_retry(scene: Scene) -> None:
    run = await scene.run()
    first = await scene.do(run.cancel())
    await scene.repeats(run.cancel(), first)


async def test_another_reason_is_a_conflict(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(run.cancel("first"))
    await scene.refuses("run_cancellation_conflict", run.cancel("second"))
    await scene.refuses("run_cancellation_conflict", run.cancel("second", "another/key"))
    assert (await scene.load(run))["cancellation_reason"] == "first"


async def test_another_record_is_a_conflict_even_with_the_same_reason(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(run.cancel())
    await scene.refuses("run_cancellation_conflict", run.cancel(event_key="another/key"))


@pytest.mark.parametrize("status", TERMINAL)
async def test_a_retry_is_answered_after_the_run_stopped(scene: Scene, status: str) -> None:
    run = await scene.run()
    first = await scene.do(run.cancel())
    await scene.do(run.suspend() if status == "suspended" else run.end(status, reason="user_request"))
    await scene.repeats(run.cancel(), first)


@pytest.mark.parametrize("status", TERMINAL)
async def test_another_intent_after_the_run_stopped_with_one_is_a_conflict(scene: Scene, status: str) -> None:
    run = await scene.run()
    await scene.do(run.cancel())
    await scene.do(run.suspend() if status == "suspended" else run.end(status, reason="user_request"))
    await scene.refuses("run_cancellation_conflict", run.cancel("another"))
    await scene.refuses("run_cancellation_conflict", run.cancel(event_key="another/key"))


@pytest.mark.parametrize("status", TERMINAL)
@pytest.mark.parametrize("reason", ["user_request", "engine_canceled", "session_ended"])
async def test_a_terminal_run_without_intent_takes_none(scene: Scene, status: str, reason: str) -> None:
    run = await scene.run(status=status)
    await scene.refuses("run_not_active", run.cancel(reason))


async def test_a_run_stopped_by_its_ended_session_takes_no_intent_of_that_reason(scene: Scene) -> None:
    await scene.refuses("run_not_active", (await scene.stopped()).cancel("session_ended"))


@pytest.mark.parametrize("reason", ["user_request", "engine_canceled"])
async def test_a_run_stopped_by_its_ended_session_conflicts_with_another_reason(scene: Scene, reason: str) -> None:
    await scene.refuses("run_cancellation_conflict", (await scene.stopped()).cancel(reason))


@pytest.mark.parametrize("status", ["completed", "failed"])
async def test_a_run_with_an_intent_may_still_complete_or_fail_and_keeps_the_reason(scene: Scene, status: str) -> None:
    run = await scene.run()
    await scene.do(run.cancel())
    assert (await scene.do(run.end(status)))["inserted"] is True
    meta = await scene.load(run)
    assert (meta["status"], meta["cancellation_reason"]) == (status, "user_request")


async def test_a_run_with_an_intent_may_be_suspended_and_keeps_the_reason(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(run.cancel())
    assert (await scene.do(run.suspend()))["inserted"] is True
    meta = await scene.load(run)
    assert (meta["status"], meta["cancellation_reason"]) == ("suspended", "user_request")


async def test_a_run_with_an_intent_still_takes_records(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(run.cancel())
    assert (await scene.do(run.append()))["inserted"] is True


async def test_an_intent_is_taken_in_an_ended_session(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(builders.end_session(run.session_id))
    assert (await scene.do(run.cancel()))["session_status"] == "ended"


# The three legal pairings


async def types_and_reason(scene: Scene, run: builders.Run) -> tuple[list[str], str]:
    """The types of a run's history, and its cancellation reason."""
    reason = (await scene.load(run)).get("cancellation_reason", "")
    return [record["type"] for record in await scene.records(run)], reason


async def test_a_run_canceled_on_request_has_that_reason_everywhere(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(run.cancel("user_request"))
    await scene.do(run.end("canceled", reason="user_request"))
    types, reason = await types_and_reason(scene, run)
    assert types == ["run_started", "runtime.cancellation_intent", "run_completed"]
    assert reason == "user_request"
    assert await scene.payload_of(run, TERMINAL_KEY) == ending_payload("canceled", {}, "user_request")


async def test_a_run_stopped_at_start_has_the_reason_and_no_intent(scene: Scene) -> None:
    run = await scene.stopped()
    types, reason = await types_and_reason(scene, run)
    assert types == ["run_started", "run_completed"]
    assert reason == "session_ended"
    assert await scene.payload_of(run, TERMINAL_KEY) == ending_payload("canceled", {}, "session_ended")


async def test_a_run_canceled_by_the_engine_has_no_reason_and_no_intent(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(run.end("canceled", reason="engine_canceled"))
    types, reason = await types_and_reason(scene, run)
    assert types == ["run_started", "run_completed"]
    assert reason == ""
    assert await scene.payload_of(run, TERMINAL_KEY) == ending_payload("canceled", {}, "engine_canceled")


@pytest.mark.parametrize("method", ["record_terminal", "repair_terminal"])
@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ("", "user_request"),
        ("", "session_ended"),
        ("user_request", "engine_canceled"),
        ("user_request", "session_ended"),
        ("user_request", "another"),
        ("user_request", "USER_REQUEST"),
        ("engine_canceled", "user_request"),
    ],
)
async def test_every_other_pairing_is_refused(scene: Scene, method: str, stored: str, told: str) -> None:
    run = await scene.run()
    if stored:
        await scene.do(run.cancel(stored))
    await scene.refuses("invalid_command", run.end("canceled", reason=told, method=method))


async def test_the_sessions_end_is_no_reason_for_a_run_that_had_started(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(builders.end_session(run.session_id))
    await scene.refuses("invalid_command", run.end("canceled", reason="session_ended"))


async def test_an_intent_keeps_its_own_event_key_from_the_end_of_the_run(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(run.cancel())
    await scene.refuses("record_conflict", run.end("completed", event_key=INTENT_KEY))


# The text of a reason


@pytest.mark.parametrize("reason", ["x", "two words", "rückgängig 取消", "a" * 1024, "é" * 512, "run_started", "."])
async def test_a_reason_is_text(scene: Scene, reason: str) -> None:
    run = await scene.run()
    await scene.do(run.cancel(reason))
    assert (await scene.load(run))["cancellation_reason"] == reason
    await scene.do(run.end("canceled", reason=reason))


@pytest.mark.parametrize(
    "reason", ["", "a" * 1025, "é" * 513, "one,two", "line\nbreak", "\x00", "\x7f", "\x85"], ids=ascii
)
async def test_a_reason_follows_the_rules_of_types_but_for_its_length(scene: Scene, reason: str) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.cancel(reason))


@pytest.mark.parametrize("reason", ["run_stream_end", "session_purged"])
async def test_a_reason_is_no_reserved_type(scene: Scene, reason: str) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.cancel(reason))


async def test_a_reason_is_needed(scene: Scene) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.cancel().without("reason"))
    await scene.refuses("invalid_command", run.cancel().but("reason", None))


async def test_an_intent_may_have_any_time(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(run.cancel().but("record.timestamp", LATER))
    assert (await scene.records(run))[-1]["timestamp"] == LATER
