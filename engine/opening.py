"""Opening a store from its settings: the data folder, the master key, the keys, the log, then every partition.

The data folder::

    store.json      what this store is: format, partitions, a random ID; written once
    LOCK            held by the process that has the store open
    master.key      the master key, unless a setting puts it elsewhere
    keys/           data keys, wrapped under the master key
    log/            the log: the only truth
    projections/    one folder a partition; can be deleted and is rebuilt
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from engine.cursors import Cursors, mac_key_bytes
from engine.environment import Environment
from engine.keys import KeyStore, MasterKey, MasterKeyError, RocksKeyStore, Sealer, load_or_create_master_key
from engine.logs.embedded import EmbeddedLog
from engine.logs.interface import Log
from engine.opener import Opener
from engine.partition import Partition
from engine.pending import QueueLimits
from engine.projection import DiskFiles, Projection, ProjectionFiles
from engine.purges import Purges
from engine.store import Store

VERSION: Final = "0.1.0"
FORMAT: Final = 1
partitions_default: Final = 8
partitions_max: Final = 1024
_CURSOR_KEY_NAME: Final = "cursor mac key"


class OpeningError(Exception):
    """The store cannot be opened as asked; the message says what to do. Nothing was changed."""


class FolderInUse(OpeningError):
    """Another process has the store open."""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where a store is and how it is to be opened. `partitions` None: as made, or 8 for a new store."""

    data_dir: Path
    partitions: int | None = None
    log: str = "embedded"
    master_key_file: Path | None = None
    queue: QueueLimits = field(default_factory=QueueLimits)
    create: bool = True


async def open_store(settings: StoreSettings, environment: Environment) -> Store:
    """Open or make a store. Raises `OpeningError`, `MasterKeyError`, `KeyStoreError` or `LogError`."""
    folder = DataFolder(settings)
    try:
        partitions = folder.partitions
        master_path = settings.master_key_file or settings.data_dir / "master.key"
        keys_path = settings.data_dir / "keys"
        # The keys are made before the log, so a log without keys has lost them.
        in_use = keys_path.exists() or (settings.data_dir / "log").exists()
        master = _master_key(master_path, in_use=in_use)
        keys = await RocksKeyStore.open(keys_path, master, environment, create=not in_use)
        try:
            the_log = await asyncio.to_thread(EmbeddedLog, settings.data_dir / "log", partitions, environment)
        except BaseException:
            await keys.close()
            raise
    except BaseException:
        folder.release()
        raise

    async def release() -> None:
        await the_log.close()
        await keys.close()
        folder.release()

    try:
        return await assemble(
            the_log,
            keys,
            lambda partition: DiskFiles(settings.data_dir / "projections" / f"{partition:04d}"),
            environment,
            settings.queue,
            log_kind=settings.log,
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
) -> Store:
    """Make a store of its parts and open every partition. `release` is called when the store is closed."""
    sealer = Sealer(keys, environment.random_bytes)
    mac_key = keys.get_value(_CURSOR_KEY_NAME)
    if mac_key is None:
        mac_key = environment.random_bytes(mac_key_bytes)
        await keys.put_value(_CURSOR_KEY_NAME, mac_key)
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
    store = Store(VERSION, log_kind, partitions, sealer, keys, purges, Cursors(mac_key), environment, release)
    await asyncio.gather(*(partition.open() for partition in partitions))
    return store


def _master_key(path: Path, *, in_use: bool) -> MasterKey:
    if in_use and not path.exists():
        raise MasterKeyError(
            f"the master key file {path} is missing, and this store has data keys wrapped under it; "
            "put the file back, or name it with --master-key-file"
        )
    return load_or_create_master_key(path, create=not in_use)


class DataFolder:
    """A store's folder, locked by this process, and what `store.json` says of it."""

    def __init__(self, settings: StoreSettings) -> None:
        self._path = settings.data_dir
        description = self._path / "store.json"
        if not description.exists() and not settings.create:
            raise OpeningError(f"there is no store in {self._path}; start one with `runstore serve`")
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            self._lock: IO[str] = (self._path / "LOCK").open("a+", encoding="ascii")
        except OSError as error:
            raise OpeningError(f"the data folder {self._path} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise FolderInUse(
                f"the data folder {self._path} is in use by another process; stop it first, "
                "or choose another --data-dir"
            ) from error
        try:
            self.partitions = self._describe(description, settings)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let others open the store. Safe to repeat."""
        self._lock.close()

    def _describe(self, path: Path, settings: StoreSettings) -> int:
        if not path.exists():
            partitions = partitions_default if settings.partitions is None else settings.partitions
            if not 1 <= partitions <= partitions_max:
                raise OpeningError(f"partitions must be 1 to {partitions_max}, not {partitions}")
            if (self._path / "log").exists():
                raise OpeningError(
                    f"{self._path} holds a log but no store.json; restore that file, or choose another folder"
                )
            _write_once(path, {"format": FORMAT, "partitions": partitions, "store_id": os.urandom(16).hex()})
            return partitions
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            written_format, partitions = int(told["format"]), int(told["partitions"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise OpeningError(f"{path} cannot be read: {error}") from error
        if written_format != FORMAT:
            raise OpeningError(
                f"{self._path} was written in data format {written_format}, and version {VERSION} reads {FORMAT}; "
                "use a version of Runstore that reads it"
            )
        if settings.partitions is not None and settings.partitions != partitions:
            raise OpeningError(
                f"this store was made with {partitions} partitions, which never changes; leave out --partitions "
                f"{settings.partitions}"
            )
        return partitions


def _write_once(path: Path, told: dict[str, object]) -> None:
    """Write a small file so that after a crash it is there whole or not at all."""
    temporary = path.with_suffix(".new")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(told, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
