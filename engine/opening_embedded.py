"""Opening a store whose log is on this machine: the data folder, the master key, the keys, the log, the partitions."""

from __future__ import annotations

import asyncio
from pathlib import Path

from engine.assembly import StoreSettings, assemble, cursor_key, cursor_key_name, projections_in
from engine.data_folder import DataFolder
from engine.durable import RESTORE
from engine.environment import Environment
from engine.keys import KeyStoreError, MasterKey, MasterKeyError, RocksKeyStore, load_or_create_master_key
from engine.logs.embedded import EmbeddedLog
from engine.store import Store


async def open_embedded(settings: StoreSettings, environment: Environment) -> Store:
    """Open or make a store over the embedded log. Raises what `engine.opening.open_store` does."""
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
            if folder.complete:
                _check_cursor_key(keys, keys_path)
            await cursor_key(keys, environment)
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
            projections_in(settings.data_dir),
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


def _check_cursor_key(keys: RocksKeyStore, path: Path) -> None:
    if keys.get_value(cursor_key_name) is None:
        raise KeyStoreError(path, f"damaged: it has lost its {cursor_key_name}. {RESTORE}")


def _master_key(path: Path, *, in_use: bool) -> MasterKey:
    if in_use and not path.exists():
        raise MasterKeyError(
            f"the master key file {path} is missing, and this store has data keys wrapped under it; "
            "put the file back, or name it with --master-key-file"
        )
    return load_or_create_master_key(path, create=not in_use)
