"""The key store in a topic, and brokers that are killed, paused, and started again."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from engine.keys import KeyStoreError
from engine.keys.kafka import KafkaKeyStore, call_seconds_max
from tests.kafka.brokers import Brokers
from tests.keys.on_kafka import Topic

slack_seconds = 0.5
back_seconds_max = 10.0


@pytest_asyncio.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with Brokers(tmp_path / "kafka") as started:
        yield started


def key() -> tuple[bytes, bytes]:
    return os.urandom(16), os.urandom(32)


async def fails_in_time(store: KafkaKeyStore) -> None:
    """Every call fails within its limit, all at once as well as one after the other."""
    calls = (
        store.refresh,
        lambda: store.put("session:2", *key()),
        lambda: store.purge("session:1"),
        lambda: store.put_value("n", b"1"),
        lambda: store.agree_on_value("m", bytes),
    )
    for call in calls:
        began = time.monotonic()
        with pytest.raises(KeyStoreError):
            await call()
        assert time.monotonic() - began < call_seconds_max + slack_seconds
    began = time.monotonic()
    outcomes = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
    assert all(isinstance(outcome, KeyStoreError) for outcome in outcomes)
    assert time.monotonic() - began < call_seconds_max + slack_seconds
    assert not store.failed


async def put_again(store: KafkaKeyStore, owner: str) -> tuple[bytes, bytes]:
    """Put a new key each time until one is kept, as the engine does."""
    async with asyncio.timeout(back_seconds_max):
        while True:
            key_id, data_key = key()
            try:
                await store.put(owner, key_id, data_key)
            except KeyStoreError:
                continue
            return key_id, data_key


@pytest.mark.parametrize("how", ["killed", "paused"])
async def test_it_fails_in_time_without_brokers_and_works_again_by_itself(brokers: Brokers, how: str) -> None:
    async with Topic(brokers.bootstrap) as topic:
        store = await topic.open()
        key_id, data_key = key()
        await store.put("session:9", key_id, data_key)
        await (brokers.kill() if how == "killed" else brokers.pause())
        await fails_in_time(store)
        assert store.get(key_id) == data_key
        await (brokers.start() if how == "killed" else brokers.resume())
        with_it, another = await put_again(store, "session:3")
        assert (store.get(key_id), store.get(with_it)) == (data_key, another)
        await store.purge("session:9")
        assert (await topic.open()).get(key_id) is None


@pytest.mark.parametrize("how", ["killed", "paused"])
async def test_closing_without_brokers_ends_in_time_and_leaves_no_task(brokers: Brokers, how: str) -> None:
    async with Topic(brokers.bootstrap) as topic:
        before = asyncio.all_tasks()
        store = await topic.open()
        await store.put("session:1", *key())
        await (brokers.kill() if how == "killed" else brokers.pause())
        waiting = [asyncio.create_task(call) for call in (store.put("session:1", *key()), store.purge("session:1"))]
        await asyncio.sleep(0.1)
        began = time.monotonic()
        await store.close()
        assert time.monotonic() - began < call_seconds_max + slack_seconds
        for task in waiting:
            with pytest.raises(KeyStoreError):
                await task
        assert asyncio.all_tasks() <= before
        if how == "paused":
            await brokers.resume()


async def test_opening_without_brokers_fails_in_time_and_leaves_no_task(brokers: Brokers) -> None:
    async with Topic(brokers.bootstrap) as topic:
        await (await topic.open()).close()
        await brokers.kill()
        before = asyncio.all_tasks()
        began = time.monotonic()
        with pytest.raises(KeyStoreError, match=topic.name):
            await topic.open()
        assert time.monotonic() - began < 10
        assert asyncio.all_tasks() <= before


async def test_keys_that_were_kept_outlive_kills(brokers: Brokers) -> None:
    async with Topic(brokers.bootstrap) as topic:
        stores = [await topic.open() for _ in range(2)]
        kept: dict[bytes, bytes] = {}
        purged: set[bytes] = set()
        stop = False

        async def load(store: KafkaKeyStore, number: int) -> None:
            step = 0
            while not stop:
                step += 1
                owner = f"session:{number}-{step}"
                key_id, data_key = key()
                try:
                    await store.put(owner, key_id, data_key)
                    if step % 3:
                        kept[key_id] = data_key
                    else:
                        await store.purge(owner)
                        purged.add(key_id)
                except KeyStoreError:
                    await asyncio.sleep(0.01)

        async def back(store: KafkaKeyStore) -> None:
            """Wait for the other store too: the broker was known to be gone until a moment ago."""
            async with asyncio.timeout(back_seconds_max):
                while True:
                    try:
                        return await store.refresh()
                    except KeyStoreError:
                        await asyncio.sleep(0.01)

        loads = [asyncio.create_task(load(stores[number % 2], number)) for number in range(8)]
        for _ in range(5):
            await asyncio.sleep(0.5)
            before = len(kept)
            await brokers.kill()
            await asyncio.sleep(0.2)
            await brokers.start()
            async with asyncio.timeout(back_seconds_max):
                while len(kept) < before + 20:  # noqa: ASYNC110 # nothing tells of it
                    await asyncio.sleep(0.01)
        stop = True
        await asyncio.gather(*loads)
        assert len(kept) > 200
        assert len(purged) > 100
        for store in (*stores, await topic.open()):
            await back(store)
            assert {key_id: store.get(key_id) for key_id in kept} == kept
            assert not any(store.get(key_id) for key_id in purged)
