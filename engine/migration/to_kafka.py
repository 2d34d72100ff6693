"""A store with an embedded log moved to Kafka.

The order is what makes it safe to break off anywhere: the topics are claimed, filled, given the keys, and all is read
back; then one write of `store.json` says that the log is on Kafka. Before it, the folder serves as ever and nobody can
open the topics; after it, what is left is to tidy. The same command goes on from wherever that was.

The log is set aside. The keys are not: whoever had them could undo every purge to come.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from engine.assembly import cursor_key_name
from engine.data_folder import DataFolder
from engine.environment import Environment
from engine.kafka.client import KafkaClient
from engine.kafka.settings import KafkaSettings
from engine.keys.master import MasterKey
from engine.logs.embedded import EmbeddedLog
from engine.migration.arrival import Arrival
from engine.migration.errors import MigrationRefused
from engine.migration.folders import (
    KEYS,
    LOG,
    being_made,
    destroy,
    drop_ticket,
    locked,
    master_key,
    set_aside,
    ticket,
)
from engine.migration.keys_folder import read_folder
from engine.migration.marks import Mark, Moving
from engine.migration.moved import Moved, moved_now
from engine.migration.telling import Tell

_AGREED_NAMES = frozenset({cursor_key_name})


async def move_to_kafka(
    data_dir: Path, master_key_file: Path | None, settings: KafkaSettings, environment: Environment, tell: Tell
) -> Moved:
    """Move the store in the folder to the topics of the settings; the folder becomes the Kafka store's.

    Raises `MigrationError`, `OpeningError`, `KeysError`, `LogError` or `HistoryBroken`.
    """
    with locked(data_dir, master_key_file, settings.topic_prefix) as folder:
        master = master_key(data_dir, master_key_file)
        client = KafkaClient(settings)
        try:
            arrival = Arrival(settings, client, master, folder.store_id, folder.partitions, environment)
            if folder.log == "kafka":
                return await _finish(folder, arrival, Moved(moved=False, partitions=folder.partitions), environment)
            return await _move(folder, master, settings, arrival, environment, tell)
        finally:
            await client.close()


async def _move(
    folder: DataFolder,
    master: MasterKey,
    settings: KafkaSettings,
    arrival: Arrival,
    environment: Environment,
    tell: Tell,
) -> Moved:
    folder.check_whole()
    keyring = await asyncio.to_thread(read_folder, folder.path / KEYS, master)
    log = await asyncio.to_thread(EmbeddedLog, folder.path / LOG, folder.partitions, environment)
    try:
        ends = [await log.end(partition) for partition in range(folder.partitions)]
        await arrival.claim()
        filled = await arrival.fill(log, ends, tell)
    finally:
        await log.close()
    tell("keys", 1.0)
    await arrival.bring_keys(keyring, _AGREED_NAMES)
    environment.failpoint("migration.before_switch")
    folder.move_log("kafka", settings.topic_prefix)
    environment.failpoint("migration.switched")
    moved = moved_now(
        filled.copied,
        filled.check_seconds,
        records_checked=sum(each.end for each in filled.copied.partitions),
        keys=len(keyring.keys),
        started_again=filled.started_again,
    )
    return await _finish(folder, arrival, moved, environment)


async def _finish(folder: DataFolder, arrival: Arrival, moved: Moved, environment: Environment) -> Moved:
    """Tidy up behind `store.json`. The keys in the folder go before anyone can purge in the topics."""
    mark = await arrival.mark()
    if mark is not None and mark.moving is Moving.LEFT:
        _stay(folder, mark)
    aside = set_aside(folder.path, LOG, environment)
    environment.failpoint("migration.log_set_aside")
    destroy(folder.path, KEYS)
    environment.failpoint("migration.keys_destroyed")
    if mark is not None:
        await arrival.give_over()
    environment.failpoint("migration.given_over")
    drop_ticket(folder.path)
    return replace(moved, moved=moved.moved or mark is not None, set_aside=aside)


def _stay(folder: DataFolder, mark: Mark) -> None:
    """Take back a move into the folder that was broken off before its last step."""
    if mark.ticket != ticket(folder.path):
        raise MigrationRefused(
            "the store has been moved from these topics into another folder", "open it there; it is not here any more"
        )
    for name in (LOG, KEYS):
        destroy(folder.path, name)
        destroy(folder.path, being_made(folder.path, name).name)
