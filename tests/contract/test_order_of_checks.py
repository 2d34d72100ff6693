"""Which refusal comes first where a command deserves two.

Each command has a list of checks in their order, and a function that builds the command, with the state it meets, such
that any given checks fail. Every pair that can fail at once is tried; the earlier one's code must be answered. A pair
that excludes itself (a run that is missing and terminal) is left out where the situations are listed.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection

import pytest

from tests.contract import builders
from tests.contract.builders import Command, Run
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")


def pairs(checks: dict[str, str], impossible: Collection[set[str]]) -> list[tuple[str, str]]:
    """Every check alone (paired with itself), and every two that can fail together, the earlier one first."""
    together = [pair for pair in itertools.combinations(checks, 2) if set(pair) not in impossible]
    return [(check, check) for check in checks] + together


def excluding(*groups: str) -> list[set[str]]:
    """Pairs out of which only one can fail, from groups of names that exclude one another."""
    return [set(pair) for group in groups for pair in itertools.combinations(group.split(), 2)]


# Starts

START_CHECKS = {
    "shape": "invalid_command",
    "purged": "session_purged",
    "taken": "run_conflict",
    "no_session": "session_not_found",
    "no_predecessor": "run_not_found",
    "predecessor": "continuation_mismatch",
    "no_parent": "run_not_found",
    "parent_session": "run_session_mismatch",
    "link_owner": "record_owner_mismatch",
    "parent_stopped": "run_not_active",
    "link_key": "record_conflict",
}
ONE_SHOT_CHILD_CHECKS = {
    name: code
    for name, code in START_CHECKS.items()
    if name not in ("purged", "no_session", "no_predecessor", "predecessor")
}
ROOT_CHECKS = {
    name: START_CHECKS[name] for name in ("shape", "purged", "taken", "no_session", "no_predecessor", "predecessor")
}
START_EXCLUDES = excluding(
    "purged no_session", "no_predecessor predecessor", "no_parent parent_session", "no_parent link_owner",
    "no_parent parent_stopped", "no_parent link_key",
)  # fmt: skip


async def start_that_fails(scene: Scene, failing: Collection[str], *, child: bool, sessionful: bool) -> Command:
    """A start that fails these checks, and none before the first of them."""
    home = await scene.session() if sessionful else ""
    session_id = home
    if "purged" in failing:
        session_id = await scene.session("purged")
    if "no_session" in failing:
        session_id = scene.new_session()
    run = scene.new_run(session_id, labels={"tenant": "acme"})
    if "taken" in failing:
        await scene.started(dataclasses.replace(run, session_id=await scene.session()))
    if "no_predecessor" in failing:
        run = dataclasses.replace(run, predecessor=scene.new_run().run_id)
    if "predecessor" in failing:
        run = dataclasses.replace(run, predecessor=(await scene.run()).run_id)
    if child:
        run = dataclasses.replace(run, parent=(await parent_that_fails(scene, failing, home)).run_id)
    command = run.start()
    if "link_owner" in failing:
        command = command.but("parent_linked.agent_id", "agent.other")
    if "link_key" in failing:
        command = command.but("parent_linked.event_key", Run(run.parent).started_key)
    if "shape" in failing:
        command = command.but("started.timestamp", builders.LATER)
    return command


async def parent_that_fails(scene: Scene, failing: Collection[str], home: str) -> Run:
    """The parent of such a start."""
    if "no_parent" in failing:
        return scene.new_run()
    status = "completed" if "parent_stopped" in failing else "running"
    if "parent_session" in failing:
        return await scene.run(status=status)
    # A session that is missing or purged holds no parent: it is in another one, which is asked later.
    return await scene.started(scene.new_run(home), status)


@pytest.mark.parametrize(("first", "second"), pairs(START_CHECKS, START_EXCLUDES))
async def test_start_child_run(scene: Scene, first: str, second: str) -> None:
    command = await start_that_fails(scene, {first, second}, child=True, sessionful=True)
    await scene.refuses(START_CHECKS[first], command)


@pytest.mark.parametrize(("first", "second"), pairs(ROOT_CHECKS, START_EXCLUDES))
async def test_start_root_run(scene: Scene, first: str, second: str) -> None:
    command = await start_that_fails(scene, {first, second}, child=False, sessionful=True)
    await scene.refuses(ROOT_CHECKS[first], command)


@pytest.mark.parametrize(("first", "second"), pairs(ONE_SHOT_CHILD_CHECKS, START_EXCLUDES))
async def test_start_one_shot_child_run(scene: Scene, first: str, second: str) -> None:
    command = await start_that_fails(scene, {first, second}, child=True, sessionful=False)
    await scene.refuses(ONE_SHOT_CHILD_CHECKS[first], command)


@pytest.mark.parametrize(("first", "second"), [("shape", "shape"), ("taken", "taken"), ("shape", "taken")])
async def test_start_one_shot_run(scene: Scene, first: str, second: str) -> None:
    command = await start_that_fails(scene, {first, second}, child=False, sessionful=False)
    await scene.refuses(START_CHECKS[first], command)


async def test_a_run_in_a_purged_session_is_refused_for_its_session_even_where_its_id_is_taken(scene: Scene) -> None:
    purged = await scene.purged_run()
    await scene.refuses("session_purged", dataclasses.replace(purged, labels={"tenant": "other"}).start())


@pytest.mark.parametrize("later", ["predecessor", "link_owner", "parent_stopped", "link_key"])
async def test_a_retry_is_known_before_anything_else_is_asked(scene: Scene, later: str) -> None:
    """A start that was accepted stays a retry, though its predecessor, parent or link would be refused today."""
    parent = await scene.run()
    run = scene.new_child(parent)
    first = await scene.do(run.start())
    if later in ("parent_stopped", "link_key"):
        await scene.do(parent.end())
        await scene.repeats(run.start(), first)
    elif later == "link_owner":
        await scene.refuses("record_conflict", run.start().but("parent_linked.agent_id", "agent.other"))
    else:
        await scene.refuses("run_conflict", dataclasses.replace(run, predecessor=parent.run_id).start())


# Changes of an existing run

FOUND = {
    "shape": "invalid_command",
    "purged": "session_purged",
    "no_run": "run_not_found",
    "owner": "record_owner_mismatch",
}
APPEND_CHECKS = {**FOUND, "key_held": "record_conflict", "stopped": "run_not_active"}
CANCELLATION_CHECKS = {
    **FOUND,
    "reason": "run_cancellation_conflict",
    "another_key": "run_cancellation_conflict",
    "content": "record_conflict",
    "key_held": "record_conflict",
    "stopped": "run_not_active",
}
SUSPENSION_CHECKS = {
    **FOUND,
    "ended": "run_terminal_conflict",
    "checkpoint": "run_suspension_conflict",
    "another_key": "run_suspension_conflict",
    "content": "record_conflict",
    "key_held": "record_conflict",
}
TERMINAL_CHECKS = {
    **FOUND,
    "status": "run_terminal_conflict",
    "another_key": "run_terminal_conflict",
    "content": "record_conflict",
    "key_held": "record_conflict",
    "labels": "invalid_command",
    "reason": "invalid_command",
}
REPAIR_CHECKS = {**FOUND, "key_held": "record_conflict", "labels": "invalid_command", "reason": "invalid_command"}
REPAIR_SUSPENSION_CHECKS = {**FOUND, "key_held": "record_conflict"}
MISSING = [{"no_run", other} for other in (
    "owner", "key_held", "stopped", "reason", "another_key", "content", "ended", "checkpoint", "status", "labels",
)]  # fmt: skip
EXCLUDES = MISSING + excluding("content another_key key_held", "ended content", "ended checkpoint")


def change_pairs(checks: dict[str, str], *more: set[str]) -> list[tuple[str, str]]:
    """The pairs of the checks of a change."""
    return pairs(checks, [*EXCLUDES, *more])


async def met_by(scene: Scene, failing: Collection[str]) -> Run:
    """A running run with a record `note/1`, or one that is missing."""
    if "no_run" in failing:
        return scene.new_run(await scene.session(), labels={"tenant": "acme"})
    run = await scene.run(labels={"tenant": "acme"})
    await scene.do(run.append())
    return run


async def broken(scene: Scene, command: Command, failing: Collection[str]) -> Command:
    """The same command, failing the checks that all changes share."""
    if "purged" in failing:
        command = command.but("record.session_id", await scene.session("purged"))
    if "owner" in failing:
        command = command.but("record.agent_id", "agent.other")
    if "key_held" in failing:
        command = command.but("record.event_key", "note/1")
    if "another_key" in failing:
        command = command.but("record.event_key", "another/key")
    if "content" in failing:
        command = command.but("record.turn_id", "turn-2")
    if "shape" in failing:
        command = command.but("record.type", "run_stream_end")
    return command


@pytest.mark.parametrize(("first", "second"), change_pairs(APPEND_CHECKS))
async def test_append_record(scene: Scene, first: str, second: str) -> None:
    failing = {first, second}
    run = await met_by(scene, failing)
    command = run.append("note/1" if "key_held" in failing else "note/2", payload='{"n":2}')
    if "stopped" in failing:
        await scene.do(run.end())
    await scene.refuses(APPEND_CHECKS[first], await broken(scene, command, failing))


@pytest.mark.parametrize(
    ("first", "second"),
    change_pairs(CANCELLATION_CHECKS, *excluding("reason stopped", "another_key stopped", "content stopped")),
)
async def test_record_cancellation(scene: Scene, first: str, second: str) -> None:
    failing = {first, second}
    run = await met_by(scene, failing)
    if failing & {"reason", "another_key", "content"}:
        await scene.do(run.cancel("first"))
    if "stopped" in failing:
        await scene.do(run.end())
    command = run.cancel("second" if "reason" in failing else "first")
    await scene.refuses(CANCELLATION_CHECKS[first], await broken(scene, command, failing))


@pytest.mark.parametrize(("first", "second"), change_pairs(CANCELLATION_CHECKS, *excluding("content stopped")))
async def test_record_cancellation_of_a_stopped_run(scene: Scene, first: str, second: str) -> None:
    """The same with a run that has ended: an intent that is stored counts before the run's status does."""
    failing = {first, second}
    run = await met_by(scene, failing)
    if failing & {"reason", "another_key", "content"}:
        await scene.do(run.cancel("first"))
    if "no_run" not in failing:
        await scene.do(run.end())
    command = run.cancel("second" if "reason" in failing else "first")
    await scene.refuses(CANCELLATION_CHECKS[first], await broken(scene, command, failing))


async def test_record_cancellation_of_a_run_stopped_at_its_start(scene: Scene) -> None:
    """Its reason is stored: another one is the change's own conflict, the same one meets event key and then status."""
    run = await scene.stopped()
    await scene.refuses("run_cancellation_conflict", run.cancel("another", run.started_key))
    await scene.refuses("record_conflict", run.cancel("session_ended", run.started_key))
    await scene.refuses("run_not_active", run.cancel("session_ended"))


@pytest.mark.parametrize(("first", "second"), change_pairs(SUSPENSION_CHECKS))
async def test_record_suspension(scene: Scene, first: str, second: str) -> None:
    failing = {first, second}
    run = await met_by(scene, failing)
    if "ended" in failing:
        await scene.do(run.end("failed"))
    elif failing & {"checkpoint", "another_key", "content"}:
        await scene.do(run.suspend())
    command = run.suspend(data=b"other") if "checkpoint" in failing else run.suspend()
    await scene.refuses(SUSPENSION_CHECKS[first], await broken(scene, command, failing))


@pytest.mark.parametrize(
    ("first", "second"),
    change_pairs(TERMINAL_CHECKS, *excluding("content labels", "content reason")),
)
async def test_record_terminal(scene: Scene, first: str, second: str) -> None:
    failing = {first, second}
    run = await met_by(scene, failing)
    if "status" in failing:
        await scene.do(run.end("failed"))
    elif failing & {"another_key", "content"}:
        await scene.do(run.end("canceled"))
    labels = {} if "labels" in failing else run.labels
    reason = "another" if "reason" in failing else "engine_canceled"
    command = run.end("canceled", labels=labels, reason=reason)
    await scene.refuses(TERMINAL_CHECKS[first], await broken(scene, command, failing))


@pytest.mark.parametrize(("first", "second"), change_pairs(REPAIR_CHECKS))
async def test_repair_terminal(scene: Scene, first: str, second: str) -> None:
    failing = {first, second}
    run = await met_by(scene, failing)
    labels = {} if "labels" in failing else run.labels
    reason = "another" if "reason" in failing else "engine_canceled"
    command = run.end("canceled", labels=labels, reason=reason, method="repair_terminal")
    await scene.refuses(REPAIR_CHECKS[first], await broken(scene, command, failing))


@pytest.mark.parametrize(("first", "second"), change_pairs(REPAIR_SUSPENSION_CHECKS))
async def test_repair_suspension(scene: Scene, first: str, second: str) -> None:
    failing = {first, second}
    run = await met_by(scene, failing)
    command = await broken(scene, run.repair_suspension(), failing)
    await scene.refuses(REPAIR_SUSPENSION_CHECKS[first], command)


@pytest.mark.parametrize("method", ["repair_suspension", "repair_terminal"])
@pytest.mark.parametrize("later", ["key_held", "labels", "reason"])
async def test_a_repair_tells_its_outcome_before_what_would_refuse_it(scene: Scene, method: str, later: str) -> None:
    run = await met_by(scene, ())
    await scene.do(run.end("failed"))
    labels = {} if later == "labels" else run.labels
    reason = "another" if later == "reason" else "engine_canceled"
    command = run.repair_suspension()
    if method == "repair_terminal":
        command = run.end("canceled", labels=labels, reason=reason, method=method)
    answer = await scene.do(await broken(scene, command, {later}))
    assert answer["outcome"] == "different_terminal"
    assert answer["status"] == "failed"


@pytest.mark.parametrize("method", builders.CHANGE_METHODS)
async def test_a_record_of_a_purged_session_is_refused_for_it_before_its_run_is_looked_for(
    scene: Scene, method: str
) -> None:
    purged = await scene.session("purged")
    await scene.refuses("session_purged", scene.new_run(purged).change(method))
    run = await scene.run()
    await scene.refuses("session_purged", dataclasses.replace(run, session_id=purged).change(method))


# What a command itself says is wrong comes before everything


@pytest.mark.parametrize("method", builders.CHANGE_METHODS)
@pytest.mark.parametrize("session", ["purged", "missing"])
async def test_the_payload_is_part_of_the_shape(scene: Scene, method: str, session: str) -> None:
    session_id = await scene.session("purged") if session == "purged" else scene.new_session()
    command = scene.new_run(session_id).change(method)
    await scene.refuses("invalid_command", command.but("record.payload", "{"))
    await scene.refuses("invalid_command", command.but("record.payload", '{"unknown":1}'))
    await scene.refuses("invalid_command", command.but("unknown", 1))


async def test_an_ended_session_is_asked_for_what_is_wrong_like_an_active_one(scene: Scene) -> None:
    session_id = await scene.session("ended")
    await scene.refuses("run_not_found", scene.new_run(session_id, parent=scene.new_run().run_id).start())


@pytest.mark.parametrize("session", ["purged", "missing"])
async def test_an_unknown_status_is_the_shape_of_a_listing(scene: Scene, session: str) -> None:
    session_id = await scene.session("purged") if session == "purged" else scene.new_session()
    command = Command("list_runs_by_session", {"session_id": session_id, "statuses": ["pending"]})
    await scene.refuses("invalid_command", command)
