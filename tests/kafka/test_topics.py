"""The topics of a store: made as they must be, or refused by the name of the setting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from engine.data_folder import OpeningError
from engine.environment import SystemEnvironment
from engine.kafka.client import KafkaClient
from engine.kafka.settings import KafkaSettings
from engine.kafka.topics import TopicUnfit, open_topics
from engine.keys.topic import topic_settings
from engine.opening import StoreSettings, open_store
from tests.kafka.topics import Operator, operating, own_topics


@pytest.fixture
def kafka(bootstrap_servers: str) -> KafkaSettings:
    return own_topics(bootstrap_servers)


@pytest_asyncio.fixture
async def operator(kafka: KafkaSettings) -> AsyncIterator[Operator]:
    async with operating(kafka) as found:
        yield found


@pytest_asyncio.fixture
async def client(kafka: KafkaSettings) -> AsyncIterator[KafkaClient]:
    client = KafkaClient(kafka)
    yield client
    await client.close()


async def test_what_is_made_passes_its_own_check(client: KafkaClient, kafka: KafkaSettings) -> None:
    made = await open_topics(client, kafka, 3, create=True)
    assert (made.partitions, made.made, made.keys_end) == (3, True, 0)
    again = await open_topics(client, kafka, None, create=False)
    assert (again.partitions, again.made) == (3, False)


async def test_two_stores_make_them_at_once(kafka: KafkaSettings) -> None:
    clients = [KafkaClient(kafka) for _ in range(4)]
    made = await asyncio.gather(*(open_topics(client, kafka, 2, create=True) for client in clients))
    assert [each.partitions for each in made] == [2] * 4
    assert sum(each.made for each in made) == 1
    await asyncio.gather(*(client.close() for client in clients))


async def test_nothing_is_made_unless_asked_for(client: KafkaClient, kafka: KafkaSettings) -> None:
    with pytest.raises(OpeningError, match=f"no topic {kafka.log_topic}"):
        await open_topics(client, kafka, 2, create=False)
    # Whoever only looks, as every client does, leaves nothing behind either.
    with pytest.raises(OpeningError, match=f"no topic {kafka.log_topic}"):
        await open_topics(client, kafka, 2, create=False)


async def test_another_number_of_partitions_is_refused(client: KafkaClient, kafka: KafkaSettings) -> None:
    await open_topics(client, kafka, 2, create=True)
    with pytest.raises(TopicUnfit) as unfit:
        await open_topics(client, kafka, 3, create=True)
    assert unfit.value.setting == "the number of partitions"
    assert "leave out --partitions" in str(unfit.value)


async def test_settings_that_no_topic_could_meet_make_none(client: KafkaClient, kafka: KafkaSettings) -> None:
    asked = replace(kafka, replication_factor=1, min_insync_replicas=2)
    with pytest.raises(OpeningError, match=r"lower kafka\.min_insync_replicas"):
        await open_topics(client, asked, 2, create=True)
    with pytest.raises(OpeningError, match=f"no topic {kafka.log_topic}"):
        await open_topics(client, kafka, 2, create=False)


async def test_a_store_on_topics_that_others_made_is_new_the_first_time(
    client: KafkaClient, kafka: KafkaSettings, tmp_path: Path
) -> None:
    await open_topics(client, kafka, 2, create=True)
    for created in (True, False):
        store = await open_store(StoreSettings(tmp_path / "store", log="kafka", kafka=kafka), SystemEnvironment(""))
        assert store.identity.created == created
        await store.close()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "604800000"),
        ("retention.bytes", "1073741824"),
        ("max.message.bytes", "1048588"),
        ("unclean.leader.election.enable", "true"),
        ("min.insync.replicas", "2"),
        ("compression.type", "zstd"),
    ],
)
async def test_a_log_that_could_lose_or_refuse_is_refused(
    operator: Operator, client: KafkaClient, kafka: KafkaSettings, setting: str, value: str
) -> None:
    await operator.make(kafka.log_topic, 2, {setting: value})
    with pytest.raises(TopicUnfit) as unfit:
        await open_topics(client, kafka, 2, create=True)
    assert (unfit.value.topic, unfit.value.setting, unfit.value.value) == (kafka.log_topic, setting, value)
    assert setting in str(unfit.value)
    assert value in str(unfit.value)


async def test_what_a_broker_applies_by_default_counts(
    operator: Operator, client: KafkaClient, kafka: KafkaSettings
) -> None:
    """A topic with no settings of its own has the broker's: it keeps a week, and takes batches of 1 MiB."""
    await operator.make_plain(kafka.log_topic, 2)
    with pytest.raises(TopicUnfit) as unfit:
        await open_topics(client, kafka, 2, create=True)
    assert (unfit.value.setting, unfit.value.value) == ("retention.ms", "604800000")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("cleanup.policy", "delete"),
        ("cleanup.policy", "compact,delete"),
        ("max.compaction.lag.ms", str(2**63 - 1)),
        ("segment.ms", str(30 * 24 * 3600 * 1000)),
        ("message.timestamp.type", "CreateTime"),
        ("unclean.leader.election.enable", "true"),
        ("min.insync.replicas", "2"),
    ],
)
async def test_keys_that_could_be_lost_or_never_go_are_refused(
    operator: Operator, client: KafkaClient, kafka: KafkaSettings, setting: str, value: str
) -> None:
    await operator.make_plain(kafka.keys_topic, 1, {**topic_settings, setting: value})
    with pytest.raises(TopicUnfit) as unfit:
        await open_topics(client, kafka, 2, create=True)
    assert (unfit.value.topic, unfit.value.setting, unfit.value.value) == (kafka.keys_topic, setting, value)


async def test_a_log_that_lost_its_beginning_is_refused(
    operator: Operator, client: KafkaClient, kafka: KafkaSettings
) -> None:
    await open_topics(client, kafka, 2, create=True)
    await operator.write(kafka.log_topic, 1, [(None, b"%d" % number) for number in range(5)])
    await operator.delete_records(kafka.log_topic, 1, 2)
    with pytest.raises(TopicUnfit) as unfit:
        await open_topics(client, kafka, 2, create=True)
    assert (unfit.value.setting, unfit.value.value) == ("the first offset of partition 1", "2")


async def test_fewer_replicas_than_asked_for_are_refused(client: KafkaClient, kafka: KafkaSettings) -> None:
    await open_topics(client, kafka, 2, create=True)
    with pytest.raises(TopicUnfit) as unfit:
        await open_topics(client, replace(kafka, replication_factor=3), 2, create=True)
    assert (unfit.value.setting, unfit.value.value) == ("the number of replicas", "1")


async def test_more_replicas_than_brokers_cannot_be_made(client: KafkaClient, kafka: KafkaSettings) -> None:
    with pytest.raises(OpeningError, match="cannot be made"):
        await open_topics(client, replace(kafka, replication_factor=3), 2, create=True)


async def test_a_lost_log_beside_its_keys_is_not_made_anew(
    operator: Operator, client: KafkaClient, kafka: KafkaSettings
) -> None:
    await open_topics(client, kafka, 2, create=True)
    await operator.write(kafka.keys_topic, 0, [(b"key", b"value")])
    await operator.delete(kafka.log_topic)
    with pytest.raises(OpeningError, match=f"{kafka.log_topic} is missing"):
        await open_topics(client, kafka, 2, create=True)


async def test_lost_keys_beside_their_log_are_not_made_anew(
    operator: Operator, client: KafkaClient, kafka: KafkaSettings
) -> None:
    await open_topics(client, kafka, 2, create=True)
    await operator.write(kafka.log_topic, 1, [(b"key", b"value")])
    await operator.delete(kafka.keys_topic)
    with pytest.raises(OpeningError, match=f"{kafka.keys_topic} is missing"):
        await open_topics(client, kafka, 2, create=True)


async def test_no_broker_there(kafka: KafkaSettings) -> None:
    nobody = replace(kafka, bootstrap_servers="127.0.0.1:1")
    client = KafkaClient(nobody)
    with pytest.raises(OpeningError, match=r"127\.0\.0\.1:1"):
        await open_topics(client, nobody, 2, create=True)
    await client.close()


@pytest.mark.parametrize("address", ["", "localhost", "localhost:", "localhost:x", "localhost:70000", "a:1,,b:2"])
async def test_what_is_no_address(kafka: KafkaSettings, address: str) -> None:
    wrong = replace(kafka, bootstrap_servers=address)
    client = KafkaClient(wrong)
    with pytest.raises(OpeningError, match="HOST:PORT"):
        await open_topics(client, wrong, 2, create=True)
    await client.close()
