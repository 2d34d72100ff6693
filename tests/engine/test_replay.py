"""Reading a run back: on one prefix of the log, a little at a time, and no more of it than is asked for."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engine.environment import SystemEnvironment
from engine.logs.simulated import Faults
from engine.pending import QueueLimits
from engine.replay import history
from engine.store import Store
from projections.view import MemoryView
from schemas.refusals import Code, Refusal, Refused
from schemas.replays import Prompts, RunTree, ToolCalls, Transcript
from tests.contract import builders
from tests.contract.builders import Run, compact
from tests.contract.makers import InProcess, in_memory, on_disk
from tests.contract.reading import APPENDED, message, prompt, said, text
from tests.contract.scene import Scene

FEW = 7
"""Records read at a time here, so that short runs take several portions."""


@pytest_asyncio.fixture
async def store(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    """A store whose log others could write to."""
    monkeypatch.setattr(history, "_PORTION_RECORDS", FEW)
    monkeypatch.setattr(history, "_SCAN_ROWS", FEW)
    async with in_memory(SystemEnvironment(""), Faults(), QueueLimits(), exclusive=False) as opened:
        yield opened


@pytest.fixture
def scene(store: Store) -> Scene:
    return Scene(InProcess(store), "replay")


class Meanwhile:
    """Does something at one of the moments when a view lets others have their turn."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, at: int, action: Callable[[], Any]) -> None:
        self.turns = 0
        self._at, self._action = at, action
        monkeypatch.setattr(store.replay, "_pause", self._pause)

    async def _pause(self) -> None:
        self.turns += 1
        if self.turns == self._at:
            await self._action()


async def talkative(scene: Scene, messages: int = 3 * FEW) -> Run:
    run = await scene.run()
    for number in range(messages):
        await scene.do(said(run, str(number), message("user", text(str(number)))))
    return run


@pytest.mark.parametrize("at", range(1, 7))
async def test_what_is_appended_meanwhile_is_not_half_in(
    store: Store, scene: Scene, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    run = await talkative(scene)

    async def append() -> None:
        await scene.do(said(run, "late", message("user", text("late")), kind="transcript_messages_seeded"))
        await scene.do(said(run, "later", message("user", text("later"))))

    meanwhile = Meanwhile(store, monkeypatch, at, append)
    shown = await store.replay.transcript(run.run_id)
    assert isinstance(shown, Transcript)
    assert meanwhile.turns == 6
    assert len(shown.messages) == 3 * FEW
    monkeypatch.undo()
    again = await store.replay.transcript(run.run_id)
    assert isinstance(again, Transcript)
    assert len(again.messages) == 3 * FEW + 2


@pytest.mark.parametrize("at", [1, 2])
async def test_a_family_that_grows_meanwhile_is_the_one_it_was(
    store: Store, scene: Scene, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    run = await scene.run()
    children = [await scene.child(run) for _ in range(2 * FEW)]

    async def grow() -> None:
        late = await scene.child(run)
        await scene.do(prompt(late, "1", "late"))
        await scene.child(children[0])
        await scene.do(run.suspend())
        await scene.run(run.session_id, predecessor=run.run_id)

    Meanwhile(store, monkeypatch, at, grow)
    tree = await store.replay.tree(run.run_id)
    assert isinstance(tree, RunTree)
    assert [each.run.run_id for each in tree.runs] == [run.run_id, *(child.run_id for child in children)]
    assert tree.successors == ()


@pytest.mark.parametrize("name", ["transcript", "model_input", "prompts", "tree", "tool_calls"])
async def test_a_purge_meanwhile_makes_the_run_a_missing_one(
    store: Store, scene: Scene, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    run = await talkative(scene)
    for number in range(3 * FEW):
        await scene.do(prompt(run, f"prompt/{number}", str(number)))
        await scene.do(run.append(f"call/{number}", compact({"ToolCallID": str(number)}), "tool_call_scheduled"))
        await scene.child(run, "completed")
    await scene.do(run.end())
    await scene.do(builders.end_session(run.session_id))

    async def purge() -> None:
        await scene.do(builders.purge_session(run.session_id))

    meanwhile = Meanwhile(store, monkeypatch, 2, purge)
    refusal = await getattr(store.replay, name)(run.run_id)
    assert meanwhile.turns == 2
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.ids) == (Code.RUN_NOT_FOUND, {"run_id": run.run_id})


async def test_a_partition_that_stops_meanwhile_is_unavailable(
    store: Store, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await talkative(scene)

    async def close() -> None:
        await store.partitions[builders.place(run.session_id)].close()

    Meanwhile(store, monkeypatch, 2, close)
    refusal = await store.replay.transcript(run.run_id)
    assert isinstance(refusal, Refusal)
    assert refusal.temporary


@pytest.mark.parametrize("run_id", ["", ".", "x" * 513, "a\nb"])
async def test_what_can_be_no_id_is_refused(store: Store, run_id: str) -> None:
    for asked in (
        store.replay.transcript(run_id),
        store.replay.model_input(run_id),
        store.replay.prompts(run_id),
        store.replay.tree(run_id),
        store.replay.tool_calls(run_id),
    ):
        refusal = await asked
        assert isinstance(refusal, Refusal)
        assert refusal.code is Code.INVALID_COMMAND


async def test_many_records_are_read_in_order_over_many_portions(store: Store, scene: Scene) -> None:
    run = await scene.run()
    kinds = ("transcript_messages_seeded", APPENDED)
    for number in range(5 * FEW + 3):
        await scene.do(said(run, str(number), message("user", text(str(number))), kind=kinds[number % 3 == 0]))
        await scene.do(prompt(run, f"prompt/{number}", str(number % (4 * FEW))))
        call = {"ToolCallID": str(number), "ToolName": "t"}
        await scene.do(run.append(f"call/{number}", compact(call), "tool_call_scheduled"))
    shown = await store.replay.transcript(run.run_id)
    assert isinstance(shown, Transcript)
    spoken = [json.loads(each.stored)["parts"][0]["text"] for each in shown.messages]
    assert spoken == [str(number) for number in range(5 * FEW + 3)]
    prompts = await store.replay.prompts(run.run_id)
    assert isinstance(prompts, Prompts)
    assert [each.prompt_id for each in prompts.prompts] == [str(number) for number in range(4 * FEW)]
    calls = await store.replay.tool_calls(run.run_id)
    assert isinstance(calls, ToolCalls)
    assert [each.tool_call_id for each in calls.calls] == [str(number) for number in range(5 * FEW + 3)]


async def test_an_export_is_of_one_prefix(store: Store, scene: Scene) -> None:
    run = await talkative(scene)
    await scene.child(run)
    export = await store.replay.export_session(run.session_id)
    assert not isinstance(export, Refusal)
    await scene.do(said(run, "late"))
    await scene.child(run)
    await scene.do(run.suspend())
    assert [each.run.run_id async for each in export.runs()] == list(export.run_ids)
    assert len(export.run_ids) == 2
    records = [each async for each in export.records()]
    assert len(records) == 3 * FEW + 3
    assert records == sorted(records, key=lambda each: each.id)
    assert [each async for each in export.checkpoints()] == []


async def test_a_purge_ends_an_export_with_its_refusal(store: Store, scene: Scene) -> None:
    run = await talkative(scene)
    await scene.do(run.end())
    await scene.do(builders.end_session(run.session_id))
    export = await store.replay.export_session(run.session_id)
    of_run = await store.replay.export_run(run.run_id)
    assert not isinstance(export, Refusal)
    assert not isinstance(of_run, Refusal)
    records = export.records()
    assert (await anext(records)).content.run_id == run.run_id
    await scene.do(builders.purge_session(run.session_id))
    with pytest.raises(Refused) as refused:
        [each async for each in records]
    assert refused.value.code is Code.SESSION_PURGED
    with pytest.raises(Refused) as refused:
        [each async for each in of_run.records()]
    assert refused.value.code is Code.RUN_NOT_FOUND


class Counted:
    """How many rows of the projection, and how many records of the log, were read."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = self.records = 0
        scan = MemoryView.scan

        def scanning(view: MemoryView, *args: Any, **options: Any) -> list[tuple[bytes, bytes]]:
            found = scan(view, *args, **options)
            self.rows += len(found)
            return found

        monkeypatch.setattr(MemoryView, "scan", scanning)
        log = store.partitions[0].opener._log
        fetch = log.fetch

        def fetching(partition: int, positions: Any) -> Any:
            self.records += len(positions)
            return fetch(partition, positions)

        monkeypatch.setattr(log, "fetch", fetching)

    def taken(self) -> tuple[int, int]:
        """What was read since it was asked last."""
        taken, self.rows, self.records = (self.rows, self.records), 0, 0
        return taken


async def test_a_long_run_costs_what_a_short_one_does(
    store: Store, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read of projection and log depends on the records of the types that a view needs, and on no others."""
    costs = []
    for others in (0, 2_000):
        run = await scene.run()
        for number in range(20):
            await scene.do(prompt(run, f"prompt/{number}", str(number)))
            await scene.do(said(run, f"said/{number}", message("user", text("x"))))
            await scene.do(run.append(f"call/{number}", compact({"ToolCallID": "x"}), "tool_call_scheduled"))
            await scene.do_all([run.append(f"{number}/{more}") for more in range(others // 20)])
        await scene.child(run)
        counted = Counted(store, monkeypatch)
        cost = []
        for asked in (
            store.replay.prompts(run.run_id, predecessors=True),
            store.replay.transcript(run.run_id),
            store.replay.model_input(run.run_id, 3),
            store.replay.tree(run.run_id),
            store.replay.tool_calls(run.run_id),
        ):
            assert not isinstance(await asked, Refusal)
            cost.append(counted.taken())
        costs.append(cost)
    assert costs[0] == costs[1]
    assert all(rows <= 30 and records <= 30 for rows, records in costs[0])


async def test_what_was_read_back_is_the_same_after_a_restart_and_a_rebuild(tmp_path: Path) -> None:
    found: list[Any] = []
    run = Run("r-1", "s-1")
    for opened in range(3):
        async with on_disk(tmp_path) as store:
            if opened == 0:
                scene = Scene(InProcess(store), "kept")
                await scene.do(builders.create_session("s-1"))
                await scene.do(run.start())
                await scene.do(said(run, "1", message("user", text("hello"))))
                await scene.do(prompt(run, "2", "p"))
                await scene.do(Run("r-2", "s-1", parent="r-1").start())
            if opened == 2:
                assert await store.start_rebuild() is None
                await store.rebuilt()
            replay = store.replay
            found.append(
                [
                    await replay.transcript("r-1"),
                    await replay.model_input("r-1", 1),
                    await replay.prompts("r-1"),
                    await replay.tree("r-1"),
                    await replay.tool_calls("r-1"),
                ]
            )
    assert not any(isinstance(each, Refusal) for each in found[0])
    assert found[0] == found[1] == found[2]
