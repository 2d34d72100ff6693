"""The folder of a key store, before its RocksDB is opened: there, whole, free, wrapped by this master key.

check          the check value, wrapped under the master key
lock           held (flock) while the key store is open
acknowledged   how much of the write-ahead log was acknowledged (see `engine.logs.wal`)
rocksdb/       keys and named values (see `engine.keys.database`)
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import Final

from engine.durable import RESTORE, sync_folder
from engine.keys.errors import KeyStoreError, MasterKeyError
from engine.keys.master import MasterKey
from engine.keys.rocks import open_database, translated

_CHECK: Final = b"runstore key store"
_CHECK_ASSOCIATED: Final = b"check"


def exists(path: Path) -> bool:
    """True when there is a key store; an empty folder is none. Raises `KeyStoreError` for anything else there."""
    try:
        if not path.exists() or not any(path.iterdir()):
            return False
    except OSError as error:
        raise KeyStoreError(path, f"cannot be read: {error.strerror or error}") from error
    for needed in (path / "check", path / "rocksdb" / "CURRENT"):
        if not needed.is_file():
            # RocksDB would take a folder without CURRENT for a new one.
            raise KeyStoreError(path, f"damaged, or no key store: {needed} is missing. {RESTORE}")
    return True


def create(path: Path, master: MasterKey) -> None:
    """Make an empty key store: whole, or not at all."""
    draft = path.with_name(path.name + ".new")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        with (draft / "check").open("xb") as file:
            file.write(master.wrap(_CHECK, _CHECK_ASSOCIATED))
            file.flush()
            os.fsync(file.fileno())
        with translated(draft):
            open_database(draft / "rocksdb", create=True).close()
        sync_folder(draft / "rocksdb")
        sync_folder(draft)
        draft.rename(path)
        sync_folder(path.parent)
    except OSError as error:
        raise KeyStoreError(path, f"cannot be created: {error.strerror or error}") from error


def lock(path: Path) -> int:
    """Lock the folder, and return the file that holds the lock until it is closed. Raises `KeyStoreError`."""
    try:
        file = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise KeyStoreError(path, f"cannot be locked: {error.strerror or error}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(file)
        raise KeyStoreError(path, "in use, by another process or in this one. Close it there first") from error
    return file


def check(path: Path, master: MasterKey) -> None:
    """Raise `MasterKeyError` unless this master key wrapped what is in the folder. Writes nothing."""
    try:
        wrapped = (path / "check").read_bytes()
    except OSError as error:
        raise KeyStoreError(path, f"cannot be read: {error.strerror or error}") from error
    try:
        master.unwrap(wrapped, _CHECK_ASSOCIATED)
    except MasterKeyError as error:
        raise MasterKeyError(
            f"the keys in {path} were wrapped by another master key: point master_key_file at that one "
            f"(or, if it is that one, {path / 'check'} is damaged. {RESTORE})"
        ) from error
