"""A store on Kafka moved into its data folder.

A new log and new keys are made beside what is there, and read back. The topics are shut behind what was copied, and
marked as left. Then the parts get their names, and one write of `store.json` says that the log is embedded. Before it
nothing is lost by beginning again; after it, what is left is to delete the keys in the topics.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from engine.data_folder import DataFolder
from engine.environment import Environment
from engine.kafka.client import KafkaClient
from engine.kafka.settings import KafkaSettings
from engine.kafka.topics import open_topics
from engine.keys.master import MasterKey
from engine.logs.embedded import EmbeddedLog
from engine.migration.copying_all import CopiedAll, check_all, copy_all
from engine.migration.departure import Departure
from engine.migration.embedded_target import EmbeddedTarget
from engine.migration.errors import CopyWentWrong
from engine.migration.folders import (
    COPY,
    KEYS,
    LOG,
    being_made,
    destroy,
    drop_ticket,
    locked,
    master_key,
    put_in_place,
    take_back,
    take_ticket,
    ticket,
)
from engine.migration.keyring import Keyring
from engine.migration.keys_folder import read_folder, write_folder
from engine.migration.moved import Moved, moved_now
from engine.migration.telling import Tell


async def move_to_embedded(
    data_dir: Path, master_key_file: Path | None, settings: KafkaSettings, environment: Environment, tell: Tell
) -> Moved:
    """Move the store in the topics into the folder that it was served from, which becomes an embedded store's.

    Raises `MigrationError`, `OpeningError`, `KeysError`, `LogError` or `HistoryBroken`.
    """
    with locked(data_dir, master_key_file, settings.topic_prefix) as folder:
        master = master_key(data_dir, master_key_file)
        client = KafkaClient(settings)
        try:
            if folder.log == "embedded" and not ticket(folder.path):
                return Moved(moved=False, partitions=folder.partitions)
            await open_topics(client, settings, folder.partitions, create=False)
            departure = Departure(settings, client, master, folder.store_id, folder.partitions, environment)
            if folder.log == "embedded":
                deleted = await _tidy(folder, departure, environment)
                return Moved(moved=True, partitions=folder.partitions, keys=deleted)
            return await _move(folder, master, departure, environment, tell)
        finally:
            await client.close()


async def _move(
    folder: DataFolder, master: MasterKey, departure: Departure, environment: Environment, tell: Tell
) -> Moved:
    await departure.check(ticket(folder.path))
    take_back(folder.path, LOG)
    take_back(folder.path, KEYS)
    ends = await departure.ends()
    copied, check_seconds = await _copy(folder, departure, ends, environment, tell)
    await departure.shut(ends)
    tell("keys", 1.0)
    await departure.leave(ends, take_ticket(folder.path, environment))
    keyring = await departure.keyring()
    await asyncio.to_thread(_make_keys, folder, master, keyring)
    environment.failpoint("migration.keys_written")
    put_in_place(folder.path, LOG)
    environment.failpoint("migration.log_in_place")
    put_in_place(folder.path, KEYS)
    environment.failpoint("migration.before_switch")
    folder.move_log("embedded", "")
    environment.failpoint("migration.switched")
    await _tidy(folder, departure, environment)
    return moved_now(copied, check_seconds, records_checked=copied.records, keys=len(keyring.keys), started_again=0)


async def _tidy(folder: DataFolder, departure: Departure, environment: Environment) -> int:
    """Delete the keys in the topics, and what the folder needed while it was a Kafka store's; how many keys."""
    deleted = await departure.delete_keys(ticket(folder.path))
    environment.failpoint("migration.keys_deleted")
    destroy(folder.path, COPY)
    drop_ticket(folder.path)
    return deleted


async def _copy(
    folder: DataFolder, departure: Departure, ends: list[int], environment: Environment, tell: Tell
) -> tuple[CopiedAll, float]:
    """Make the new log beside the folder's parts. One that is there was broken off, and goes on."""
    path = being_made(folder.path, LOG)
    try:
        return await _copy_into(path, folder, departure, ends, environment, tell)
    except CopyWentWrong:
        # What was there is no copy of this log as it is now, as after the topic lost records.
        destroy(folder.path, path.name)
        return await _copy_into(path, folder, departure, ends, environment, tell)


async def _copy_into(
    path: Path, folder: DataFolder, departure: Departure, ends: list[int], environment: Environment, tell: Tell
) -> tuple[CopiedAll, float]:
    log = await asyncio.to_thread(EmbeddedLog, path, folder.partitions, environment)
    try:
        target = EmbeddedTarget(log)
        copied = await copy_all(departure.source, target, ends, environment, tell, voids_legal=True)
        return copied, await check_all(target, copied, environment, tell)
    finally:
        await log.close()


def _make_keys(folder: DataFolder, master: MasterKey, keyring: Keyring) -> None:
    """Make the new folder of keys from the start, and read it back."""
    path = being_made(folder.path, KEYS)
    destroy(folder.path, path.name)
    write_folder(path, master, keyring)
    if read_folder(path, master) != keyring:
        raise CopyWentWrong(0, 0, f"what was read back of the keys in {path} is not what was written")
