"""Product memory over stores that share a log and its keys: what a purge takes, and what it must leave."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.decide.state import NOTHING_ELSEWHERE, Needs, Prepared
from engine.environment import SystemEnvironment
from engine.keys import KeyStoreError, MemoryKeyStore
from engine.opening import StoreSettings, open_store
from engine.store import Store
from engine.writer import compare_seconds
from schemas.commands import AppendMemory
from schemas.memories import MemoryEvent, decode_events, encode_events
from schemas.owners import memory_owner
from service.methods import call
from tests.contract.builders import STARTED, Command, Json, create_session, place
from tests.engine.scene import Cluster, Process
from tests.simulation.virtual_time import run_virtual

IDS = {"agent_id": "agent", "run_id": "run"}
FIRST = memory_owner("agent", "run", b"")


def append(*data: str, **ids: str) -> Command:
    events = [{"type": "thinking", "timestamp": STARTED, "data": each} for each in data]
    return Command("memory/append_events", {**IDS, **ids, "events": events})


def load(**ids: str) -> Command:
    return Command("memory/load_run", {**IDS, **ids})


def purge(**ids: str) -> Command:
    return Command("memory/purge_run", {**IDS, **ids})


def data_of(snapshot: Json) -> list[str]:
    return [event["data"] for event in snapshot["events"]]


async def remembered(process: Process) -> list[str]:
    return data_of(await process.do(load()))


def owners(cluster: Cluster) -> list[str]:
    return sorted(owner for owner, _ in cluster.keys.keys.values())


def test_a_late_purge_takes_nothing_of_a_memory_begun_again() -> None:
    # Each store deletes the keys of a purge when it applies it; under one owner for ever, the key of the memory that
    # had been begun again went with them.
    async def story() -> None:
        cluster = Cluster()
        one, late = await cluster.start(), await cluster.start()
        await one.do(append("1"))
        assert await remembered(late) == ["1"]
        for number in ("2", "3"):
            await one.do(purge())
            await one.do(append(number))
        assert FIRST not in owners(cluster)
        assert len(owners(cluster)) == 1
        # This one applies both purges now.
        assert await remembered(late) == ["3"]
        await asyncio.sleep(5)
        assert await remembered(one) == await remembered(late) == ["3"]
        assert len(owners(cluster)) == 1

    run_virtual(story())


def test_a_sweep_at_start_takes_nothing_of_a_memory_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    put_value = MemoryKeyStore.put_value

    async def forgetful(store: MemoryKeyStore, name: str, data: bytes) -> None:
        if not name.startswith("purges"):
            await put_value(store, name, data)

    async def story() -> None:
        cluster = Cluster()
        one = await cluster.start(exclusive=True)
        monkeypatch.setattr(MemoryKeyStore, "put_value", forgetful)
        for number in range(3):
            await one.do(append(f"{number}"))
            await one.do(purge())
        await one.do(append("4"))
        await one.store.close()
        two = await cluster.start(exclusive=True)
        assert await remembered(two) == ["4"]

    run_virtual(story())


def test_a_key_made_ready_before_a_purge_is_not_used_after_it() -> None:
    # Its owner is purged: what it sealed would be lost with the next deletion.
    async def story() -> None:
        cluster = Cluster()
        one = await cluster.start()
        await one.do(append("1"))
        key_id = next(iter(cluster.keys.keys))
        await one.do(purge())
        event = MemoryEvent("thinking", 0, b"2")
        for prepared in (Prepared(key_id, key_owner=FIRST), Prepared(key_id)):
            home = one.store.partitions[0]
            outcome = await home.submit(AppendMemory("agent", "run", (event,)), NOTHING_ELSEWHERE, prepared)
            assert outcome == Needs(data_key_of=memory_owner("agent", "run", key_id))
        assert await remembered(one) == []

    run_virtual(story())


def test_generations_have_keys_of_their_own_and_nothing_but_the_last_is_kept() -> None:
    async def story() -> None:
        cluster = Cluster()
        one = await cluster.start()
        await one.do(append("9", run_id="other"))
        seen = set()
        for number in range(4):
            await one.do(append(f"{number}"))
            await one.do(append(f"-{number}"))
            (mine,) = set(owners(cluster)) - {memory_owner("agent", "other", b"")}
            seen.add(mine)
            await one.do(purge())
        assert len(seen) == 4
        assert owners(cluster) == [memory_owner("agent", "other", b"")]
        assert data_of(await one.do(load(run_id="other"))) == ["9"]

    run_virtual(story())


def test_two_memories_whose_ids_join_alike_have_owners_of_their_own() -> None:
    assert memory_owner("a", "b:c", b"") != memory_owner("a:b", "c", b"")
    assert "\0" not in memory_owner("a", "b", bytes(16))


def test_two_stores_that_begin_one_memory_at_once_keep_both_appends() -> None:
    async def story() -> None:
        cluster = Cluster(7)
        stores = [await cluster.start() for _ in range(3)]
        for _ in range(5):
            await asyncio.gather(*(each.do(append(f"{n}")) for n, each in enumerate(stores)))
            assert sorted(await remembered(stores[0])) == ["0", "1", "2"]
            assert await remembered(stores[1]) == await remembered(stores[0])
            await asyncio.gather(*(each.do(purge()) for each in stores))
            assert [await remembered(each) for each in stores] == [[], [], []]
            await asyncio.sleep(compare_seconds)
        await asyncio.sleep(5)

    run_virtual(story())


@pytest.mark.parametrize("generations", [0, 1, 2])
def test_a_failed_deletion_is_told_and_finished_by_a_repeat(generations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    keys_purge = MemoryKeyStore.purge
    failing = [True]

    async def purging(store: MemoryKeyStore, owner: str) -> None:
        if failing:
            raise KeyStoreError(None, "it cannot be reached")
        await keys_purge(store, owner)

    async def story() -> None:
        cluster = Cluster()
        one = await cluster.start()
        for _ in range(generations):
            await one.do(append("0"))
            await one.do(purge())
        await one.do(append("1"))
        (mine,) = owners(cluster)
        monkeypatch.setattr(MemoryKeyStore, "purge", purging)
        for _ in range(2):
            assert await one.code(purge()) == "unavailable"
        assert await remembered(one) == []
        assert owners(cluster) == [mine]
        failing.clear()
        assert await one.do(purge()) == {}
        assert owners(cluster) == []

    run_virtual(story())


def test_a_purge_that_a_crash_interrupted_is_finished_at_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_store: MemoryKeyStore, _owner: str) -> None:
        await asyncio.sleep(1_000_000)

    async def story() -> None:
        cluster = Cluster()
        one = await cluster.start()
        await one.do(append("1"))
        with monkeypatch.context() as patched:
            patched.setattr(MemoryKeyStore, "purge", never)
            dying = asyncio.ensure_future(one.do(purge()))
            await asyncio.sleep(1)
            assert owners(cluster) == [FIRST]
        two = await cluster.start()
        assert owners(cluster) == []
        assert await remembered(two) == []
        dying.cancel()

    run_virtual(story())


def test_a_purge_leaves_no_row_of_what_was_remembered() -> None:
    async def story() -> None:
        cluster = Cluster()
        one = await cluster.start()
        view = one.store.partitions[0].view
        for ids in ({}, {"run_id": "other"}):
            for number in range(3):
                await one.do(append(f"{number}", **ids))
        assert len(view.scan(b"k", b"n", 100)) == 2 * 4
        await one.do(purge())
        assert len(view.scan(b"k", b"n", 100)) == 4
        await one.do(purge(run_id="other"))
        assert view.scan(b"k", b"n", 100) == []

    run_virtual(story())


async def test_the_home_of_a_memory_is_that_of_its_agent_and_run(tmp_path: Path) -> None:
    # As readers of the log are told.
    store = await opened(tmp_path)
    for number in range(20):
        await call(store, *append("1", run_id=f"r{number}"))
        view = store.partitions[place(f"agent\0r{number}", 2)].view
        assert view.get(f"Aagent\0r{number}".encode()) is not None
    await store.close()


@pytest.mark.parametrize("again", [False, True])
def test_a_memory_that_is_purged_while_it_is_read_is_read_as_it_is_after(again: bool) -> None:
    # Half of it had been read; the rest could not be opened, and the caller was told that the store was broken.
    async def story() -> None:
        cluster = Cluster()
        one = await cluster.start()
        for number in range(100):
            await one.do(append(f"{number}"))
        pauses = 0

        async def pause() -> None:
            nonlocal pauses
            pauses += 1
            if pauses == 2:
                await one.do(purge())
                if again:
                    await one.do(append("7"))

        one.store.memories._pause = pause
        assert await remembered(one) == (["7"] if again else [])
        assert pauses >= 2

    run_virtual(story())


def test_nothing_but_appends_that_look_alike_is_opened_to_tell_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        cluster = Cluster()
        one = await cluster.start()
        numbers = [f"{'1' * length}" for length in range(1, 60)]
        for number in numbers:
            await one.do(append(number))
        opened: list[int] = []
        opener = one.store.partitions[0].opener
        open_one = opener.open

        def counted(position: int) -> Any:
            opened.append(position)
            return open_one(position)

        monkeypatch.setattr(opener, "open", counted)
        await one.do(append(numbers[30]))
        await one.do(append("1" * 70))
        assert len(opened) == 1
        assert await remembered(one) == [*numbers, "1" * 70]

    run_virtual(story())


def test_events_come_back_as_they_were() -> None:
    odd = ['"\\ud800"', " 1.10\n", '"\u2028 é"', "[]"]
    events = [MemoryEvent("tool_call", 2**41, each.encode(), {"b": "", "a": "\0"}) for each in odd]
    assert decode_events(encode_events(events)) == events
    assert encode_events(events[:1]) == encode_events(
        [MemoryEvent("tool_call", 2**41, b'"\\ud800"', {"a": "\0", "b": ""})]
    )


async def opened(folder: Path) -> Store:
    return await open_store(StoreSettings(folder, 2), SystemEnvironment())


async def test_memory_survives_restart_and_rebuild_and_equals_a_fresh_fold(tmp_path: Path) -> None:
    store = await opened(tmp_path)

    async def do(command: Command) -> Json:
        return await call(store, command.method, command.args)

    await do(create_session("s"))
    for number in range(30):
        await do(append(f"{number}", f'"{"x" * number * 40}"', run_id=f"run-{number % 5}"))
    for number in (0, 1):
        await do(purge(run_id=f"run-{number}"))
    await do(append('"again"', run_id="run-0"))
    before = [await do(load(run_id=f"run-{number}")) for number in range(5)]
    assert [len(each["events"]) for each in before] == [1, 0, 12, 12, 12]
    for step in ("restart", "rebuild", "lost"):
        if step == "rebuild":
            await store.start_rebuild()
            await store.rebuilt()
        else:
            await store.close()
            if step == "lost":
                shutil.rmtree(tmp_path / "projections")
            store = await opened(tmp_path)
        assert [str(each.difference) for each in await store.verify() if not each.equal] == []
        assert [await do(load(run_id=f"run-{number}")) for number in range(5)] == before
        await do(append("7", f'"{"x" * 7 * 40}"', run_id="run-2"))
        assert [await do(load(run_id=f"run-{number}")) for number in range(5)] == before
    await store.close()
