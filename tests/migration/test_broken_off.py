"""A move that is killed at any step: until it is done one of the two places serves, never both; the command goes on."""

from __future__ import annotations

import json
import signal
from collections.abc import Awaitable, Callable

import pytest

from engine.data_folder import OpeningError
from engine.kafka.client import KafkaClient
from engine.kafka.settings import KafkaSettings
from engine.migration.repeating import answer_seconds_max
from tests.contract.builders import Run, create_session, end_session, purge_session
from tests.faults.stories import PARTITIONS
from tests.migration.conftest import Told
from tests.migration.stores import DATA, Opened, migrate, opened
from tests.migration.topics import copy_master_key

TO_KAFKA = {
    "migration.topics_made": "embedded",
    "migration.marked": "embedded",
    "migration.claimed": "embedded",
    "migration.piece_written:1": "embedded",
    "migration.piece_written:3": "embedded",
    "migration.partition_copied:1": "embedded",
    f"migration.partition_copied:{PARTITIONS}": "embedded",
    "migration.keys_deleted": "embedded",
    "migration.keys_written": "embedded",
    "migration.before_switch": "embedded",
    "migration.switched": "",
    "migration.log_set_aside": "",
    "migration.keys_destroyed": "",
    "migration.given_over": "kafka",
}
"""Where the command is killed, and which store can be opened then."""

TO_EMBEDDED = {
    "log.before_write": "kafka",
    "log.after_write": "kafka",
    "log.after_fsync:2": "kafka",
    "migration.partition_copied:2": "kafka",
    "migration.partition_shut:1": "kafka",
    f"migration.partition_shut:{PARTITIONS}": "kafka",
    "migration.marked": "",
    "migration.keys_written": "",
    "migration.log_in_place": "",
    "migration.before_switch": "",
    "migration.switched": "embedded",
    "migration.keys_deleted": "embedded",
}


def log_of(told: Told) -> str:
    """What the folder says that its log is."""
    described = json.loads((told.folder / DATA / "store.json").read_text())
    return str(described.get("log", "embedded"))


async def check_serves(serving: str, told: Told, topics: KafkaSettings) -> None:
    """The folder opens with the log that it should serve from, and with no other; no other folder opens the topics."""
    for kind, kafka in (("embedded", None), ("kafka", topics)):
        if kind == serving:
            async with opened(told.folder, kafka) as store:
                assert store.rebuilt() == []
                assert await store.picture(told.commands) == told.picture
        else:
            with pytest.raises(OpeningError):
                async with opened(told.folder, kafka):
                    pass
    if serving != "kafka":
        other = copy_master_key(told.folder)
        with pytest.raises(OpeningError):
            async with opened(other, topics, create=True):
                pass


async def check_arrived(store: Opened, told: Told) -> None:
    assert store.rebuilt() == []
    assert await store.digests() == told.digests
    assert await store.picture(told.commands) == told.picture
    assert await store.outcomes(told.commands) == told.repeated


@pytest.mark.parametrize("failpoint", TO_KAFKA)
async def test_to_kafka(failpoint: str, told: Told, topics: KafkaSettings) -> None:
    broken = migrate(told.folder, "kafka", topics, failpoint=failpoint)
    assert broken.status == -signal.SIGKILL, broken.err
    if failpoint != "migration.topics_made":
        await check_serves(TO_KAFKA[failpoint], told, topics)
    done = migrate(told.folder, "kafka", topics, "--json")
    assert done.status == 0, done.err
    assert json.loads(done.out)["moved"] == (failpoint != "migration.given_over")
    assert log_of(told) == "kafka"
    assert not (told.folder / DATA / "log").exists()
    assert not (told.folder / DATA / "keys").exists()
    async with opened(told.folder, topics) as store:
        await check_arrived(store, told)


@pytest.mark.parametrize("failpoint", TO_EMBEDDED)
async def test_to_embedded(failpoint: str, told: Told, topics: KafkaSettings) -> None:
    assert migrate(told.folder, "kafka", topics).status == 0
    broken = migrate(told.folder, "embedded", topics, failpoint=failpoint)
    assert broken.status == -signal.SIGKILL, broken.err
    await check_serves(TO_EMBEDDED[failpoint], told, topics)
    done = migrate(told.folder, "embedded", topics)
    assert done.status == 0, done.err
    assert log_of(told) == "embedded"
    async with opened(told.folder) as store:
        await check_arrived(store, told)
    assert migrate(told.folder, "embedded", topics).out.startswith("nothing to do")


@pytest.mark.parametrize("failpoint", ["migration.partition_copied:2", "migration.keys_written"])
async def test_a_store_that_went_on_in_its_folder_meanwhile_is_moved_as_it_is_then(
    failpoint: str, told: Told, topics: KafkaSettings
) -> None:
    run = Run("meanwhile", "meanwhile")
    gone = Run("gone", "gone")
    async with opened(told.folder) as store:
        await store.tell([create_session("gone"), gone.start(), gone.end(), end_session("gone")])
    assert migrate(told.folder, "kafka", topics, failpoint=failpoint).status == -signal.SIGKILL
    commands = [*told.commands, create_session("meanwhile"), run.start(), run.append(), purge_session("gone")]
    async with opened(told.folder) as store:
        await store.tell(commands[-4:])
        picture, digests = await store.picture(commands), await store.digests()
    assert migrate(told.folder, "kafka", topics).status == 0
    async with opened(told.folder, topics) as store:
        assert await store.digests() == digests
        assert await store.picture(commands) == picture
        assert store.store._keys.keys_of("session:meanwhile")
        assert not store.store._keys.keys_of("session:gone")


async def test_a_copy_that_is_broken_off_again_and_again_arrives(told: Told, topics: KafkaSettings) -> None:
    for _ in range(PARTITIONS):
        broken = migrate(told.folder, "kafka", topics, failpoint="migration.piece_written:1")
        assert broken.status == -signal.SIGKILL
    assert migrate(told.folder, "kafka", topics).status == 0
    async with opened(told.folder, topics) as store:
        await check_arrived(store, told)


@pytest.mark.parametrize("failpoint", ["migration.marked", "migration.log_in_place", "migration.before_switch"])
async def test_a_move_into_the_folder_can_be_taken_back(failpoint: str, told: Told, topics: KafkaSettings) -> None:
    assert migrate(told.folder, "kafka", topics).status == 0
    assert migrate(told.folder, "embedded", topics, failpoint=failpoint).status == -signal.SIGKILL
    done = migrate(told.folder, "kafka", topics)
    assert done.status == 0, done.err
    left = [path.name for path in (told.folder / DATA).iterdir() if ".migrated-" not in path.name]
    assert sorted(left) == ["LOCK", "master.key", "projections", "store.json"]
    async with opened(told.folder, topics) as store:
        await check_arrived(store, told)


Damage = Callable[[KafkaClient, str], Awaitable[object]]


async def double(client: KafkaClient, topic: str) -> None:
    """Store the last batch once more, as a retry of a client does whose answer was lost."""
    found = await client.fetch(topic, 0, 0, answer_seconds_max)
    await client.produce(topic, 0, [(each.key, each.value) for each in found.records], 1, answer_seconds_max)


async def scribble(client: KafkaClient, topic: str) -> None:
    """Write what is nobody's record."""
    await client.produce(topic, 0, [(b"key", b"value")], 1, answer_seconds_max)


async def harm(topics: KafkaSettings, damage: Damage) -> None:
    client = KafkaClient(topics)
    try:
        await damage(client, topics.log_topic)
    finally:
        await client.close()


async def test_a_copy_with_a_doubled_batch_starts_again(told: Told, topics: KafkaSettings) -> None:
    assert migrate(told.folder, "kafka", topics, failpoint="migration.partition_copied:2").status == -signal.SIGKILL
    await harm(topics, double)
    done = migrate(told.folder, "kafka", topics, "--json")
    assert done.status == 0, done.err
    answer = json.loads(done.out)
    assert answer["started_again"] == 1
    assert answer["records_written"] == answer["records"]
    async with opened(told.folder, topics) as store:
        await check_arrived(store, told)


async def test_a_topic_is_not_deleted_where_somebody_else_has_written(told: Told, topics: KafkaSettings) -> None:
    assert migrate(told.folder, "kafka", topics, failpoint="migration.partition_copied:2").status == -signal.SIGKILL
    await harm(topics, scribble)
    done = migrate(told.folder, "kafka", topics)
    assert done.status == 2
    assert "somebody else has written" in done.err
    assert "partition 0" in done.err
    await check_serves("embedded", told, topics)


async def test_a_topic_that_was_deleted_and_not_made_again_is_filled_from_the_start(
    told: Told, topics: KafkaSettings
) -> None:
    assert migrate(told.folder, "kafka", topics, failpoint="migration.partition_copied:2").status == -signal.SIGKILL
    await harm(topics, double)
    broken = migrate(told.folder, "kafka", topics, failpoint="migration.topic_deleted")
    assert broken.status == -signal.SIGKILL, broken.err
    assert migrate(told.folder, "kafka", topics).status == 0
    async with opened(told.folder, topics) as store:
        await check_arrived(store, told)
