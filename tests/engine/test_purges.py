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
from schemas.refusals import Refused
from service.methods import call
from tests.contract.builders import Command, create_session, end_session, place, purge_session
from tests.engine.scene import Cluster
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
