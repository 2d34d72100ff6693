"""Opening a store from its settings: the data folder, the master key, the keys, the log, then every partition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from engine.cursors import Cursors, mac_key_bytes
from engine.data_folder import DataFolder, FolderInUse, OpeningError, partitions_default, partitions_max
from engine.durable import RESTORE
from engine.environment import Environment
from engine.kafka.settings import KafkaSettings
from engine.keys import (
    KeyStore,
    KeyStoreError,
    MasterKey,
    MasterKeyError,
    RocksKeyStore,
    Sealer,
    load_or_create_master_key,
)
from engine.logs.embedded import EmbeddedLog
from engine.logs.interface import Log
from engine.opener import Opener
from engine.partition import Partition
from engine.pending import QueueLimits
from engine.projection import DiskFiles, Projection, ProjectionFiles
from engine.purges import Purges
from engine.store import Store, StoreIdentity

__all__ = [
    "VERSION",
    "FolderInUse",
    "OpeningError",
    "StoreSettings",
    "assemble",
    "open_store",
    "partitions_default",
    "partitions_max",
]

VERSION: Final = "0.1.0"
_CURSOR_KEY_NAME: Final = "cursor mac key"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where a store is and how it is to be opened. `partitions` None: as made, or 8 for a new store."""

    data_dir: Path
    partitions: int | None = None
    log: str = "embedded"
    master_key_file: Path | None = None
    queue: QueueLimits = field(default_factory=QueueLimits)
    create: bool = True
    kafka: KafkaSettings | None = None


async def open_store(settings: StoreSettings, environment: Environment) -> Store:
    """Open or make a store. Raises `OpeningError`, `MasterKeyError`, `KeyStoreError` or `LogError`."""
    if settings.log != "embedded":
        raise OpeningError(f"there is no log of kind {settings.log!r} in this version; choose embedded")
    folder = DataFolder(
        settings.data_dir, settings.partitions, create=settings.create, key_file=settings.master_key_file
    )
    try:
        partitions = folder.partitions
        folder.check_whole()
        master_path = settings.master_key_file or settings.data_dir / "master.key"
        keys_path = settings.data_dir / "keys"
        master = _master_key(master_path, in_use=keys_path.exists())
        try:
            keys = await RocksKeyStore.open(keys_path, master, environment, create=not folder.complete)
        except MasterKeyError as error:
            raise MasterKeyError(f"the master key {master_path} is the wrong one, or damaged: {error}") from error
        try:
            await _cursor_key(keys, environment, lost_from=keys_path if folder.complete else None)
            the_log = await asyncio.to_thread(EmbeddedLog, settings.data_dir / "log", partitions, environment)
        except BaseException:
            await keys.close()
            raise
        folder.finish()
    except BaseException:
        folder.release()
        raise

    async def release() -> None:
        try:
            await the_log.close()
        finally:
            try:
                await keys.close()
            finally:
                folder.release()

    try:
        return await assemble(
            the_log,
            keys,
            lambda partition: DiskFiles(settings.data_dir / "projections" / f"{partition:04d}"),
            environment,
            settings.queue,
            log_kind=settings.log,
            store_id=folder.store_id,
            created=folder.created,
            release=release,
        )
    except BaseException:
        await release()
        raise


async def assemble(
    the_log: Log,
    keys: KeyStore,
    files: Callable[[int], ProjectionFiles],
    environment: Environment,
    limits: QueueLimits,
    *,
    log_kind: str,
    release: Callable[[], Awaitable[None]],
    store_id: str = "",
    created: bool = False,
) -> Store:
    """Make a store of its parts and open every partition. `release` is called when the store is closed."""
    identity = StoreIdentity(VERSION, log_kind, store_id, created)
    sealer = Sealer(keys, environment.random_bytes)
    mac_key = await _cursor_key(keys, environment)
    purges = Purges(keys, environment, the_log.partitions)
    partitions = [
        Partition(
            number,
            the_log,
            Projection(number, the_log, files(number), environment),
            Opener(number, the_log, sealer),
            environment,
            limits,
            purges,
        )
        for number in range(the_log.partitions)
    ]
    store = Store(identity, partitions, sealer, keys, purges, Cursors(mac_key), environment, release)
    try:
        await asyncio.gather(*(partition.open() for partition in partitions))
    except BaseException:
        await asyncio.gather(*(partition.close() for partition in partitions), return_exceptions=True)
        raise
    return store


async def _cursor_key(keys: KeyStore, environment: Environment, lost_from: Path | None = None) -> bytes:
    """The key that signs cursors, made once: under another one, every cursor that callers hold would be refused.

    One that is not there was lost where `lost_from` says so. Raises `KeyStoreError`.
    """
    key = keys.get_value(_CURSOR_KEY_NAME)
    if key is None and lost_from is not None:
        raise KeyStoreError(lost_from, f"damaged: it has lost its {_CURSOR_KEY_NAME}. {RESTORE}")
    if key is None:
        key = environment.random_bytes(mac_key_bytes)
        await keys.put_value(_CURSOR_KEY_NAME, key)
    return key


def _master_key(path: Path, *, in_use: bool) -> MasterKey:
    if in_use and not path.exists():
        raise MasterKeyError(
            f"the master key file {path} is missing, and this store has data keys wrapped under it; "
            "put the file back, or name it with --master-key-file"
        )
    return load_or_create_master_key(path, create=not in_use)
