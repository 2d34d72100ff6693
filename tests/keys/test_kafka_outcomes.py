"""The key store in a topic when answers do not come: a proxy loses them, or holds back what was asked."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from engine.keys import KeyStoreError
from engine.keys.kafka import KafkaKeyStore, call_seconds_max
from engine.keys.topic import key_gone, value_kept
from tests.kafka.brokers import Brokers
from tests.kafka.proxy import FETCH, PRODUCE, Fate, Kind, Mischief, Proxy, all_pass, in_order
from tests.keys.on_kafka import Topic, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

slack_seconds = 0.5
LOST = (Kind.DROP_AND_CUT, Kind.DROP_AND_HANG, Kind.CUT_ANSWER)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxied(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Proxy, str]]:
    folder = tmp_path_factory.mktemp("proxied") / "kafka"
    async with Proxy() as proxy, Brokers(folder, advertised={1: proxy.address}) as brokers:
        proxy.target = brokers.bootstrap
        yield proxy, brokers.bootstrap


@pytest_asyncio.fixture(loop_scope="module")
async def topic(proxied: tuple[Proxy, str]) -> AsyncIterator[Topic]:
    proxy, address = proxied
    async with Topic(address) as made:
        yield made
        proxy.plan = all_pass


@pytest.fixture
def proxy(proxied: tuple[Proxy, str]) -> Proxy:
    return proxied[0]


def key() -> tuple[bytes, bytes]:
    return os.urandom(16), os.urandom(32)


async def copies(topic: Topic, key_id: bytes) -> int:
    return sum((record.key or b"").endswith(key_id) for record in await topic.records())


@pytest.mark.parametrize("kind", LOST)
async def test_a_key_whose_answer_was_lost_is_found_in_the_topic(topic: Topic, proxy: Proxy, kind: Kind) -> None:
    store = await topic.open()
    key_id, data_key = key()
    proxy.plan = in_order([Fate(kind)])
    await store.put("session:1", key_id, data_key)
    assert store.get(key_id) == data_key
    assert await copies(topic, key_id) == 1
    assert (await topic.open()).get(key_id) == data_key


async def test_a_key_that_comes_late_is_waited_for(topic: Topic, proxy: Proxy) -> None:
    store = await topic.open()
    key_id, data_key = key()
    proxy.plan = in_order([Fate(Kind.LATE, delay_seconds=0.7)])
    began = time.monotonic()
    await store.put("session:1", key_id, data_key)
    assert time.monotonic() - began > 0.5
    assert store.get(key_id) == data_key
    assert await copies(topic, key_id) == 1


@pytest.mark.parametrize("kind", [Kind.CUT_REQUEST, Kind.LATE])
async def test_a_key_that_does_not_come_fails_in_time_and_is_not_written_again(
    topic: Topic, proxy: Proxy, kind: Kind
) -> None:
    store = await topic.open()
    key_id, data_key = key()
    proxy.plan = in_order([Fate(kind, delay_seconds=0.0 if kind is Kind.CUT_REQUEST else call_seconds_max + 1)])
    began = time.monotonic()
    with pytest.raises(KeyStoreError, match="may be kept or not"):
        await store.put("session:1", key_id, data_key)
    assert time.monotonic() - began < call_seconds_max + slack_seconds
    assert not store.failed
    assert await copies(topic, key_id) == 0
    if kind is Kind.LATE:
        await until(lambda: store.keys_of("session:1") == (key_id,))
        assert store.get(key_id) == data_key
        assert await copies(topic, key_id) == 1
    with_it, another = key()
    await store.put("session:1", with_it, another)
    assert store.keys_of("session:1")[-1] == with_it


async def test_a_key_that_comes_after_its_owner_was_purged_is_void_and_deleted(topic: Topic, proxy: Proxy) -> None:
    store, other = await topic.open(), await topic.open()
    key_id, data_key = key()
    proxy.plan = in_order([Fate(Kind.LATE, delay_seconds=call_seconds_max + 1)])
    with pytest.raises(KeyStoreError):
        await store.put("session:1", key_id, data_key)
    await store.purge("session:1")
    assert await copies(topic, key_id) == 1  # Its tombstone, before there was a key.
    async with asyncio.timeout(10):
        while await copies(topic, key_id) < 3:  # noqa: ASYNC110 # nothing tells of it
            await asyncio.sleep(0.05)
    for each in (store, other):
        await each.refresh()
        assert each.get(key_id) is None
        assert each.keys_of("session:1") == ()
    last = [record for record in await topic.records() if record.key == key_gone("session:1", key_id)[0]][-1]
    assert last.value is None


async def test_a_purge_during_a_put_whose_answer_hangs_takes_the_key(topic: Topic, proxy: Proxy) -> None:
    store = await topic.open()
    key_id, data_key = key()
    proxy.plan = in_order([Fate(Kind.THROUGH, delay_seconds=0.5)])
    putting = asyncio.create_task(store.put("session:1", key_id, data_key))
    await asyncio.sleep(0.1)
    await store.purge("session:1")
    await asyncio.gather(putting, return_exceptions=True)
    await store.refresh()
    assert store.get(key_id) is None
    assert (await topic.open()).get(key_id) is None


async def test_a_key_whose_caller_is_gone_before_it_was_handed_over_is_not_written(topic: Topic, proxy: Proxy) -> None:
    store = await topic.open()
    first, second = key(), key()
    proxy.plan = in_order([Fate(Kind.THROUGH, delay_seconds=0.5)])
    putting = [asyncio.create_task(store.put("session:1", *first))]
    await asyncio.sleep(0.1)
    putting.append(asyncio.create_task(store.put("session:1", *second)))
    await asyncio.sleep(0.1)
    putting[1].cancel()
    await putting[0]
    await store.put_value("after", b"")
    assert store.keys_of("session:1") == (first[0],)
    assert await copies(topic, second[0]) == 0


@pytest.mark.parametrize("kind", [*LOST, Kind.CUT_REQUEST])
async def test_purges_and_values_are_written_again_until_they_are_there(topic: Topic, proxy: Proxy, kind: Kind) -> None:
    store = await topic.open()
    key_id, data_key = key()
    await store.put("session:1", key_id, data_key)
    proxy.plan = in_order([Fate(kind)])
    await store.purge("session:1")
    proxy.plan = in_order([Fate(kind)])
    await store.put_value("far", b"1")
    again = await topic.open()
    assert (again.get(key_id), again.get_value("far")) == (None, b"1")


@pytest.mark.parametrize("kind", LOST)
async def test_what_was_agreed_on_without_an_answer_is_agreed_on(topic: Topic, proxy: Proxy, kind: Kind) -> None:
    a, b = await topic.open(), await topic.open()
    proxy.plan = in_order([Fate(kind), Fate(kind)])
    values = await asyncio.gather(a.agree_on_value("n", lambda: b"a"), b.agree_on_value("n", lambda: b"b"))
    assert values[0] == values[1]
    assert await (await topic.open()).agree_on_value("n", lambda: b"c") == values[0]


async def test_a_store_is_made_though_the_answer_is_lost(topic: Topic, proxy: Proxy) -> None:
    proxy.plan = in_order([Fate(Kind.DROP_AND_CUT)])
    await (await topic.open()).put("session:1", *key())
    await topic.open()
    assert await topic.end() == 2


async def test_a_purge_that_failed_hides_the_keys_and_a_repeat_finishes_it(topic: Topic, proxy: Proxy) -> None:
    store = await topic.open()
    key_id, data_key = key()
    await store.put("session:1", key_id, data_key)
    proxy.plan = lambda request: Fate(Kind.CUT_REQUEST) if request.api_key == PRODUCE else Fate()
    began = time.monotonic()
    with pytest.raises(KeyStoreError, match="hidden"):
        await store.purge("session:1")
    assert time.monotonic() - began < call_seconds_max + slack_seconds
    assert (store.get(key_id), store.keys_of("session:1"), store.failed) == (None, (), False)
    proxy.plan = all_pass
    await store.purge("session:1")
    assert (await topic.open()).get(key_id) is None


async def test_a_store_that_cannot_read_answers_in_time_and_catches_up(topic: Topic, proxy: Proxy) -> None:
    store = await topic.open()
    proxy.plan = lambda request: Fate(Kind.DROP_AND_HANG) if request.api_key == FETCH else Fate()
    proxy.cut()
    await topic.write(value_kept("n", 1, b""))
    for call in (
        store.refresh,
        lambda: store.put("session:2", *key()),
        lambda: store.purge("session:1"),
        lambda: store.put_value("n", b"1"),
        lambda: store.agree_on_value("m", bytes),
    ):
        began = time.monotonic()
        with pytest.raises(KeyStoreError):
            await call()
        assert time.monotonic() - began < call_seconds_max + slack_seconds
    assert not store.failed
    proxy.plan = all_pass
    key_id, data_key = key()
    async with asyncio.timeout(10):
        while True:
            try:
                await store.put("session:1", key_id, data_key)
                break
            except KeyStoreError:
                key_id, data_key = key()
    assert store.get(key_id) == data_key


async def test_closing_ends_what_hangs(topic: Topic, proxy: Proxy) -> None:
    before = asyncio.all_tasks()
    store = await topic.open()
    proxy.plan = lambda request: Fate(Kind.DROP_AND_HANG) if request.api_key in {PRODUCE, FETCH} else Fate()
    putting = asyncio.create_task(store.put("session:1", *key()))
    purging = asyncio.create_task(store.purge("session:1"))
    await asyncio.sleep(0.2)
    began = time.monotonic()
    await store.close()
    assert time.monotonic() - began < call_seconds_max + slack_seconds
    began = time.monotonic()
    for task in (putting, purging):
        with pytest.raises(KeyStoreError):
            await task
    assert time.monotonic() - began < slack_seconds / 2
    proxy.plan = all_pass
    proxy.cut()
    await until(lambda: asyncio.all_tasks() <= before | {asyncio.current_task()}, 5)


async def test_under_random_mischief_no_key_that_was_kept_is_lost_and_none_that_was_purged_comes_back(
    topic: Topic, proxy: Proxy
) -> None:
    a, b = await topic.open(), await topic.open()
    proxy.plan = Mischief(
        7,
        dict.fromkeys((Kind.CUT_REQUEST, Kind.LATE, Kind.CUT_ANSWER, Kind.DROP_AND_CUT, Kind.DROP_AND_HANG), 0.06),
        delay_seconds_max=0.3,
    )
    kept: dict[bytes, bytes] = {}
    purged: list[bytes] = []

    async def one(store: KafkaKeyStore, number: int) -> None:
        for step in range(20):
            owner = f"session:{number}-{step}"
            key_id, data_key = key()
            try:
                await store.put(owner, key_id, data_key)
                if step % 2:
                    kept[key_id] = data_key
                    continue
                await store.purge(owner)
                purged.append(key_id)
            except KeyStoreError:
                continue

    await asyncio.gather(*(one(store, 2 * number + which) for which, store in enumerate((a, b)) for number in range(4)))
    proxy.plan = all_pass
    assert len(kept) > 40
    assert len(purged) > 40
    await until(lambda: not a._kept.repairs() and not b._kept.repairs())
    for store in (a, b, await topic.open()):
        await store.refresh()
        assert {key_id: store.get(key_id) for key_id in kept} == kept
        assert not any(store.get(key_id) for key_id in purged)
