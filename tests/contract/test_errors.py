"""Refusals: their codes, what they name, and that they are for good."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from schemas.refusals import Code
from tests.contract import builders
from tests.contract.builders import Command
from tests.contract.clients import STATUS_OF
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")

CODES = [
    "session_not_found", "session_ended", "session_purged", "session_active", "session_has_active_runs",
    "run_not_found", "run_conflict", "run_terminal_conflict", "run_cancellation_conflict", "run_not_active",
    "run_suspension_not_found", "run_suspension_conflict", "run_session_mismatch", "record_owner_mismatch",
    "record_conflict", "continuation_mismatch", "invalid_command", "invalid_cursor", "too_large",
    "transcript_not_found", "transcript_invalid", "unauthenticated", "forbidden", "consumer_not_found",
    "consumer_conflict", "unavailable",
]  # fmt: skip

Refusing = Callable[[Scene], Awaitable[Command]]
REFUSING: dict[str, Refusing] = {}


def refused_with(code: str) -> Callable[[Refusing], Refusing]:
    """Name the code that the command of a function is refused with."""

    def note(function: Refusing) -> Refusing:
        REFUSING[code] = function
        return function

    return note


@refused_with("session_not_found")
async def missing_session(scene: Scene) -> Command:
    return scene.new_run(scene.new_session()).start()


@refused_with("session_ended")
async def ended_session(scene: Scene) -> Command:
    return builders.create_session(await scene.session("ended"))


@refused_with("session_purged")
async def purged_session(scene: Scene) -> Command:
    return builders.create_session(await scene.session("purged"))


@refused_with("session_active")
async def active_session(scene: Scene) -> Command:
    return builders.purge_session(await scene.session())


@refused_with("session_has_active_runs")
async def session_with_active_runs(scene: Scene) -> Command:
    run = await scene.run()
    await scene.do(builders.end_session(run.session_id))
    return builders.purge_session(run.session_id)


@refused_with("run_not_found")
async def missing_run(scene: Scene) -> Command:
    return scene.new_run(await scene.session()).append()


@refused_with("run_conflict")
async def other_run(scene: Scene) -> Command:
    return (await scene.run()).start().but("started.event_key", "another/key")


@refused_with("run_terminal_conflict")
async def other_ending(scene: Scene) -> Command:
    return (await scene.run(status="failed")).end("completed")


@refused_with("run_cancellation_conflict")
async def other_reason(scene: Scene) -> Command:
    run = await scene.run()
    await scene.do(run.cancel("first"))
    return run.cancel("second")


@refused_with("run_not_active")
async def stopped_run(scene: Scene) -> Command:
    return (await scene.run(status="completed")).append()


@refused_with("run_suspension_not_found")
async def no_checkpoint(scene: Scene) -> Command:
    return Command("load_checkpoint", {"run_id": (await scene.run()).run_id})


@refused_with("run_suspension_conflict")
async def other_checkpoint(scene: Scene) -> Command:
    return (await scene.run(status="suspended")).suspend(data=b"other")


@refused_with("run_session_mismatch")
async def parent_elsewhere(scene: Scene) -> Command:
    return scene.new_run(await scene.session(), parent=(await scene.run()).run_id).start()


@refused_with("record_owner_mismatch")
async def other_owner(scene: Scene) -> Command:
    return (await scene.run()).append().but("record.agent_id", "agent.other")


@refused_with("record_conflict")
async def other_content(scene: Scene) -> Command:
    run = await scene.run()
    await scene.do(run.append())
    return run.append(payload="2")


@refused_with("continuation_mismatch")
async def running_predecessor(scene: Scene) -> Command:
    before = await scene.run()
    return scene.new_run(before.session_id, predecessor=before.run_id).start()


@refused_with("invalid_command")
async def malformed(scene: Scene) -> Command:
    return (await scene.run()).append(kind="run_started")


@refused_with("invalid_cursor")
async def foreign_cursor(scene: Scene) -> Command:
    return Command("list_run_records", {"run_id": (await scene.run()).run_id, "cursor": "x", "limit": 1})


async def test_the_codes_are_these_and_no_others() -> None:
    assert {code.value for code in Code} == set(CODES)
    assert set(STATUS_OF) <= set(CODES)


@pytest.mark.parametrize("code", CODES)
async def test_only_unavailable_is_temporary(code: str) -> None:
    assert Code(code).temporary is (code == "unavailable")


@pytest.mark.parametrize("code", REFUSING)
async def test_a_refusal_has_its_code_and_names_the_ids_involved(scene: Scene, code: str) -> None:
    refused = await scene.refuses(code, await REFUSING[code](scene))
    assert refused.refusal.detail
    for name, value in refused.refusal.ids.items():
        assert name.endswith(("_id", "_key")), name
        assert value


@pytest.mark.parametrize("code", REFUSING)
async def test_a_permanent_refusal_is_answered_again(scene: Scene, code: str) -> None:
    command = await REFUSING[code](scene)
    for _ in range(3):
        await scene.refuses(code, command)


@pytest.mark.parametrize("code", sorted(set(REFUSING) - {"session_not_found", "session_ended", "session_purged"}))
async def test_no_message_holds_what_is_private(scene: Scene, code: str) -> None:
    """Payloads, labels and checkpoints are not repeated to whoever reads a message or a log of it."""
    command = await REFUSING[code](scene)
    refused = await scene.refuses(code, command)
    told = f"{refused.refusal.detail} {dict(refused.refusal.ids)}"
    for record in ("record", "started", "canceled", "parent_linked"):
        payload = command.args.get(record, {}).get("payload", "")
        assert len(payload) < 4 or payload not in told
    assert builders.encoded(b"other") not in told
