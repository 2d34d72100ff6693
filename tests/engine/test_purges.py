"""Purges whose key deletion fails: the caller is told, the others go on, and a repeat finishes the work."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine.environment import SystemEnvironment
from engine.keys import KeyStoreError, MemoryKeyStore
from engine.opening import StoreSettings, open_store
from engine.store import Store
from engine.writer import compare_seconds
from schemas.refusals import Refused
from service.methods import call
from tests.contract.builders import Command, create_session, end_session, place, purge_session
from tests.engine.scene import Cluster, Process
from tests.simulation.virtual_time import run_virtual


async def do(store: Store, command: Command) -> dict[str, Any]:
    return await call(store, command.method, command.args)


def test_a_failed_deletion_is_tried_again_until_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody tried again until the caller repeated the purge or the store was started again.
    purge, failures = MemoryKeyStore.purge, [1, 2, 3]

    async def failing(store: MemoryKeyStore, owner: str) -> None:
        if failures:
            failures.pop()
            raise KeyStoreError(None, "it cannot be reached")
        await purge(store, owner)

    async def story() -> None:
        cluster = Cluster()
        process = await cluster.start()
        await process.do(create_session("s1"))
        await process.do(end_session("s1"))
        monkeypatch.setattr(MemoryKeyStore, "purge", failing)
        assert await process.code(purge_session("s1")) == "unavailable"
        assert cluster.keys.keys
        await asyncio.sleep(5)
        assert not cluster.keys.keys
        assert not failures
        assert cluster.keys.values["purges finished in partition 0"] == (3).to_bytes(8, "big")

    run_virtual(story())


async def test_a_failed_deletion_holds_up_no_other_purge_and_is_finished_by_a_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An error of the file system stopped every later purge of the partition, and the store could not be closed.
    store = await open_store(StoreSettings(tmp_path), SystemEnvironment())
    names = [name for n in range(100) if place(name := f"s-{n}") == 0][:3]
    for name in names:
        await do(store, create_session(name))
        await do(store, end_session(name))
    failing = True

    def full(_path: Path) -> None:
        if failing:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("engine.keys.database.sync_folder", full)
    with pytest.raises(Refused) as caught:
        await do(store, purge_session(names[0]))
    assert caught.value.code == "unavailable"
    with pytest.raises(Refused, match="session_purged"):
        await do(store, create_session(names[0]))
    failing = False
    assert await asyncio.gather(*(do(store, purge_session(name)) for name in names)) == [{}, {}, {}]
    assert [store._keys.keys_of(f"session:{name}") for name in names] == [(), (), ()]
    await store.close()
    store = await open_store(StoreSettings(tmp_path), SystemEnvironment())
    assert store.ready()
    await store.close()


async def test_a_store_whose_key_store_has_failed_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await open_store(StoreSettings(tmp_path), SystemEnvironment())
    assert store.ready()

    def broken(*_: object, **__: object) -> None:
        raise KeyStoreError(tmp_path, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("engine.keys.database.Database.sync", broken)
        with pytest.raises(Refused, match="unavailable"):
            await do(store, create_session("s-1"))
    assert not store.ready()
    await store.close()
    store = await open_store(StoreSettings(tmp_path), SystemEnvironment())
    assert store.ready()
    assert (await do(store, create_session("s-1")))["session"]["status"] == "active"
    await store.close()


class FailingKeys:
    """Makes the key store in memory fail to delete while `on`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on = False
        self.seconds = 0.0
        purge = MemoryKeyStore.purge

        async def failing(store: MemoryKeyStore, owner: str) -> None:
            await asyncio.sleep(self.seconds)
            if self.on:
                raise KeyStoreError(None, "it cannot be reached")
            await purge(store, owner)

        monkeypatch.setattr(MemoryKeyStore, "purge", failing)


async def purged(process: Process, session_id: str) -> None:
    for command in (create_session(session_id), end_session(session_id), purge_session(session_id)):
        await process.do(command)


def owners(cluster: Cluster) -> set[str]:
    return {owner for owner, _ in cluster.keys.keys.values()}


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_purge_in_a_log_that_was_restored_is_finished_at_the_next_start(
    exclusive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How far purges had come in the longer log was lowered in memory alone: the next start took it for this log's, and
    # the key stayed until somebody repeated the purge.
    failing = FailingKeys(monkeypatch)

    async def story() -> None:
        cluster = Cluster()
        one = await cluster.start(exclusive=exclusive)
        await one.do(create_session("s2"))
        end = cluster.storage.end(0)
        for number in range(6):
            await one.do(create_session(f"x{number}"))
        await purged(one, "s1")
        await one.store.close()
        cluster.storage.truncate(0, end)
        two = await cluster.start(exclusive=exclusive)
        await two.do(end_session("s2"))
        # This one dies before it has deleted anything.
        failing.seconds = 1_000_000.0
        purge = asyncio.ensure_future(two.do(purge_session("s2")))
        for number in range(20):
            await two.do(create_session(f"y{number}"))
        assert not purge.done()
        assert "session:s2" in owners(cluster)
        failing.seconds = 0.0
        await cluster.start(exclusive=exclusive)
        assert "session:s2" not in owners(cluster)
        purge.cancel()

    run_virtual(story())


def test_purges_of_a_log_that_was_cut_while_open_are_finished_at_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The end of the longer log was kept, and noted as finished with the first purge of the shorter one.
    failing = FailingKeys(monkeypatch)

    async def story() -> None:
        cluster = Cluster()
        one = await cluster.start()
        for name in ("s2", "s3"):
            await one.do(create_session(name))
        end = cluster.storage.end(0)
        for number in range(6):
            await one.do(create_session(f"x{number}"))
        await purged(one, "s1")
        cluster.storage.truncate(0, end)
        await asyncio.sleep(compare_seconds)
        assert await one.code(create_session("s9")) == "unavailable"
        while not one.store.ready():  # noqa: ASYNC110 # nothing tells of it
            await asyncio.sleep(0.1)
        await one.do(end_session("s2"))
        await one.do(purge_session("s2"))
        await one.do(end_session("s3"))
        failing.on = True
        assert await one.code(purge_session("s3")) == "unavailable"
        await one.store.close()
        failing.on = False
        await cluster.start()
        assert "session:s3" not in owners(cluster)

    run_virtual(story())


def test_a_deletion_that_is_tried_again_while_a_sweep_fails_notes_nothing_as_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The sweep had forgotten what was unfinished before it had deleted anything, so the other took all for finished:
    # the next start skipped the purge, and the key stayed.
    failing = FailingKeys(monkeypatch)

    async def story() -> None:
        cluster = Cluster()
        one = await cluster.start()
        await one.do(create_session("s1"))
        await one.do(end_session("s1"))
        failing.on = True
        assert await one.code(purge_session("s1")) == "unavailable"
        end = cluster.storage.end(0)
        await one.do(create_session("s2"))
        cluster.storage.truncate(0, end)
        await asyncio.sleep(compare_seconds)
        assert await one.code(create_session("s3")) == "unavailable"
        await asyncio.sleep(20)
        await one.store.close()
        failing.on = False
        await cluster.start()
        assert "session:s1" not in owners(cluster)

    run_virtual(story())


def test_a_watermark_that_could_not_be_lowered_is_lowered_by_the_next_try(monkeypatch: pytest.MonkeyPatch) -> None:
    # It was lowered in memory first, so the next try saw nothing to do, and the longer log's stayed on the disk.
    put_value, refusals = MemoryKeyStore.put_value, [1]

    async def once(store: MemoryKeyStore, name: str, data: bytes) -> None:
        if name.startswith("purges") and refusals:
            refusals.pop()
            raise KeyStoreError(None, "it cannot be reached")
        await put_value(store, name, data)

    async def story() -> None:
        cluster = Cluster()
        one = await cluster.start(exclusive=True)
        await one.do(create_session("s2"))
        end = cluster.storage.end(0)
        await purged(one, "s1")
        await one.store.close()
        cluster.storage.truncate(0, end)
        monkeypatch.setattr(MemoryKeyStore, "put_value", once)
        two = await cluster.start(exclusive=True)
        async with asyncio.timeout(60):
            while not two.store.ready():  # noqa: ASYNC110 # nothing tells of it
                await asyncio.sleep(0.1)
        assert not refusals
        assert cluster.keys.values["purges finished in partition 0"] == end.to_bytes(8, "big")

    run_virtual(story())


def test_closing_leaves_no_deletion_that_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # One that failed while the store closed was tried again for ever, on a key store that was closed.
    failing = FailingKeys(monkeypatch)

    async def story() -> None:
        process = await Cluster().start()
        await process.do(create_session("s1"))
        await process.do(end_session("s1"))
        failing.on, failing.seconds = True, 1.0
        purge = asyncio.ensure_future(process.code(purge_session("s1")))
        await asyncio.sleep(0.5)
        await process.store.close()
        assert await purge == "unavailable"
        await asyncio.sleep(60)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(story())
