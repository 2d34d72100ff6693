"""Named consumers over restarts, rebuilds, and several stores of one log."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.consumers import ConsumerStream
from engine.environment import SystemEnvironment
from engine.opening import StoreSettings, open_store
from engine.store import Store
from projections.fold import FoldError, fold
from projections.view import MemoryView, Overlay
from schemas.consumers import Consumer, Scope, ScopeKind, StartAt
from schemas.log_record import Kind, LogRecord
from schemas.refusals import Refusal
from service.methods import call
from tests.contract.builders import Run, create_session
from tests.engine.scene import Cluster
from tests.simulation.virtual_time import run_virtual

ALL = Scope(ScopeKind.ALL)


async def put(store: Store, name: str, scope: Scope = ALL, start_at: StartAt = StartAt.START) -> Consumer:
    found = await store.consumers.put(name, scope, (), start_at)
    assert isinstance(found, Consumer), found
    return found


async def committed(store: Store, name: str, cursor: str) -> Consumer:
    found = await store.consumers.commit(name, cursor)
    assert isinstance(found, Consumer), found
    return found


async def listed(store: Store) -> tuple[Consumer, ...]:
    found = await store.consumers.list()
    assert not isinstance(found, Refusal)
    return found


async def read(store: Store, name: str) -> list[tuple[str, str]]:
    """Cursor and event key of everything that a consumer has before it now."""
    stream = await store.consumers.stream(name, follow=False)
    assert isinstance(stream, ConsumerStream), stream
    found: list[tuple[str, str]] = []
    while True:
        portion = await stream.take()
        if portion is None:
            await stream.wait()
            continue
        found += [(each.cursor, each.record.content.event_key) for each in portion.records]
        if portion.end is not None:
            stream.close()
            return found


async def keys(store: Store, name: str) -> list[str]:
    return sorted(key for _, key in await read(store, name))


async def filled(store: Store, count: int = 6) -> None:
    """Some sessions with a run each, and one-shot runs."""
    for number in range(count):
        await call(store, *create_session(f"s{number}"))
        await call(store, *Run(f"r{number}", f"s{number}").start())
        await call(store, *Run(f"o{number}").start())


async def opened(folder: Path) -> Store:
    return await open_store(StoreSettings(folder, 4), SystemEnvironment())


async def test_consumers_survive_restart_and_rebuild_and_equal_a_fresh_fold(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await filled(store)
    run = Run("r1", "s1")
    await put(store, "all")
    await put(store, "session", Scope(ScopeKind.SESSION, "s1"))
    await put(store, "run", Scope(ScopeKind.RUN, "r1"), StartAt.NOW)
    await put(store, "now", ALL, StartAt.NOW)
    await put(store, "gone")
    old = (await read(store, "gone"))[0][0]
    await store.consumers.delete("gone")
    await put(store, "gone")
    for name, index in (("all", 5), ("session", 0)):
        await committed(store, name, (await read(store, name))[index][0])
    await call(store, *run.append("late", "{}"))
    before, left = await listed(store), {name: await keys(store, name) for name in ("all", "session", "run", "now")}
    assert left["run"] == left["now"] == ["late"] == left["session"]
    assert len(left["all"]) == 7
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
        assert await listed(store) == before
        assert {name: await keys(store, name) for name in left} == left
        found = await store.consumers.commit("gone", old)
        assert isinstance(found, Refusal)
        assert found.code == "invalid_cursor"
    # Each goes on from its cursor of before.
    for each in before:
        if each.cursor:
            assert (await committed(store, each.name, each.cursor)).cursor == each.cursor
    await store.close()


async def test_two_readers_of_one_consumer_of_everything_lose_nothing_to_each_other(tmp_path: Path) -> None:
    # Each is ahead in other partitions. The commit of the one must neither undo nor overtake the other's.
    store = await opened(tmp_path)
    await filled(store)
    await put(store, "all")
    everything = await keys(store, "all")
    done: set[str] = set()
    for turn in range(len(everything)):
        events = await read(store, "all")
        assert {key for _, key in events} == set(everything) - done
        if not events:
            break
        # What a reader has read up to its cursor is dealt with; two read at once from where the consumer stands.
        again = await read(store, "all")
        for seen in (events[: 1 + turn % 3], again[:1]):
            await committed(store, "all", seen[-1][0])
            done |= {key for _, key in seen}
    assert done == set(everything)
    await store.close()


def test_what_is_committed_is_the_furthest_in_each_partition() -> None:
    async def story() -> None:
        cluster = Cluster(1, partitions=2)
        store = (await cluster.start()).store
        await filled(store)
        await put(store, "all")
        events = await read(store, "all")
        positions = [key for _, key in events]
        one, other = events[2][0], events[-1][0]
        await committed(store, "all", one)
        final = await committed(store, "all", other)
        assert await committed(store, "all", one) == final
        assert await keys(store, "all") == []
        assert len(positions) == 12

    run_virtual(story())


def test_of_two_stores_that_make_one_consumer_at_once_one_makes_it() -> None:
    async def story() -> None:
        cluster = Cluster(3)
        one, two = (await cluster.start()).store, (await cluster.start()).store
        await filled(one, 2)
        for number in range(6):
            name = f"c{number}"
            made = await asyncio.gather(put(one, name), put(two, name))
            assert made[0] == made[1]
            # Its cursors are the same, whoever is asked.
            events = await read(two, name)
            assert events == await read(one, name)
            assert (await committed(one, name, events[0][0])) == (await committed(two, name, events[0][0]))
            conflicting = await asyncio.gather(
                one.consumers.put(f"d{number}", ALL, ("a",), StartAt.START),
                two.consumers.put(f"d{number}", ALL, ("b",), StartAt.START),
            )
            assert sorted(type(each).__name__ for each in conflicting) == ["Consumer", "Refusal"]
            refusal = next(each for each in conflicting if isinstance(each, Refusal))
            assert refusal.code == "consumer_conflict"

    run_virtual(story())


def test_a_commit_that_overtakes_a_deletion_elsewhere_moves_nothing() -> None:
    async def story() -> None:
        cluster = Cluster(5)
        one, two = (await cluster.start()).store, (await cluster.start()).store
        await filled(one, 2)
        for number in range(6):
            name = f"c{number}"
            await put(one, name)
            events = await read(two, name)

            async def again(name: str = name) -> Consumer:
                await one.consumers.delete(name)
                return await put(one, name)

            _, found = await asyncio.gather(again(), two.consumers.commit(name, events[1][0]))
            assert isinstance(found, Consumer) or found.code in ("consumer_not_found", "invalid_cursor")
            assert (await put(two, name)).cursor == ""
            assert len(await read(two, name)) == len(events)

    run_virtual(story())


def record(kind: Kind, **fields: Any) -> LogRecord:
    return LogRecord(position=0, command_id=bytes(16), appended_at=0, kind=kind.value, consumer="c", **fields)


@pytest.mark.parametrize(
    ("before", "kind"),
    [
        ([], Kind.CONSUMER_COMMITTED),
        ([], Kind.CONSUMER_DELETED),
        ([Kind.CONSUMER_CREATED], Kind.CONSUMER_CREATED),
        ([Kind.CONSUMER_CREATED, Kind.CONSUMER_DELETED], Kind.CONSUMER_COMMITTED),
        ([Kind.CONSUMER_CREATED, Kind.CONSUMER_DELETED], Kind.CONSUMER_DELETED),
        ([], Kind.MEMORY_PURGED),
    ],
)
def test_a_record_that_cannot_follow_is_a_fold_error(before: list[Kind], kind: Kind) -> None:
    view = Overlay(MemoryView())
    for each in before:
        fold(view, record(each, event_key="00"))
    with pytest.raises(FoldError, match=kind.value):
        fold(view, record(kind))
