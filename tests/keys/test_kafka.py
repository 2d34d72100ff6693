"""The key store in a topic, several of them on one, on a real broker that does its work."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from engine.kafka.client import Fetched, KafkaClient
from engine.keys import KeyMissing, KeyStoreError, MasterKey, MasterKeyError, Sealer
from engine.keys.kafka import KafkaKeyStore, value_bytes_max
from engine.keys.topic import FILLER, key_gone, key_kept, value_kept
from tests.kafka.brokers import Brokers
from tests.keys.on_kafka import Topic, files_holding, until, wrapped
from tests.keys.support import MASTER

OTHER_MASTER = MasterKey(b"\7" * 32, os.urandom)


@pytest_asyncio.fixture
async def topic(bootstrap_servers: str) -> AsyncIterator[Topic]:
    async with Topic(bootstrap_servers) as made:
        yield made


def key() -> tuple[bytes, bytes]:
    return os.urandom(16), os.urandom(32)


# -- several stores


class SlowReader(KafkaClient):
    """Reads late, so that what a store does not wait for is not there by luck."""

    async def fetch(
        self, topic: str, partition: int, offset: int, seconds: float, *, wait_seconds: float = 0.0
    ) -> Fetched:
        fetched = await super().fetch(topic, partition, offset, seconds, wait_seconds=wait_seconds)
        await asyncio.sleep(0.05)
        return fetched


async def test_what_one_store_puts_another_finds_at_once_after_a_refresh(topic: Topic) -> None:
    a, b = await topic.open(), await topic.open(make_client=SlowReader)
    for number in range(20):
        key_id, data_key = key()
        await a.put(f"session:{number}", key_id, data_key)
        await a.put_value("far", bytes([number]))
        await b.refresh()
        assert (b.get(key_id), b.keys_of(f"session:{number}")) == (data_key, (key_id,))
        assert b.get_value("far") == bytes([number])


async def test_a_store_that_only_follows_learns_of_keys_and_purges(topic: Topic) -> None:
    a, b = await topic.open(), await topic.open()
    heard: list[tuple[bytes, bytes | None]] = []
    b.subscribe(lambda key_ids: heard.extend((key_id, b.get(key_id)) for key_id in key_ids))
    key_id, data_key = key()
    await a.put("session:1", key_id, data_key)
    await until(lambda: b.get(key_id) == data_key)
    await a.purge("session:1")
    await until(lambda: b.get(key_id) is None)
    assert heard == [(key_id, None)]


async def test_a_cached_copy_is_dropped_when_another_store_purges(topic: Topic) -> None:
    a, b = await topic.open(), await topic.open()
    sealer = Sealer(b, os.urandom)
    key_id, data_key = key()
    await a.put("session:1", key_id, data_key)
    await b.refresh()
    sealed = sealer.seal(key_id, b"", b"plain")
    await a.purge("session:1")
    await b.refresh()
    with pytest.raises(KeyMissing):
        sealer.open(key_id, b"", sealed)


async def test_a_purge_takes_the_keys_that_this_store_has_not_read_yet(topic: Topic) -> None:
    a, b = await topic.open(), await topic.open(make_client=SlowReader)
    for number in range(10):
        key_ids = [key() for _ in range(3)]
        for key_id, data_key in key_ids:
            await a.put(f"session:{number}", key_id, data_key)
        await b.purge(f"session:{number}")
        await a.refresh()
        assert [a.get(key_id) for key_id, _ in key_ids] == [None] * 3
        assert a.keys_of(f"session:{number}") == ()


async def test_stores_that_purge_and_put_at_once_come_to_the_same(topic: Topic) -> None:
    stores = [await topic.open() for _ in range(3)]
    keys = [key() for _ in range(60)]
    owners = [f"session:{number % 10}" for number in range(60)]
    await asyncio.gather(*(stores[n % 3].put(owners[n], *keys[n]) for n in range(60)))
    await asyncio.gather(*(store.purge(f"session:{number}") for store in stores for number in range(5)))
    for store in [*stores, await topic.open()]:
        await store.refresh()
        for (key_id, data_key), owner in zip(keys, owners, strict=True):
            assert store.get(key_id) == (None if int(owner[8:]) < 5 else data_key)


# -- the master key, and values that are agreed on


async def test_a_wrong_master_key_is_told_and_nothing_is_written(topic: Topic) -> None:
    store = await topic.open()
    await store.put("session:1", *key())
    await store.close()
    end = await topic.end()
    with pytest.raises(MasterKeyError, match=topic.name):
        await topic.open(OTHER_MASTER)
    assert await topic.end() == end


async def test_two_that_make_a_store_with_two_master_keys_do_not_both_have_it(topic: Topic) -> None:
    opened = await asyncio.gather(topic.open(), topic.open(OTHER_MASTER), return_exceptions=True)
    (winner,) = [each for each in opened if isinstance(each, KafkaKeyStore)]
    (loser,) = [each for each in opened if not isinstance(each, KafkaKeyStore)]
    assert isinstance(loser, MasterKeyError)
    await winner.put("session:1", *key())
    with pytest.raises(MasterKeyError):
        await topic.open(OTHER_MASTER if winner is opened[0] else MASTER)


async def test_a_topic_with_keys_and_no_check_is_refused(topic: Topic) -> None:
    await topic.write(key_kept("session:1", bytes(16), bytes(60)))
    with pytest.raises(KeyStoreError, match="nothing that tells of which master key"):
        await topic.open()


async def test_stores_that_ask_at_once_agree(topic: Topic) -> None:
    stores = [await topic.open() for _ in range(5)]
    for number in range(10):
        values = await asyncio.gather(*(store.agree_on_value(f"n{number}", lambda: os.urandom(32)) for store in stores))
        assert len(set(values)) == 1
        late = await topic.open()
        assert await late.agree_on_value(f"n{number}", lambda: b"") == values[0] == late.get_value(f"n{number}")
    keys = [record.key for record in await topic.records() if (record.key or b"").startswith(b"agreed\0n")]
    # With one record key for two, compaction would leave the later one.
    assert len(keys) == len(set(keys)) > 10


# -- late copies


async def test_a_copy_that_comes_after_the_tombstone_is_void_and_the_tombstone_is_written_again(topic: Topic) -> None:
    a, b = await topic.open(), await topic.open()
    key_id, data_key = key()
    await a.put("session:1", key_id, data_key)
    copy = key_kept("session:1", key_id, wrapped(a, key_id))
    await a.purge("session:1")
    at = await topic.write(copy)
    for store in (a, b):
        await store.refresh()
        assert store.get(key_id) is None
        assert store.keys_of("session:1") == ()
    await until(lambda: not a._kept.repairs() and not b._kept.repairs())
    last = [record for record in await topic.records() if record.key == copy[0]][-1]
    assert last.offset > at
    assert last.value is None
    end = await topic.end()
    late = await topic.open()
    assert late.get(key_id) is None
    await late.put("session:2", *key())
    # What was written again once is not written again by each that opens.
    assert not await topic.written(copy[0], after=end)


async def test_a_copy_that_came_while_no_store_ran_is_found_at_opening(topic: Topic) -> None:
    a = await topic.open()
    key_id, data_key = key()
    await a.put("session:1", key_id, data_key)
    copy = key_kept("session:1", key_id, wrapped(a, key_id))
    await a.purge("session:1")
    await a.close()
    at = await topic.write(copy)
    b = await topic.open()
    assert b.get(key_id) is None
    await until(lambda: not b._kept.repairs())
    assert (await topic.records())[-1].offset > at
    assert key_gone("session:1", key_id)[0] in [record.key for record in await topic.records() if record.offset > at]


async def test_an_older_value_that_comes_late_does_not_count(topic: Topic) -> None:
    a = await topic.open()
    await a.put_value("far", b"1")
    old = (await topic.records())[-1]
    await a.put_value("far", b"2")
    assert old.key is not None
    at = await topic.write((old.key, old.value))
    await a.refresh()
    assert a.get_value("far") == b"2"
    await until(lambda: not a._kept.repairs())
    assert await topic.written(old.key, after=at + 1)
    assert (await topic.open()).get_value("far") == b"2"


async def test_a_value_that_is_put_by_a_store_that_is_behind_holds(topic: Topic) -> None:
    a, b = await topic.open(), await topic.open(make_client=SlowReader)
    for number in range(10):
        await a.put_value("far", b"a%d" % number)
        await a.put_value("far", b"a")
        await b.put_value("far", b"b%d" % number)
        await a.refresh()
        assert a.get_value("far") == b.get_value("far") == b"b%d" % number


async def test_what_cannot_be_read_is_told_and_passed_over(topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    a = await topic.open()
    with caplog.at_level(logging.ERROR, "runstore.keys"):
        await topic.write((b"key\0session:1\0" + bytes(16), b"short"), (b"newer kind\0", b"x"), value_kept("n", 1, b""))
        await a.refresh()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert a.get(bytes(16)) is None
    with pytest.raises(KeyStoreError, match="does not open"):
        a.get_value("n")
    await a.put("session:2", *key())


async def test_a_topic_that_was_made_anew_is_told_and_followed_again(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    store = await topic.open()
    old, old_key = key()
    gone, gone_key = key()
    await store.put("session:1", old, old_key)
    await store.put("session:2", gone, gone_key)
    copy = key_kept("session:2", gone, wrapped(store, gone))
    await store.purge("session:2")
    with caplog.at_level(logging.ERROR, "runstore.keys"):
        await topic.delete()
        await topic.make()
        await until(lambda: bool(caplog.records))
    assert "was cut or made anew" in caplog.text
    new, new_key = key()
    async with asyncio.timeout(10):
        while True:
            try:
                await store.put("session:3", new, new_key)
                break
            except KeyStoreError:
                new, new_key = key()
    await topic.write(copy)
    await store.refresh()
    assert (store.get(old), store.get(new), store.get(gone)) == (old_key, new_key, None)
    with pytest.raises(KeyStoreError, match="nothing that tells of which master key"):
        await topic.open()


# -- limits and cost


class CountingClient(KafkaClient):
    """Counts what it is asked."""

    asked = 0

    async def end(self, topic: str, partition: int, seconds: float) -> int:
        CountingClient.asked += 1
        return await super().end(topic, partition, seconds)


async def test_those_who_refresh_at_once_share_one_question(topic: Topic) -> None:
    store = await topic.open(make_client=CountingClient)
    before = CountingClient.asked
    await asyncio.gather(*(store.refresh() for _ in range(200)))
    assert CountingClient.asked - before <= 2


async def test_many_keys_share_batches(topic: Topic) -> None:
    store = await topic.open()
    keys = [key() for _ in range(5000)]
    await asyncio.gather(*(store.put(f"session:{n}", *each) for n, each in enumerate(keys)))
    assert all(store.get(key_id) == data_key for key_id, data_key in keys)
    assert len({record.time_ms for record in await topic.records()}) < 100


async def test_a_value_that_is_too_long_is_refused(topic: Topic) -> None:
    store = await topic.open()
    await store.put_value("n", bytes(value_bytes_max))
    with pytest.raises(ValueError, match="100001"):
        await store.put_value("n", bytes(value_bytes_max + 1))


async def test_a_topic_that_is_not_there_is_told(topic: Topic) -> None:
    missing = Topic(topic.bootstrap_servers)
    with pytest.raises(KeyStoreError, match=missing.name):
        await missing.open()
    await missing.client.close()


# -- erasure from files

CLEANER = {"log.cleaner.backoff.ms": "200"}
QUICK = {"segment.ms": "1500", "max.compaction.lag.ms": "1500", "file.delete.delay.ms": "100"}


async def test_a_purged_key_leaves_the_brokers_files_within_the_bound(tmp_path: Path) -> None:
    async with (
        Brokers(tmp_path / "kafka", properties=CLEANER) as brokers,
        Topic(brokers.bootstrap, changes=QUICK) as quick,
        Topic(brokers.bootstrap) as slow,
    ):
        keys = {}
        for topic in (quick, slow):
            store = await topic.open()
            for owner in ("purged", "kept"):
                key_id, data_key = key()
                await store.put(owner, key_id, data_key)
                keys[topic.name, owner] = wrapped(store, key_id)
        for topic in (quick, slow):
            await topic.stores[0].purge("purged")
        folder = tmp_path / "kafka"
        assert all(files_holding(folder, each) for each in keys.values())
        await until(lambda: not files_holding(folder, keys[quick.name, "purged"]))
        # The controls: the bound of the slow topic is not over, and nothing else was erased.
        assert files_holding(folder, keys[slow.name, "purged"])
        assert files_holding(folder, keys[quick.name, "kept"])
        assert files_holding(folder, keys[slow.name, "kept"])


async def test_a_purge_is_erased_too_when_its_store_was_closed_before_the_filler(tmp_path: Path) -> None:
    async with (
        Brokers(tmp_path / "kafka", properties=CLEANER) as brokers,
        Topic(brokers.bootstrap, changes=QUICK) as topic,
    ):
        store = await topic.open()
        key_id, data_key = key()
        await store.put("purged", key_id, data_key)
        secret = wrapped(store, key_id)
        await store.purge("purged")
        await store.close()
        await asyncio.sleep(4.0)
        # Nobody wrote a filler: the control.
        assert files_holding(tmp_path / "kafka", secret)
        assert not await topic.written(FILLER)
        again = await topic.open()
        await until(lambda: not files_holding(tmp_path / "kafka", secret))
        await until(lambda: again._kept.filler_wait_ms is None)
        end = await topic.end()
        await asyncio.sleep(3.0)
        assert await topic.end() == end
