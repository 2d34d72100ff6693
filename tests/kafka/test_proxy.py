"""The proxy before a real broker: what each fate leaves in the log, and what a client sees of it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import RequestTimedOutError

from tests.kafka.brokers import Brokers
from tests.kafka.proxy import FETCH, PRODUCE, Fate, Kind, Mischief, Proxy, Request, all_pass, in_order

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxied(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Proxy]:
    """A proxy, and a broker behind it that sends its clients there."""
    async with Proxy() as proxy:
        folder = tmp_path_factory.mktemp("proxied") / "kafka"
        async with Brokers(folder, advertised={1: proxy.address}) as brokers:
            proxy.target = brokers.bootstrap
            yield proxy


@dataclass
class Scene:
    """A topic of a test's own behind the proxy."""

    proxy: Proxy
    topic: str

    @asynccontextmanager
    async def producer(self, request_timeout_ms: int = 5000) -> AsyncIterator[AIOKafkaProducer]:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.proxy.address, acks="all", request_timeout_ms=request_timeout_ms
        )
        async with producer:
            # Asks where the topic is, so that a test's first fate is a send's.
            await producer.partitions_for(self.topic)
            yield producer

    async def send(self, producer: AIOKafkaProducer, value: bytes) -> int:
        """Give the offset that the client was told."""
        return int((await producer.send_and_wait(self.topic, value, partition=0)).offset)

    async def values(self, count: int) -> list[bytes]:
        """Read the log up to that many records, and see that there are no more."""
        self.proxy.plan = all_pass
        partition = TopicPartition(self.topic, 0)
        consumer = AIOKafkaConsumer(bootstrap_servers=self.proxy.address, auto_offset_reset="earliest")
        async with consumer, asyncio.timeout(20):
            consumer.assign([partition])
            found: list[bytes] = []
            while len(found) < count:
                records = await consumer.getmany(partition, timeout_ms=500)
                found += [record.value for record in records.get(partition, [])]
            assert (await consumer.end_offsets([partition]))[partition] == count
        return found


@pytest_asyncio.fixture(loop_scope="module")
async def scene(proxied: Proxy, request: pytest.FixtureRequest) -> Scene:
    proxied.plan = all_pass
    proxied.counts.clear()
    topic = re.sub(r"[^a-z0-9]+", "-", str(request.node.name)).strip("-")
    admin = AIOKafkaAdminClient(bootstrap_servers=proxied.address)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, 1)])
    finally:
        await admin.close()
    return Scene(proxied, topic)


async def test_everything_passes_unless_the_plan_says_otherwise(scene: Scene) -> None:
    async with scene.producer() as producer:
        assert [await scene.send(producer, b"%d" % number) for number in range(20)] == list(range(20))
    assert await scene.values(20) == [b"%d" % number for number in range(20)]
    assert scene.proxy.counts[PRODUCE, Kind.THROUGH] == 20
    assert scene.proxy.counts[FETCH, Kind.THROUGH] > 0


async def test_a_large_batch_passes_whole(scene: Scene) -> None:
    value = bytes(range(256)) * 2000
    async with scene.producer() as producer:
        await scene.send(producer, value[:500_000])
    assert await scene.values(1) == [value[:500_000]]


@pytest.mark.parametrize("kind", [Kind.DROP_AND_CUT, Kind.CUT_ANSWER])
async def test_an_answer_is_lost_after_the_broker_has_stored_the_records(scene: Scene, kind: Kind) -> None:
    scene.proxy.plan = in_order([Fate(kind)])
    async with scene.producer() as producer:
        # The client, told nothing, sends it again, and is told where the second went.
        assert await scene.send(producer, b"twice") == 1
        assert await scene.send(producer, b"once") == 2
    assert await scene.values(3) == [b"twice", b"twice", b"once"]
    assert scene.proxy.counts[PRODUCE, kind] == 1


async def test_a_silent_connection_leaves_a_client_without_a_word_of_what_is_stored(scene: Scene) -> None:
    scene.proxy.plan = in_order([Fate(Kind.DROP_AND_HANG)])
    async with scene.producer(request_timeout_ms=1000) as producer:
        begun = time.monotonic()
        with pytest.raises(RequestTimedOutError):
            await scene.send(producer, b"unknown")
        assert time.monotonic() - begun >= 0.9
        assert await scene.send(producer, b"known") == 1
    assert await scene.values(2) == [b"unknown", b"known"]


@pytest.mark.parametrize("portion", [0.0, 0.5, 0.99])
async def test_a_request_that_is_cut_never_reaches_the_broker(scene: Scene, portion: float) -> None:
    scene.proxy.plan = in_order([Fate(Kind.CUT_REQUEST, portion=portion)])
    async with scene.producer() as producer:
        assert await scene.send(producer, b"once") == 0
    assert await scene.values(1) == [b"once"]
    assert scene.proxy.counts[PRODUCE, Kind.CUT_REQUEST] == 1


async def test_a_late_request_lands_behind_what_was_sent_after_it(scene: Scene) -> None:
    scene.proxy.plan = in_order([Fate(Kind.LATE, delay_seconds=1.5)])
    async with scene.producer() as producer:
        assert await scene.send(producer, b"late") == 0
        assert await scene.send(producer, b"after") == 1
    assert await scene.values(3) == [b"late", b"after", b"late"]


async def test_requests_and_answers_are_delayed(scene: Scene) -> None:
    scene.proxy.plan = in_order([Fate(delay_seconds=0.3), Fate(answer_delay_seconds=0.4)])
    async with scene.producer() as producer:
        for delay_seconds in (0.3, 0.4):
            begun = time.monotonic()
            await scene.send(producer, b"slow")
            assert time.monotonic() - begun >= delay_seconds


async def test_all_connections_are_cut_and_new_ones_taken(scene: Scene) -> None:
    async with scene.producer() as producer:
        assert await scene.send(producer, b"1") == 0
        assert scene.proxy.cut() >= 1
        assert await scene.send(producer, b"2") == 1


REQUESTS = [Request(PRODUCE, 8, number, 100) for number in range(500)]


async def test_a_seed_gives_the_same_mischief_again() -> None:
    chances = {Kind.DROP_AND_CUT: 0.2, Kind.LATE: 0.1}
    first, again, other = (list(map(Mischief(seed, chances, delay_seconds_max=0.1), REQUESTS)) for seed in (7, 7, 8))
    assert first == again
    assert first != other
    kinds = [fate.kind for fate in first]
    assert 60 <= kinds.count(Kind.DROP_AND_CUT) <= 140
    assert 25 <= kinds.count(Kind.LATE) <= 85
    assert max(fate.delay_seconds for fate in first) <= 0.1


async def test_mischief_leaves_other_requests_alone() -> None:
    plan = Mischief(7, {Kind.CUT_REQUEST: 1.0})
    assert plan(Request(FETCH, 8, 1, 100)) == Fate()
    assert plan(Request(PRODUCE, 8, 2, 100)).kind is Kind.CUT_REQUEST


async def test_a_client_that_sends_again_loses_nothing_in_any_mischief(scene: Scene) -> None:
    """Every fate at once; a client that sends on doubles records and loses none."""
    harms = [kind for kind in Kind if kind not in {Kind.THROUGH, Kind.DROP_AND_HANG}]
    scene.proxy.plan = Mischief(1, dict.fromkeys(harms, 0.1), delay_seconds_max=0.02)
    values = [b"%d" % number for number in range(50)]
    async with scene.producer() as producer:
        for value in values:
            await scene.send(producer, value)
    harmed = {kind: scene.proxy.counts[PRODUCE, kind] for kind in harms}
    assert all(harmed.values())
    stored = sum(scene.proxy.counts[PRODUCE, kind] for kind in Kind if kind is not Kind.CUT_REQUEST)
    found = await scene.values(stored)
    assert set(found) == set(values)
    assert stored == 50 + sum(harmed.values()) - harmed[Kind.CUT_REQUEST]
