"""A folder of keys read whole, and written whole. Every call blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from engine.keys import folder
from engine.keys.database import Database
from engine.keys.errors import KeyStoreError, MasterKeyError
from engine.keys.master import MasterKey
from engine.keys.store import value_associated
from engine.migration.keyring import Keyring, WrappedKey, check_opens


def read_folder(path: Path, master: MasterKey) -> Keyring:
    """All that the folder holds; each of its keys opens. Raises `KeyStoreError`, `MasterKeyError`."""
    with _opened(path, master) as database:
        keys = tuple(_wrapped(path, database, row.owner, row.key_id) for row in database.every_row())
        values = {name: _unwrapped(path, master, name, wrapped) for name, wrapped in database.every_value().items()}
    check_opens(keys, master, str(path))
    return Keyring(keys, values)


def write_folder(path: Path, master: MasterKey, keyring: Keyring) -> None:
    """Make a folder of keys that holds these and nothing else; durable when this returns."""
    folder.create(path, master)
    with _opened(path, master) as database:
        for key in keyring.keys:
            database.put_key(key.owner, key.key_id, key.wrapped)
        _put_values(database, master, keyring.values)
        database.sync()


def _put_values(database: Database, master: MasterKey, values: Mapping[str, bytes]) -> None:
    for name, value in values.items():
        database.put_value(name, master.wrap(value, value_associated(name)))


@contextmanager
def _opened(path: Path, master: MasterKey) -> Iterator[Database]:
    if not folder.exists(path):
        raise KeyStoreError(path, "missing")
    lock = folder.lock(path)
    try:
        folder.check(path, master)
        database = Database(path)
        try:
            yield database
        finally:
            database.close()
    finally:
        os.close(lock)


def _wrapped(path: Path, database: Database, owner: str, key_id: bytes) -> WrappedKey:
    found = database.get_key(key_id)
    if found is None:
        raise KeyStoreError(path, f"damaged: data key {key_id.hex()} is listed and not there")
    return WrappedKey(owner, key_id, found[1])


def _unwrapped(path: Path, master: MasterKey, name: str, wrapped: bytes) -> bytes:
    try:
        return master.unwrap(wrapped, value_associated(name))
    except MasterKeyError as error:
        raise KeyStoreError(path, f"damaged: value {name!r} does not open") from error
