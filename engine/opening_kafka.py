"""Opening a store whose log is on Kafka: brokers and topics, the master key, the keys, this machine's copy, partitions.

What this machine keeps – projections and a copy of the log – is made again from the topics where it is missing. What
the store is, its ID and the key of its cursors, stands in the keys topic, for all who open it.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from engine.assembly import StoreSettings, assemble, projections_in
from engine.data_folder import DataFolder, OpeningError
from engine.environment import Environment
from engine.kafka.client import KafkaClient
from engine.kafka.settings import KafkaSettings
from engine.kafka.topics import Topics, open_topics
from engine.keys import MasterKey, MasterKeyError, load_or_create_master_key
from engine.keys.kafka import KafkaKeyStore
from engine.logs.kafka import KafkaLog
from engine.logs.local_copy import LocalCopy
from engine.logs.lost import LostRecords
from engine.migration.marks import MARK_NAME, STORE_ID_NAME, why_not_to_be_opened
from engine.store import Store

store_id_bytes: Final = 16
answer_seconds_max: Final = 4.5
"""How long anybody waits for an answer, whatever brokers do; then what became of the command stays open."""


async def open_on_kafka(settings: StoreSettings, environment: Environment) -> Store:
    """Open or make a store over topics. Raises what `engine.opening.open_store` does."""
    kafka = settings.kafka
    if kafka is None:
        raise OpeningError("a log on Kafka needs to be told where the brokers are")
    opened = AsyncExitStack()
    try:
        return await _open(settings, kafka, environment, opened)
    except BaseException:
        await opened.aclose()
        raise


async def _open(
    settings: StoreSettings, kafka: KafkaSettings, environment: Environment, opened: AsyncExitStack
) -> Store:
    """Open the store; `opened` is told how to release what has been opened by then."""
    folder = DataFolder(
        settings.data_dir,
        settings.partitions,
        create=settings.create,
        key_file=settings.master_key_file,
        log="kafka",
        topics=kafka.topic_prefix,
    )
    opened.callback(folder.release)
    client = KafkaClient(kafka)
    opened.push_async_callback(client.close)
    topics = await open_topics(
        client, kafka, folder.partitions or settings.partitions, create=settings.create and not folder.complete
    )
    master_path = settings.master_key_file or settings.data_dir / "master.key"
    master = _master_key(master_path, kafka, topics)
    try:
        keys = await KafkaKeyStore.open(kafka, master, environment, segment_ms=topics.keys_segment_ms)
    except MasterKeyError as error:
        raise MasterKeyError(f"the master key {master_path} is the wrong one, or damaged: {error}") from error
    opened.push_async_callback(keys.close)
    if why := why_not_to_be_opened(keys.get_value(MARK_NAME), keys.get_value(STORE_ID_NAME)):
        raise OpeningError(f"the topics {kafka.log_topic} and {kafka.keys_topic} cannot be opened: {why}")
    store_id = await keys.agree_on_value(STORE_ID_NAME, lambda: environment.random_bytes(store_id_bytes))
    folder.describe(topics.partitions, store_id.hex())
    lost = LostRecords(settings.data_dir / "lost")
    copy = await asyncio.to_thread(LocalCopy, settings.data_dir / "copy", topics.partitions)
    the_log = KafkaLog(client, kafka.log_topic, topics.partitions, copy, lost, environment)
    opened.push_async_callback(the_log.close)
    folder.finish()
    return await assemble(
        the_log,
        keys,
        projections_in(settings.data_dir),
        environment,
        settings.queue,
        log_kind=settings.log,
        store_id=store_id.hex(),
        created=topics.made or topics.keys_end == 0,  # Others may have made the topics beforehand.
        release=opened.aclose,
        strict_reads=kafka.strict_reads,
        answer_seconds_max=answer_seconds_max,
    )


def _master_key(path: Path, kafka: KafkaSettings, topics: Topics) -> MasterKey:
    in_use = topics.keys_end > 0
    if in_use and not path.exists():
        raise MasterKeyError(
            f"the master key file {path} is missing, and topic {kafka.keys_topic} has data keys wrapped under it; "
            "put the one there that the store was made with, or name it with --master-key-file"
        )
    return load_or_create_master_key(path, create=not in_use)
