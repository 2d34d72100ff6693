"""Commands that come at once: each is done as if it had come alone, in some order."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Sequence

import pytest

from schemas.refusals import Refused
from tests.contract import builders
from tests.contract.builders import Command, Json, Run
from tests.contract.scene import Scene, meaning

pytestmark = pytest.mark.asyncio(loop_scope="session")

MANY = 64


async def at_once(scene: Scene, commands: Sequence[Command]) -> list[Json | str]:
    """Send commands together; a refusal is told by its code."""

    async def one(command: Command) -> Json | str:
        try:
            return await scene.do(command)
        except Refused as refused:
            return refused.code.value

    return await asyncio.gather(*(one(command) for command in commands))


def done(answers: Sequence[Json | str]) -> list[Json]:
    """The answers that are no refusals."""
    return [answer for answer in answers if not isinstance(answer, str)]


def codes(answers: Sequence[Json | str]) -> Counter[str]:
    """How often each refusal was answered."""
    return Counter(answer for answer in answers if isinstance(answer, str))


def inserted(answers: Sequence[Json | str], *path: str) -> int:
    """How many answers say that they inserted, below a path."""
    results: Sequence[Json] = done(answers)
    for name in path:
        results = [result[name] for result in results]
    return sum(bool(result["inserted"]) for result in results)


@pytest.mark.parametrize("family", ["root", "child", "one_shot", "one_shot_child"])
async def test_identical_starts_insert_once_under_one_id(scene: Scene, family: str) -> None:
    if family == "root":
        run = scene.new_run(await scene.session())
    elif family == "one_shot":
        run = scene.new_run()
    else:
        run = scene.new_child(await (scene.one_shot() if family == "one_shot_child" else scene.run()))
    answers = await at_once(scene, [run.start()] * MANY)
    assert len(done(answers)) == MANY
    assert inserted(answers, "started") == 1
    assert len({answer["started"]["id"] for answer in done(answers)}) == 1
    assert await scene.keys(run) == [run.started_key]
    if run.parent:
        assert inserted(answers, "parent_linked") == 1
        assert await scene.keys(Run(run.parent)) == [Run(run.parent).started_key, run.link_key]


async def test_identical_starts_in_an_ended_session_insert_once(scene: Scene) -> None:
    run = scene.new_run(await scene.session("ended"))
    answers = await at_once(scene, [run.start()] * MANY)
    assert inserted(answers, "started") == inserted(answers, "canceled") == 1
    assert len({(answer["started"]["id"], answer["canceled"]["id"]) for answer in done(answers)}) == 1
    assert len(await scene.records(run)) == 2


async def test_of_two_endings_one_wins(scene: Scene) -> None:
    for _ in range(8):
        run = await scene.run()
        commands = [run.end("completed"), run.end("failed"), run.suspend(), run.end("canceled")]
        answers = await at_once(scene, commands)
        assert len(done(answers)) == inserted(answers) == 1
        assert sum(codes(answers).values()) == 3
        assert set(codes(answers)) <= {"run_terminal_conflict"}
        assert len(await scene.records(run)) == 2
        winner = next(command for command, answer in zip(commands, answers, strict=True) if not isinstance(answer, str))
        status = winner.args.get("status", "suspended")
        assert (await scene.load(run))["status"] == status


async def test_of_many_intents_one_reason_wins(scene: Scene) -> None:
    run = await scene.run()
    answers = await at_once(scene, [run.cancel(f"reason {number % 4}") for number in range(32)])
    assert inserted(answers) == 1
    assert codes(answers) == {"run_cancellation_conflict": 24}
    assert len(done(answers)) == 8
    assert len(await scene.records(run)) == 2


async def test_identical_records_insert_once(scene: Scene) -> None:
    run = await scene.run()
    answers = await at_once(scene, [run.append()] * MANY)
    assert len(done(answers)) == MANY
    assert inserted(answers) == 1
    assert len({answer["id"] for answer in done(answers)}) == 1
    assert await scene.keys(run) == [run.started_key, "note/1"]


async def test_of_different_records_under_one_event_key_one_wins(scene: Scene) -> None:
    run = await scene.run()
    answers = await at_once(scene, [run.append(payload=str(number % 4)) for number in range(32)])
    assert inserted(answers) == 1
    assert codes(answers) == {"record_conflict": 24}
    assert len({answer["id"] for answer in done(answers)}) == 1


async def test_different_records_are_all_inserted(scene: Scene) -> None:
    run = await scene.run()
    answers = await at_once(scene, [run.append(f"note/{number}", payload=str(number)) for number in range(MANY)])
    assert inserted(answers) == MANY
    ids = {answer["id"]: str(number) for number, answer in enumerate(done(answers))}
    assert len(ids) == MANY
    assert {record["id"]: record["payload"] for record in (await scene.records(run))[1:]} == ids


async def test_identical_repairs_store_once(scene: Scene) -> None:
    run = await scene.run()
    answers = await at_once(scene, [run.repair_terminal()] * 16 + [run.end()] * 16)
    assert len(done(answers)) == 32
    new = [answer.get("append", answer)["inserted"] for answer in done(answers)]
    assert sum(new) == 1
    assert len({answer.get("append", answer)["id"] for answer in done(answers)}) == 1
    assert {answer["outcome"] for answer in done(answers) if "outcome" in answer} <= {"stored", "already_stored"}


async def test_a_repair_and_another_ending_tell_of_one_owner(scene: Scene) -> None:
    for _ in range(8):
        run = await scene.run()
        repair, end = await at_once(scene, [run.repair_terminal("failed"), run.end("completed")])
        assert not isinstance(repair, str)
        status = (await scene.load(run))["status"]
        assert repair["status"] == status
        if status == "failed":
            assert (repair["outcome"], end) == ("stored", "run_terminal_conflict")
        else:
            assert repair["outcome"] == "different_terminal"
            assert not isinstance(end, str)


async def test_a_session_is_created_once(scene: Scene) -> None:
    session_id = scene.new_session()
    times = [f"2026-01-01T00:00:{number:02d}.000Z" for number in range(32)]
    answers = await at_once(scene, [builders.create_session(session_id, time) for time in times])
    assert len({answer["session"]["created_at"] for answer in done(answers)}) == 1
    assert len(done(answers)) == 32


async def test_after_end_session_returned_no_start_proceeds(scene: Scene) -> None:
    session_id = await scene.session()

    async def keep_starting() -> list[tuple[bool, str]]:
        told = []
        for _ in range(12):
            was_ended = ended.is_set()
            answer = await scene.do(scene.new_run(session_id).start())
            told.append((was_ended, answer["outcome"]))
        return told

    async def end() -> None:
        await scene.do(scene.new_run(session_id).start())
        await scene.do(builders.end_session(session_id))
        ended.set()

    ended = asyncio.Event()
    *told, _ = await asyncio.gather(*(keep_starting() for _ in range(8)), end())
    outcomes = [each for one in told if one is not None for each in one]
    assert {outcome for was_ended, outcome in outcomes if was_ended} <= {"stop"}
    listed = await scene.do(Command("list_runs_by_session", {"session_id": session_id}))
    order = [run["start_outcome"] for run in listed["runs"]]
    assert len(order) == 8 * 12 + 1
    assert order == sorted(order), "a start proceeded behind one that the ended session stopped"
    assert {run["status"] for run in listed["runs"]} <= {"running", "canceled"}


async def test_one_start_against_the_end_of_its_session(scene: Scene) -> None:
    for _ in range(16):
        session_id = await scene.session()
        run = scene.new_run(session_id)
        start, end = await at_once(scene, [run.start(), builders.end_session(session_id)])
        assert not isinstance(start, str)
        assert not isinstance(end, str)
        expected = {"proceed": ("running", 1), "stop": ("canceled", 2)}[start["outcome"]]
        assert ((await scene.load(run))["status"], len(await scene.records(run))) == expected
        await scene.repeats(run.start(), {**start, "started": {**start["started"], "session_status": "ended"}})


@pytest.mark.parametrize("directory", range(0, 8, 2))
@pytest.mark.parametrize(("home", "other"), [(0, 1), (2, 5), (4, 4), (7, 0)])
async def test_one_run_id_from_two_sessions_is_one_conflict(
    scene: Scene, directory: int, home: int, other: int
) -> None:
    first, second = await scene.session(partition=home), await scene.session(partition=other)
    run = scene.new_run(first, partition=directory)
    rival = dataclasses.replace(run, session_id=second)
    answers = await at_once(scene, [run.start(), rival.start()])
    assert codes(answers) == {"run_conflict": 1}
    assert inserted(answers, "started") == 1
    winner, loser = (run, rival) if isinstance(answers[1], str) else (rival, run)
    assert (await scene.load(run))["session_id"] == winner.session_id
    assert len(await scene.session_records(loser.session_id)) == 0
    await scene.refuses("run_conflict", loser.start())


async def test_one_run_id_from_many_sessions_is_started_once(scene: Scene) -> None:
    run = scene.new_run()
    sessions = [await scene.session(partition=number % 8) for number in range(16)]
    rivals = [dataclasses.replace(run, session_id=session_id) for session_id in sessions]
    answers = await at_once(scene, [rival.start() for rival in (*rivals, run)])
    assert codes(answers) == {"run_conflict": 16}
    found = sum([len(await scene.session_records(session_id)) for session_id in sessions])
    assert found == (1 if (await scene.load(run)).get("session_id") else 0)
    assert len(await scene.records(run)) == 1


async def test_a_child_against_the_end_of_its_parent(scene: Scene) -> None:
    for _ in range(16):
        parent = await scene.run()
        child = scene.new_child(parent)
        start, end = await at_once(scene, [child.start(), parent.end()])
        assert not isinstance(end, str)
        keys = await scene.keys(parent)
        if isinstance(start, str):
            assert start == "run_not_active"
            assert keys == [parent.started_key, builders.TERMINAL_KEY]
        else:
            assert keys == [parent.started_key, child.link_key, builders.TERMINAL_KEY]


async def test_a_record_against_the_end_of_its_run(scene: Scene) -> None:
    for _ in range(16):
        run = await scene.run()
        append, end = await at_once(scene, [run.append(), run.end()])
        assert not isinstance(end, str)
        notes = [] if append == "run_not_active" else ["note/1"]
        assert isinstance(append, str) is (append == "run_not_active")
        assert await scene.keys(run) == [run.started_key, *notes, builders.TERMINAL_KEY]


async def test_a_continuation_against_the_suspension_it_needs(scene: Scene) -> None:
    for _ in range(16):
        before = await scene.run()
        run = scene.new_run(before.session_id, predecessor=before.run_id)
        suspend, start = await at_once(scene, [before.suspend(), run.start()])
        assert not isinstance(suspend, str)
        if isinstance(start, str):
            assert start == "continuation_mismatch"
            assert await scene.code_of(Command("load_run", {"run_id": run.run_id})) == "run_not_found"
        else:
            order = [record["type"] for record in await scene.session_records(before.session_id)]
            assert order == ["run_started", "run_suspended", "run_started"]


async def test_a_purge_against_records_of_its_session(scene: Scene) -> None:
    run = await scene.run()
    first = await scene.do(run.append())
    await scene.do(run.end())
    await scene.do(builders.end_session(run.session_id))
    commands = [run.append(), builders.purge_session(run.session_id), run.append(), run.start()]
    append, purge, again, start = await at_once(scene, commands)
    assert purge == {}
    for answer in (append, again):
        assert answer == "session_purged" or meaning(answer) == {
            **meaning(first),
            "inserted": False,
            "session_status": "ended",
        }
    assert start == "session_purged" or not isinstance(start, str)
    assert await scene.code_of(run.append()) == "session_purged"
    assert await scene.code_of(Command("load_run", {"run_id": run.run_id})) == "run_not_found"


async def test_a_purge_against_a_start_in_its_session(scene: Scene) -> None:
    for _ in range(8):
        session_id = await scene.session("ended")
        run = scene.new_run(session_id)
        purge, start = await at_once(scene, [builders.purge_session(session_id), run.start()])
        assert purge == {}
        assert start == "session_purged" or (not isinstance(start, str) and start["outcome"] == "stop")
        assert await scene.code_of(run.start()) == "session_purged"
        other = scene.new_run(await scene.session(), run_id=run.run_id)
        expected = "ok" if start == "session_purged" else "run_conflict"
        assert await scene.code_of(other.start()) == expected


async def test_many_purges_of_one_session_all_succeed(scene: Scene) -> None:
    run = await scene.run(status="completed")
    await scene.do(builders.end_session(run.session_id))
    answers = await at_once(scene, [builders.purge_session(run.session_id)] * 16)
    assert answers == [{}] * 16


async def test_reads_during_writes_see_whole_commands(scene: Scene) -> None:
    """A child start writes two records at once: nobody sees the one without the other."""
    parent = await scene.run()
    children = [scene.new_child(parent) for _ in range(24)]

    async def read() -> None:
        while not finished.is_set():
            await asyncio.sleep(0)
            records = await scene.session_records(parent.session_id)
            links = sum(record["type"] == "child_run_linked" for record in records)
            starts = sum(record["type"] == "run_started" for record in records)
            assert starts == links + 1

    async def write() -> None:
        await at_once(scene, [child.start() for child in children])
        finished.set()

    finished = asyncio.Event()
    await asyncio.gather(read(), write())
    assert len(await scene.records(parent)) == 25
