"""The client of the brokers: what its calls come to, and that none outlasts its limit, whatever the brokers do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from engine.kafka.batches import decoded, encoded
from engine.kafka.client import KafkaClient, fetch_bytes_max
from engine.kafka.errors import NotAnswered, NotReached, NotSent, OutOfRange, Refused
from engine.kafka.settings import KafkaSettings
from tests.kafka.brokers import Brokers
from tests.kafka.proxy import FETCH, PRODUCE, Fate, Kind, Proxy, all_pass, in_order
from tests.kafka.topics import Operator, operating, own_topics

pytestmark = pytest.mark.asyncio(loop_scope="module")

PARTITIONS = 4
slack_seconds = 0.7
"""How much later than its limit a call may end on a machine that does other things too."""


@dataclass
class Scene:
    """A client, and the topic it uses."""

    client: KafkaClient
    settings: KafkaSettings

    @property
    def topic(self) -> str:
        return self.settings.log_topic

    async def produce(self, *values: bytes, partition: int = 0, seconds: float = 5.0) -> int:
        return await self.client.produce(self.topic, partition, [(b"key", value) for value in values], 7, seconds)

    async def values(self, partition: int = 0) -> list[bytes | None]:
        """All that the partition holds."""
        found: list[bytes | None] = []
        end, position = await self.client.end(self.topic, partition, 5.0), 0
        while position < end:
            fetched = await self.client.fetch(self.topic, partition, position, 5.0)
            found += [record.value for record in fetched.records]
            position = fetched.following
        return found


@asynccontextmanager
async def scene_on(bootstrap_servers: str) -> AsyncIterator[Scene]:
    settings = own_topics(bootstrap_servers)
    async with operating(settings) as operator:
        await operator.make(settings.log_topic, PARTITIONS)
    client = KafkaClient(settings)
    try:
        yield Scene(client, settings)
    finally:
        await client.close()


@pytest_asyncio.fixture(loop_scope="module")
async def scene(bootstrap_servers: str) -> AsyncIterator[Scene]:
    async with scene_on(bootstrap_servers) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxied(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Proxy]:
    """A proxy, and a broker behind it that sends its clients there."""
    folder = tmp_path_factory.mktemp("proxied") / "kafka"
    async with Proxy() as proxy, Brokers(folder, advertised={1: proxy.address}) as brokers:
        proxy.target = brokers.bootstrap
        yield proxy


@pytest.fixture
def proxy(proxied: Proxy) -> Iterator[Proxy]:
    """The same; afterwards it lets everything pass again."""
    yield proxied
    proxied.plan = all_pass


@asynccontextmanager
async def ends_within(seconds: float) -> AsyncIterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds + slack_seconds


# -- batches


async def test_a_batch_reads_back() -> None:
    records = [(b"key", b"value"), (None, b""), (b"gone", None), (b"\0", bytes(range(256)))]
    found, following = decoded(encoded(records, 1234), 0)
    assert [(each.key, each.value) for each in found] == records
    assert [(each.offset, each.time_ms) for each in found] == [(offset, 1234) for offset in range(4)]
    assert following == 4
    found, following = decoded(encoded(records, 1234), 2)
    assert ([each.offset for each in found], following) == ([2, 3], 4)


async def test_a_batch_that_was_cut_short_is_left_out() -> None:
    one, two = encoded([(None, b"one")], 1), encoded([(None, b"two")], 1)
    for length in range(len(one), len(one + two)):
        found, following = decoded((one + two)[:length], 0)
        assert ([each.value for each in found], following) == ([b"one"], 1)
    assert decoded(b"", 5) == ([], 5)
    assert decoded(None, 5) == ([], 5)


async def test_a_damaged_batch_is_told() -> None:
    data = bytearray(encoded([(None, b"value")], 1))
    data[-3] ^= 1
    with pytest.raises(Refused) as refused:
        decoded(bytes(data), 0)
    assert refused.value.code == "CorruptRecord"


# -- a broker that answers


async def test_batches_land_one_after_the_other_and_are_read_anywhere(scene: Scene) -> None:
    assert await scene.produce(b"a", b"b") == 0
    assert await scene.produce(b"c") == 2
    assert await scene.client.start(scene.topic, 0, 5.0) == 0
    assert await scene.client.end(scene.topic, 0, 5.0) == 3
    for offset, values in ((0, [b"a", b"b", b"c"]), (1, [b"b", b"c"]), (2, [b"c"]), (3, [])):
        fetched = await scene.client.fetch(scene.topic, 0, offset, 5.0)
        assert [record.value for record in fetched.records] == values
        assert [record.offset for record in fetched.records] == list(range(offset, 3))
        assert (fetched.start, fetched.end, fetched.following) == (0, 3, 3)
    assert (await scene.client.fetch(scene.topic, 0, 0, 5.0)).records[0].key == b"key"


async def test_a_read_beyond_the_end_or_before_the_start_is_out_of_range(scene: Scene) -> None:
    await scene.produce(b"a", b"b", b"c")
    with pytest.raises(OutOfRange):
        await scene.client.fetch(scene.topic, 0, 4, 5.0)
    await Operator(scene.settings, scene.client).delete_records(scene.topic, 0, 2)
    assert await scene.client.start(scene.topic, 0, 5.0) == 2
    with pytest.raises(OutOfRange):
        await scene.client.fetch(scene.topic, 0, 1, 5.0)


async def test_a_batch_larger_than_one_read_comes_whole(scene: Scene) -> None:
    large = bytes(3 * fetch_bytes_max)
    await scene.produce(b"before")
    await scene.produce(large, b"after")
    assert await scene.values() == [b"before", large, b"after"]


async def test_a_batch_that_the_topic_does_not_take_is_refused_for_good(scene: Scene) -> None:
    with pytest.raises(Refused) as refused:
        await scene.produce(bytes(21 * 1024 * 1024))
    assert refused.value.code == "MessageSizeTooLargeError"
    assert await scene.values() == []


async def test_a_topic_that_is_not_there_is_not_made(scene: Scene) -> None:
    for call in (
        scene.client.produce("nobody-made-this", 0, [(None, b"x")], 1, 3.0),
        scene.client.end("nobody-made-this", 0, 3.0),
        scene.client.produce(scene.settings.keys_topic, 0, [(None, b"x")], 1, 3.0),
    ):
        with pytest.raises(NotReached):
            await call
    client = KafkaClient(scene.settings)
    layout = await client.connect()
    assert set(layout.partitions) == {scene.topic}
    await client.close()


async def test_ends_asked_at_once_share_requests_and_are_never_older_than_the_question(scene: Scene) -> None:
    for partition in range(PARTITIONS):
        for count in range(partition):
            await scene.produce(b"%d" % count, partition=partition)
    asked = [partition for partition in range(PARTITIONS) for _ in range(50)]
    ends = await asyncio.gather(*(scene.client.shared_end(scene.topic, partition, 5.0) for partition in asked))
    assert ends == asked
    assert await scene.client.ends(scene.topic, range(PARTITIONS), 5.0) == {each: each for each in range(PARTITIONS)}

    async def writer() -> None:
        for _ in range(100):
            offset = await scene.produce(b"more")
            assert await scene.client.shared_end(scene.topic, 0, 5.0) > offset

    async def asker() -> None:
        for _ in range(200):
            await scene.client.shared_end(scene.topic, 1, 5.0)

    await asyncio.gather(writer(), asker(), asker())


async def test_many_at_once(scene: Scene) -> None:
    async def writer(partition: int) -> None:
        for number in range(50):
            assert await scene.produce(b"%d" % number, partition=partition) == number

    await asyncio.gather(*(writer(partition) for partition in range(PARTITIONS)))
    for partition in range(PARTITIONS):
        assert await scene.values(partition) == [b"%d" % number for number in range(50)]


async def test_a_closed_client_does_nothing(scene: Scene) -> None:
    await scene.produce(b"a")
    waiting = asyncio.create_task(scene.client.fetch(scene.topic, 0, 1, 5.0, wait_seconds=20.0))
    await asyncio.sleep(0.1)
    async with ends_within(0.5):
        await scene.client.close()
        await scene.client.close()
        with pytest.raises((NotSent, NotAnswered)):
            await waiting
        with pytest.raises(NotSent):
            await scene.produce(b"b")


async def test_whoever_waits_at_the_end_holds_up_nobody_and_is_told_at_once(scene: Scene) -> None:
    waiting = asyncio.create_task(scene.client.fetch(scene.topic, 0, 0, 5.0, wait_seconds=20.0))
    await asyncio.sleep(0.1)
    async with ends_within(1.0):
        await scene.client.end(scene.topic, 0, 5.0)
        await scene.client.fetch(scene.topic, 0, 0, 5.0)
        await scene.produce(b"news")
        assert [record.value for record in (await waiting).records] == [b"news"]


# -- a broker, or a network, that does not


async def test_an_answer_that_never_comes_leaves_it_open(proxy: Proxy) -> None:
    async with scene_on(proxy.address) as scene:
        await scene.produce(b"a")
        for kind in (Kind.DROP_AND_HANG, Kind.DROP_AND_CUT, Kind.CUT_ANSWER):
            proxy.plan = in_order([Fate(kind)])
            async with ends_within(1.0):
                with pytest.raises(NotAnswered):
                    await scene.produce(b"%s" % kind.value.encode(), seconds=1.0)
            proxy.plan = all_pass
            await scene.produce(b"next")
        dropped = [b"drop and hang", b"next", b"drop and cut", b"next", b"cut answer", b"next"]
        assert await scene.values() == [b"a", *dropped]


async def test_a_request_that_never_arrives_leaves_it_open(proxy: Proxy) -> None:
    async with scene_on(proxy.address) as scene:
        await scene.produce(b"a")
        proxy.plan = in_order([Fate(Kind.CUT_REQUEST)])
        with pytest.raises(NotAnswered):
            await scene.produce(b"cut", seconds=1.0)
        assert await scene.produce(b"b") == 1
        assert await scene.values() == [b"a", b"b"]


async def test_a_read_that_hangs_ends_with_its_limit_and_the_next_one_works(proxy: Proxy) -> None:
    async with scene_on(proxy.address) as scene:
        await scene.produce(b"a")
        proxy.plan = in_order([Fate(Kind.DROP_AND_HANG)], FETCH)
        async with ends_within(0.5):
            with pytest.raises(NotAnswered):
                await scene.client.fetch(scene.topic, 0, 0, 0.5)
        async with ends_within(0.5):
            assert len((await scene.client.fetch(scene.topic, 0, 0, 1.0)).records) == 1


async def test_one_hanging_partition_leaves_the_others_alone(proxy: Proxy) -> None:
    async with scene_on(proxy.address) as scene:
        for partition in range(PARTITIONS):
            await scene.produce(b"a", partition=partition)
        proxy.plan = in_order([Fate(answer_delay_seconds=1.0)])
        slow = asyncio.create_task(scene.produce(b"slow", seconds=5.0))
        passed = proxy.counts[PRODUCE, Kind.THROUGH]
        while proxy.counts[PRODUCE, Kind.THROUGH] == passed:  # noqa: ASYNC110 # nothing tells of it
            await asyncio.sleep(0)
        async with ends_within(0.2):
            await asyncio.gather(*(scene.produce(b"b", partition=each) for each in range(1, PARTITIONS)))
        assert not slow.done()
        assert await slow == 1


@pytest.mark.parametrize("gone", ["killed", "paused"])
async def test_a_broker_that_is_gone(tmp_path: Path, gone: str) -> None:
    """The first call ends with its limit, later ones at once; when the broker is back they work, within a second."""
    async with Brokers(tmp_path / "kafka") as brokers, scene_on(brokers.bootstrap) as scene:
        await scene.produce(b"a")
        await (brokers.kill() if gone == "killed" else brokers.pause())
        async with ends_within(1.5):
            with pytest.raises((NotAnswered, NotReached)):
                await scene.produce(b"lost", seconds=1.5)
        with pytest.raises((NotAnswered, NotReached)):
            await scene.client.end(scene.topic, 0, 1.5)
        began = time.monotonic()
        for _ in range(20):
            with pytest.raises(NotReached):
                await scene.produce(b"not tried", seconds=3.0)
            with pytest.raises(NotReached):
                await scene.client.fetch(scene.topic, 0, 0, 3.0)
            with pytest.raises(NotReached):
                await scene.client.shared_end(scene.topic, 0, 3.0)
        assert time.monotonic() - began < 1.0 + slack_seconds, "what is known not to answer is not waited for"
        await (brokers.start() if gone == "killed" else brokers.resume())
        began = time.monotonic()
        while True:
            try:
                await scene.client.end(scene.topic, 0, 1.0)
                break
            except (NotSent, NotAnswered):
                await asyncio.sleep(0.01)
        assert time.monotonic() - began < 1.0 + slack_seconds
        assert b"not tried" not in await scene.values()


async def test_a_broker_that_is_not_told_of_any_more_is_not_looked_for_for_ever(bootstrap_servers: str) -> None:
    # It went out of the layout while a connection to it was being tried, and was called silent after that.
    client = KafkaClient(own_topics(bootstrap_servers))
    await client.connect()
    brokers = client._brokers

    def looking() -> bool:
        return brokers._watching is not None

    async with asyncio.timeout(5):
        while looking():  # noqa: ASYNC110 # nothing tells of it
            await asyncio.sleep(0.02)
        brokers._silence(99, "gone")
        assert looking()
        while looking():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await client.close()
