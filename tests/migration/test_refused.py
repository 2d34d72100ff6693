"""What is not moved: a store in use, and into topics that hold anything else. The source is as it was afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from engine.data_folder import OpeningError
from engine.environment import SystemEnvironment
from engine.kafka.client import KafkaClient
from engine.kafka.settings import KafkaSettings
from engine.migration.errors import SourceInUse
from engine.migration.repeating import answer_seconds_max
from engine.migration.to_embedded import move_to_embedded
from tests.cli.processes import serving
from tests.contract.builders import Run, create_session
from tests.migration.conftest import Told
from tests.migration.stores import DATA, At, Opened, migrate, opened
from tests.migration.topics import copy_master_key, make_topic

ENVIRONMENT = SystemEnvironment("")


async def check_untouched(told: Told) -> None:
    """The folder serves from its embedded log as before."""
    async with opened(told.folder) as store:
        assert store.rebuilt() == []
        assert await store.digests() == told.digests


async def test_a_store_that_is_served(told: Told, topics: KafkaSettings) -> None:
    with serving(told.folder) as service:
        done = migrate(told.folder, "kafka", topics)
        assert (done.status, "open" in done.err, "stop it first" in done.err) == (1, True, True)
        service.stop(signal.SIGTERM)
    assert migrate(told.folder, "kafka", topics).status == 0


async def test_a_store_that_is_served_from_kafka(told: Told, topics: KafkaSettings) -> None:
    assert migrate(told.folder, "kafka", topics).status == 0
    async with opened(told.folder, topics):
        done = migrate(told.folder, "embedded", topics)
    assert (done.status, "stop it first" in done.err) == (1, True)


async def test_no_store_at_all(told: Told, topics: KafkaSettings) -> None:
    done = migrate(told.folder, "kafka", topics, "--data-dir", "nowhere")
    assert (done.status, "there is no store" in done.err) == (2, True)
    assert not (told.folder / "nowhere").exists()


async def test_topics_of_another_store(told: Told, topics: KafkaSettings) -> None:
    other = copy_master_key(told.folder)
    async with opened(other, topics, create=True) as store:
        await store.tell([create_session("s")])
        digests = await store.digests()
    done = migrate(told.folder, "kafka", topics)
    assert (done.status, f"{topics.keys_topic} is not empty" in done.err) == (2, True)
    await check_untouched(told)
    async with opened(other, topics) as store:
        assert await store.digests() == digests


async def test_topics_that_were_left(told: Told, topics: KafkaSettings) -> None:
    assert migrate(told.folder, "kafka", topics).status == 0
    assert migrate(told.folder, "embedded", topics).status == 0
    other = copy_master_key(told.folder)
    with pytest.raises(OpeningError, match="what it left"):
        async with opened(other, topics, create=True):
            pass
    done = migrate(told.folder, "kafka", topics)
    assert (done.status, f"{topics.keys_topic} is not empty" in done.err) == (2, True)
    await check_untouched(told)


async def test_a_log_topic_in_which_something_is(told: Told, topics: KafkaSettings) -> None:
    other = copy_master_key(told.folder)
    async with opened(other, topics, create=True):
        pass
    client = KafkaClient(topics)
    await client.produce(topics.log_topic, 1, [(None, b"x")], 1, answer_seconds_max)
    await client.close()
    clean = KafkaSettings(topics.bootstrap_servers, topics.topic_prefix + "-other")
    assert migrate(told.folder, "kafka", clean, failpoint="migration.topics_made").status == -signal.SIGKILL
    client = KafkaClient(clean)
    await client.produce(clean.log_topic, 1, [(None, b"x")], 1, answer_seconds_max)
    await client.close()
    done = migrate(told.folder, "kafka", clean)
    assert (done.status, f"{clean.log_topic} is not empty: partition 1" in done.err) == (2, True)
    await check_untouched(told)


async def test_a_topic_that_could_lose_history(told: Told, topics: KafkaSettings) -> None:
    await make_topic(topics, topics.log_topic, 4)
    done = migrate(told.folder, "kafka", topics)
    assert (done.status, "retention.ms" in done.err) == (2, True)
    await check_untouched(told)


async def test_keys_under_another_master_key(told: Told, topics: KafkaSettings) -> None:
    other = copy_master_key(told.folder)
    (other / DATA / "master.key").unlink()
    async with opened(other, topics, create=True):
        pass
    done = migrate(told.folder, "kafka", topics)
    assert (done.status, "another master key" in done.err) == (2, True)
    await check_untouched(told)


async def test_brokers_that_are_not_there(told: Told) -> None:
    done = migrate(told.folder, "kafka", KafkaSettings("127.0.0.1:1", "x"))
    assert (done.status, "127.0.0.1:1" in done.err) == (1, True)
    await check_untouched(told)


async def test_the_topics_of_another_prefix(told: Told, topics: KafkaSettings) -> None:
    assert migrate(told.folder, "kafka", topics).status == 0
    for to in ("embedded", "kafka"):
        done = migrate(told.folder, to, KafkaSettings(topics.bootstrap_servers, "other"))
        assert (done.status, topics.topic_prefix in done.err) == (2, True)


@asynccontextmanager
async def another_store(told: Told, topics: KafkaSettings) -> AsyncIterator[Opened]:
    """The same store, open on another machine."""
    async with opened(copy_master_key(told.folder), topics, create=True) as store:
        yield store


async def test_a_store_that_another_writes_to(told: Told, topics: KafkaSettings) -> None:
    assert migrate(told.folder, "kafka", topics).status == 0
    async with another_store(told, topics) as other:
        run = Run("busy", "busy")
        await other.tell([create_session("busy"), run.start()])

        async def write() -> None:
            for number in itertools.count():
                await other.tell([run.append(f"note/{number}")])

        writing = asyncio.create_task(write())
        with pytest.raises(SourceInUse, match="another store writes"):
            await move_to_embedded(told.folder / DATA, None, topics, ENVIRONMENT, lambda *_: None)
        writing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await writing
        await other.tell([run.append("note/last")])
        digests = await other.digests()
    async with opened(told.folder, topics) as store:
        assert await store.digests() == digests
    assert migrate(told.folder, "embedded", topics).status == 0
    async with opened(told.folder) as store:
        assert store.rebuilt() == []
        assert await store.digests() == digests


@pytest.mark.parametrize("failpoint", ["migration.partition_copied", "migration.partition_shut", "migration.marked"])
async def test_a_record_that_another_writes_at_any_time(failpoint: str, told: Told, topics: KafkaSettings) -> None:
    """Before a partition is shut, after that, and before the last look: the store stays where it is."""
    assert migrate(told.folder, "kafka", topics).status == 0

    async def write() -> None:
        client = KafkaClient(topics)
        found = await client.fetch(topics.log_topic, 0, 0, answer_seconds_max)
        # A batch of another store that came too late to count.
        await client.produce(topics.log_topic, 0, [(None, found.records[0].value)], 1, answer_seconds_max)
        await client.close()

    def write_elsewhere() -> None:
        thread = threading.Thread(target=lambda: asyncio.run(write()))
        thread.start()
        thread.join()

    world = At(failpoint, write_elsewhere)
    with pytest.raises(SourceInUse, match="another store writes to partition 0"):
        await move_to_embedded(told.folder / DATA, None, topics, world, lambda *_: None)
    assert world.happened == 1
    # What is noticed before has never marked the topics, so nobody was kept out of them.
    assert ("migration.marked" in world.passed) == (failpoint != "migration.partition_copied")
    async with opened(told.folder, topics) as store:
        assert await store.digests() == told.digests


async def test_a_record_that_comes_after_the_topics_were_left(told: Told, topics: KafkaSettings) -> None:
    """The move was killed then, and is repeated: what came is moved with the rest."""
    assert migrate(told.folder, "kafka", topics).status == 0
    async with another_store(told, topics) as other:
        killed = migrate(told.folder, "embedded", topics, failpoint="migration.marked")
        assert killed.status == -signal.SIGKILL
        await other.tell([create_session("late")])
        digests = await other.digests()
    assert migrate(told.folder, "embedded", topics).status == 0
    async with opened(told.folder) as store:
        assert await store.digests() == digests


async def test_a_store_that_has_left_for_another_folder(told: Told, topics: KafkaSettings) -> None:
    assert migrate(told.folder, "kafka", topics).status == 0
    async with another_store(told, topics):
        pass
    assert migrate(told.folder, "embedded", topics).status == 0
    for to in ("embedded", "kafka"):
        done = migrate(told.folder / "other", to, topics)
        assert (done.status, "into another folder" in done.err) == (2, True)
    with pytest.raises(OpeningError, match="what it left"):
        async with opened(told.folder / "other", topics):
            pass
