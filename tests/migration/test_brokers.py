"""A move while the brokers are harmed, through a line that doubles, and over TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from engine.environment import SystemEnvironment
from engine.kafka.client import Fetched, KafkaClient
from engine.kafka.settings import KafkaSecurity, KafkaSettings
from engine.kafka.topics import open_topics
from engine.migration import to_embedded, to_kafka
from engine.migration.errors import MigrationRefused, MigrationStopped
from engine.migration.to_embedded import move_to_embedded
from engine.migration.to_kafka import move_to_kafka
from schemas.limits import payload_bytes_max
from tests.contract.builders import Run, create_session
from tests.faults.stories import PARTITIONS
from tests.kafka.brokers import Brokers, kafka
from tests.migration.conftest import Told
from tests.migration.stores import DATA, At, Opened, migrate, new_topics, opened


async def check_arrived(store: Opened, told: Told) -> None:
    assert store.rebuilt() == []
    assert await store.digests() == told.digests
    assert await store.picture(told.commands) == told.picture


def nothing(_what: str, _share: float) -> None:
    """Tell nobody."""


@pytest.mark.parametrize(
    ("there", "back"),
    [
        ("migration.claimed", "migration.partition_copied"),
        ("migration.piece_written", "migration.partition_shut"),
        ("migration.keys_deleted", "migration.marked"),
        ("migration.keys_destroyed", "migration.switched"),
    ],
)
async def test_a_broker_that_is_killed_and_comes_back(there: str, back: str, told: Told, tmp_path: Path) -> None:
    async with Brokers(tmp_path / "kafka") as brokers:
        topics = new_topics(brokers.bootstrap)
        starting: list[asyncio.Task[None]] = []

        def kill() -> None:
            kafka(brokers.folder, "kill")
            starting.append(asyncio.create_task(brokers.start()))

        world = At(there, kill)
        moved = await move_to_kafka(told.folder / DATA, None, topics, world, nothing)
        assert (world.happened, moved.moved, moved.started_again) == (1, True, 0)
        await starting.pop()
        async with opened(told.folder, topics) as store:
            await check_arrived(store, told)
        world = At(back, kill)
        assert (await move_to_embedded(told.folder / DATA, None, topics, world, nothing)).moved
        assert world.happened == 1
        await starting.pop()
    async with opened(told.folder) as store:
        await check_arrived(store, told)


async def test_brokers_that_stay_away_stop_it_and_it_goes_on_when_they_are_back(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.migration.repeating.gone_seconds_max", 1.0)
    async with Brokers(tmp_path / "kafka") as brokers:
        topics = new_topics(brokers.bootstrap)
        world = At("migration.piece_written", lambda: kafka(brokers.folder, "kill"))
        with pytest.raises(MigrationStopped, match="has not answered") as stopped:
            await move_to_kafka(told.folder / DATA, None, topics, world, nothing)
        assert "repeat the command" in stopped.value.advice
        async with opened(told.folder) as store:
            await check_arrived(store, told)
        await brokers.start()
        assert (await move_to_kafka(told.folder / DATA, None, topics, SystemEnvironment(""), nothing)).moved
        async with opened(told.folder, topics) as store:
            await check_arrived(store, told)


class Doubling(KafkaClient):
    """A way to the brokers on which one batch of the log is handed over twice, as where a client retries by itself."""

    doubled = 0

    async def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes | None, bytes | None]],
        time_ms: int,
        seconds: float,
    ) -> int:
        """See `KafkaClient`."""
        offset = await super().produce(topic, partition, records, time_ms, seconds)
        if topic.endswith(".log") and not Doubling.doubled:
            Doubling.doubled += 1
            await super().produce(topic, partition, records, time_ms, seconds)
        return offset


@pytest.mark.parametrize("made_before", [False, True])
async def test_a_batch_that_arrives_twice(
    told: Told, topics: KafkaSettings, monkeypatch: pytest.MonkeyPatch, *, made_before: bool
) -> None:
    monkeypatch.setattr(Doubling, "doubled", 0)
    if made_before:
        await make_fit(topics)
    with monkeypatch.context() as patched:
        patched.setattr(to_kafka, "KafkaClient", Doubling)
        moving = move_to_kafka(told.folder / DATA, None, topics, SystemEnvironment(""), nothing)
        if made_before:
            with pytest.raises(MigrationRefused, match="the topic was there before"):
                await moving
        else:
            assert (await moving).started_again == 1
    assert Doubling.doubled == 1
    async with opened(told.folder, None if made_before else topics) as store:
        await check_arrived(store, told)


class Lagging(KafkaClient):
    """A way to leaders that have just been elected: at first they show less to read than their partitions hold."""

    lagged: ClassVar[set[tuple[str, int]]] = set()

    async def fetch(
        self, topic: str, partition: int, offset: int, seconds: float, *, wait_seconds: float = 0.0
    ) -> Fetched:
        """See `KafkaClient`."""
        fetched = await super().fetch(topic, partition, offset, seconds, wait_seconds=wait_seconds)
        begin, shown = (offset, offset) if offset else (0, fetched.end // 2)
        if (topic, partition) in Lagging.lagged:
            return fetched
        if offset >= shown:
            Lagging.lagged.add((topic, partition))
        return Fetched([each for each in fetched.records if begin <= each.offset < shown], 0, shown, max(offset, shown))


async def test_leaders_that_show_less_at_first_than_there_is(
    told: Told, topics: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The log ended for the move where it was shown to, and so did the keys; those in the topic were then deleted.
    assert (await move_to_kafka(told.folder / DATA, None, topics, SystemEnvironment(""), nothing)).moved
    monkeypatch.setattr(Lagging, "lagged", set())
    with monkeypatch.context() as patched:
        patched.setattr(to_embedded, "KafkaClient", Lagging)
        assert (await move_to_embedded(told.folder / DATA, None, topics, SystemEnvironment(""), nothing)).moved
    assert Lagging.lagged == {*((topics.log_topic, each) for each in range(PARTITIONS)), (topics.keys_topic, 0)}
    async with opened(told.folder) as store:
        await check_arrived(store, told)


async def make_fit(topics: KafkaSettings) -> None:
    """Make both topics as they must be, by somebody else's hand."""
    client = KafkaClient(topics)
    await open_topics(client, topics, PARTITIONS, create=True)
    await client.close()


async def test_over_tls(told: Told, tmp_path: Path) -> None:
    async with Brokers(tmp_path / "kafka", security="tls") as brokers:
        ca_file = Path((await brokers.status())["ca_file"])
        topics = KafkaSettings(brokers.bootstrap, "tls", KafkaSecurity("SSL", ca_file=ca_file))
        flags = ["--kafka-security-protocol", "SSL", "--kafka-security-ca-file", str(ca_file)]
        done = migrate(told.folder, "kafka", topics, *flags)
        assert done.status == 0, done.err
        async with opened(told.folder, topics) as store:
            await check_arrived(store, told)
        assert migrate(told.folder, "embedded", topics, *flags).status == 0
    async with opened(told.folder) as store:
        await check_arrived(store, told)


async def test_payloads_as_large_as_they_may_be(told: Told, topics: KafkaSettings) -> None:
    run = Run("large", "large")
    payload = '"' + "x" * (payload_bytes_max - 2) + '"'
    large = [run.append(f"note/{number}", payload) for number in range(4)]
    commands = [create_session("large"), run.start(), *large]
    async with opened(told.folder) as store:
        await store.tell(commands)
        picture, digests = await store.picture(commands), await store.digests()
    for to, there in (("kafka", topics), ("embedded", None)):
        done = migrate(told.folder, to, topics)
        assert done.status == 0, done.err
        async with opened(told.folder, there) as store:
            assert await store.digests() == digests
            assert await store.picture(commands) == picture
