"""What every key store does. Another one joins in `open_store`, in three lines."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from engine.keys import KeyStore, KeyStoreError, MemoryDisk, MemoryKeyStore, RocksKeyStore
from engine.keys.kafka import KafkaKeyStore
from tests.keys.conftest import OpenRocks
from tests.keys.on_kafka import Topic
from tests.keys.support import HookedEnvironment

OpenStore = Callable[[], Awaitable[KeyStore]]


class Stop(Exception):
    """Raised at a failpoint."""


@pytest_asyncio.fixture(params=["rocks", "memory", "kafka"])
async def open_store(
    request: pytest.FixtureRequest, open_rocks: OpenRocks, environment: HookedEnvironment
) -> AsyncIterator[OpenStore]:
    """Opens the store; after a close, again, with what it kept."""
    disk = MemoryDisk()

    async def open_memory() -> KeyStore:
        return MemoryKeyStore(environment, disk)

    if request.param == "kafka":
        async with Topic(request.getfixturevalue("bootstrap_servers")) as topic:
            yield lambda: topic.open(environment=environment)
    else:
        yield open_rocks if request.param == "rocks" else open_memory


def key() -> tuple[bytes, bytes]:
    return os.urandom(16), os.urandom(32)


@pytest.mark.asyncio
async def test_keeps_keys_by_id_and_by_owner(open_store: OpenStore) -> None:
    store = await open_store()
    (a, key_a), (b, key_b), (c, key_c) = key(), key(), key()
    await store.put("session:1", a, key_a)
    await store.put("session:2", b, key_b)
    await store.put("session:1", c, key_c)
    for _ in range(2):
        assert (store.get(a), store.get(b), store.get(c)) == (key_a, key_b, key_c)
        assert store.get(os.urandom(16)) is None
        assert store.keys_of("session:1") == (a, c)
        assert store.keys_of("session:2") == (b,)
        assert store.keys_of("session:") == store.keys_of("session:11") == store.keys_of("session") == ()
        await store.close()
        store = await open_store()


@pytest.mark.asyncio
async def test_purge_removes_all_of_one_owner_and_nothing_else(open_store: OpenStore) -> None:
    store = await open_store()
    gone = [key() for _ in range(3)]
    stays = {"session:1": key(), "session:121": key(), "session:1 2": key(), "tree:12": key(), "Session:12": key()}
    for key_id, data_key in gone:
        await store.put("session:12", key_id, data_key)
    for owner, (key_id, data_key) in stays.items():
        await store.put(owner, key_id, data_key)
    await store.purge("session:12")
    for _ in range(2):
        assert store.keys_of("session:12") == ()
        assert all(store.get(key_id) is None for key_id, _ in gone)
        for owner, (key_id, data_key) in stays.items():
            assert store.keys_of(owner) == (key_id,)
            assert store.get(key_id) == data_key
        await store.purge("session:12")
        await store.purge("session:unknown")
        await store.close()
        store = await open_store()


@pytest.mark.asyncio
async def test_keys_put_after_a_purge_began_stay(open_store: OpenStore) -> None:
    store = await open_store()
    old, (new, new_key) = key(), key()
    await store.put("memory:1", *old)
    purge = asyncio.create_task(store.purge("memory:1"))
    await asyncio.sleep(0)
    assert store.get(old[0]) is None
    assert store.keys_of("memory:1") == ()
    await store.put("memory:1", new, new_key)
    await purge
    assert store.keys_of("memory:1") == (new,)
    assert store.get(new) == new_key
    await store.purge("memory:1")
    assert store.get(new) is None


@pytest.mark.asyncio
async def test_listeners_hear_of_a_purge_when_the_keys_are_no_longer_found(open_store: OpenStore) -> None:
    store = await open_store()
    heard: list[tuple[bytes, bytes | None]] = []
    store.subscribe(lambda key_ids: heard.extend((key_id, store.get(key_id)) for key_id in key_ids))
    keys = [key() for _ in range(2)]
    for key_id, data_key in keys:
        await store.put("session:1", key_id, data_key)
    await store.put("session:2", *key())
    await store.purge("session:1")
    assert heard == [(keys[0][0], None), (keys[1][0], None)]


@pytest.mark.asyncio
async def test_named_values_are_kept_and_replaced(open_store: OpenStore) -> None:
    store = await open_store()
    await store.put_value("purged:0", b"1")
    await store.put_value("purged:01", b"")
    await store.put_value("purged:0", b"2" * 1000)
    await store.put("session:1", *key())
    await store.purge("session:1")
    for _ in range(2):
        assert store.get_value("purged:0") == b"2" * 1000
        assert store.get_value("purged:01") == b""
        assert store.get_value("purged:") is None
        await store.close()
        store = await open_store()


@pytest.mark.asyncio
async def test_a_value_is_agreed_on_once(open_store: OpenStore) -> None:
    store = await open_store()
    made: list[bytes] = []

    def make() -> bytes:
        made.append(os.urandom(32))
        return made[-1]

    assert await store.agree_on_value("cursor key", make) == made[0]
    for _ in range(2):
        assert await store.agree_on_value("cursor key", make) == made[0] == store.get_value("cursor key")
        await store.close()
        store = await open_store()
    assert len(made) == 1


@pytest.mark.asyncio
async def test_refreshing_changes_nothing_that_was_there(open_store: OpenStore) -> None:
    store = await open_store()
    (a, key_a), (b, key_b) = key(), key()
    await store.put("session:1", a, key_a)
    await store.put("session:2", b, key_b)
    await store.purge("session:2")
    await store.refresh()
    assert (store.get(a), store.get(b)) == (key_a, None)
    await store.close()
    with pytest.raises(KeyStoreError, match="closed"):
        await store.refresh()


@pytest.mark.asyncio
async def test_refuses_what_is_no_key(open_store: OpenStore) -> None:
    store = await open_store()
    key_id, data_key = key()
    await store.put("session:1", key_id, data_key)
    for owner, an_id, a_key in [
        ("session:1", key_id, data_key),
        ("session:2", key_id, os.urandom(32)),
        ("session:1", os.urandom(15), data_key),
        ("session:1", os.urandom(17), data_key),
        ("session:1", os.urandom(16), data_key[1:]),
        ("session:1\0", os.urandom(16), data_key),
        ("", os.urandom(16), data_key),
    ]:
        with pytest.raises(ValueError):  # noqa: PT011  # its message varies
            await store.put(owner, an_id, a_key)
    assert store.keys_of("session:1") == (key_id,)
    assert store.keys_of("session:2") == ()
    assert store.get(key_id) == data_key


@pytest.mark.asyncio
async def test_failpoints_lie_around_what_is_done(open_store: OpenStore, environment: HookedEnvironment) -> None:
    store = await open_store()
    stop_at = ""

    def stop(name: str) -> None:
        if name == stop_at:
            raise Stop

    environment.on_failpoint = stop
    (before, key_before), (after, key_after) = key(), key()
    stop_at = "keys.before_put"
    with pytest.raises(Stop):
        await store.put("session:1", before, key_before)
    stop_at = "keys.after_put"
    with pytest.raises(Stop):
        await store.put("session:1", after, key_after)
    assert store.keys_of("session:1") == (after,)
    stop_at = "keys.before_purge"
    with pytest.raises(Stop):
        await store.purge("session:1")
    assert store.get(after) == key_after
    stop_at = "keys.after_purge"
    with pytest.raises(Stop):
        await store.purge("session:1")
    assert store.get(after) is None


@pytest.mark.asyncio
async def test_closed_store_takes_nothing(open_store: OpenStore) -> None:
    store = await open_store()
    await store.close()
    await store.close()
    for attempt in (store.put("session:1", *key()), store.purge("session:1"), store.put_value("name", b"")):
        with pytest.raises(KeyStoreError, match="closed"):
            await attempt


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.asyncio
async def test_any_order_of_steps_ends_as_a_dictionary_would(open_store: OpenStore, seed: int) -> None:
    rng = random.Random(seed)
    store = await open_store()
    owners = [f"session:{number}" for number in range(8)]
    expected: dict[str, dict[bytes, bytes]] = {owner: {} for owner in owners}
    ever: set[bytes] = set()

    async def put(owner: str) -> None:
        key_id, data_key = rng.randbytes(16), rng.randbytes(32)
        expected[owner][key_id] = data_key
        ever.add(key_id)
        await store.put(owner, key_id, data_key)

    async def purge(owner: str) -> None:
        expected[owner] = {}
        await store.purge(owner)

    for _ in range(25):
        # Each starts in the order given, so the dictionary's order is the store's, however they end.
        steps = [rng.choice((put, put, put, purge))(rng.choice(owners)) for _ in range(rng.randrange(1, 12))]
        await asyncio.gather(*steps)
        if rng.random() < 0.2:
            await store.close()
            store = await open_store()
        kept = {key_id: data_key for keys in expected.values() for key_id, data_key in keys.items()}
        assert {key_id: store.get(key_id) for key_id in ever} == {key_id: kept.get(key_id) for key_id in ever}
        assert {owner: store.keys_of(owner) for owner in owners} == {o: tuple(expected[o]) for o in owners}


def test_all_are_key_stores(folder: Path, environment: HookedEnvironment) -> None:
    def takes(store: type[KeyStore]) -> None:
        assert store is not None

    takes(RocksKeyStore)
    takes(MemoryKeyStore)
    takes(KafkaKeyStore)
    assert not folder.exists()
    assert isinstance(MemoryKeyStore(environment), MemoryKeyStore)
