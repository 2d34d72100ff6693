"""The key store in a folder: a small RocksDB of its own, everything in it wrapped under the master key."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from engine.durable import RESTORE
from engine.environment import Environment
from engine.keys import folder
from engine.keys.database import Database, KeyRow, passes
from engine.keys.errors import KeyStoreError, MasterKeyError
from engine.keys.interface import KeyStore, PurgeListener, check_key
from engine.keys.master import MasterKey, key_associated
from engine.keys.memory import MemoryKeyStore
from engine.rounds import Rounds

__all__ = ["KeyStore", "MemoryKeyStore", "PurgeListener", "RocksKeyStore"]

removal_seconds_max: Final = 10.0
"""How long a purge waits for files that RocksDB has given up to disappear."""

removal_poll_seconds: Final = 0.005
removal_poll_seconds_max: Final = 0.5
"""How often it asks RocksDB to remove them: at first, and in the end."""

_T = TypeVar("_T")
_P = ParamSpec("_P")


class RocksKeyStore:
    """The key store in a folder: wrapped under the master key, named values too."""

    def __init__(self, path: Path, lock: int, opened: Database, master: MasterKey, environment: Environment) -> None:
        self._path = path
        self._lock = lock
        self._database = opened
        self._master = master
        self._environment = environment
        self._listeners: list[PurgeListener] = []
        self._purging: set[bytes] = set()
        # Deleted, but maybe not gone from every file: by sequence, with the row while that may still be there.
        self._unfinished: dict[int, KeyRow | None] = dict.fromkeys(opened.pending())
        self._closed = False
        self._failed = False
        # One thread for syncs and one for erasing, so that a purge holds up no put.
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="keys")
        self._syncs: Rounds[None] = Rounds(self._sync)
        self._erasures: Rounds[Sequence[KeyRow]] = Rounds(self._erase)

    @classmethod
    async def open(
        cls, path: Path, master: MasterKey, environment: Environment, *, create: bool = True
    ) -> RocksKeyStore:
        """Open the folder, and finish the purges that were interrupted; with `create`, one that is not there is made.

        Raises `MasterKeyError`, having written nothing, when the keys in it were wrapped by another master key, and
        `KeyStoreError`, which names the folder, when it is missing, damaged or in use.
        """
        lock, opened = await asyncio.to_thread(_open, path, master, create=create)
        store = cls(path, lock, opened, master, environment)
        try:
            if store._unfinished:
                await store._erasures.join(())
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def failed(self) -> bool:
        """See `KeyStore`."""
        return self._failed

    async def put(self, owner: str, key_id: bytes, key: bytes) -> None:
        """See `KeyStore`. Raises `ValueError` for a key ID that is taken."""
        self._check_open()
        check_key(owner, key_id, key)
        self._environment.failpoint("keys.before_put")
        self._database.put_key(owner, key_id, self._master.wrap(key, key_associated(owner, key_id)))
        await self._syncs.join(None)
        self._environment.failpoint("keys.after_put")

    def get(self, key_id: bytes) -> bytes | None:
        """See `KeyStore`. Raises `KeyStoreError` when what is kept is damaged."""
        if key_id in self._purging:
            return None
        found = self._database.get_key(key_id)
        if found is None:
            return None
        owner, wrapped = found
        return self._unwrap(wrapped, key_associated(owner, key_id), f"data key {key_id.hex()}")

    def keys_of(self, owner: str) -> tuple[bytes, ...]:
        """See `KeyStore`."""
        self._check_synced()
        return tuple(row.key_id for row in self._rows_of(owner))

    async def purge(self, owner: str) -> None:
        """See `KeyStore`. Purges that arrive while one runs share the next compaction."""
        self._check_open()
        self._environment.failpoint("keys.before_purge")
        rows = self._rows_of(owner)
        key_ids = [row.key_id for row in rows]
        self._purging.update(key_ids)
        for listener in self._listeners:
            listener(key_ids)
        # Without keys there may still be an erasure of this owner's that runs, or that has failed.
        if rows or self._unfinished or not self._erasures.idle:
            await self._erasures.join(rows)
        self._environment.failpoint("keys.after_purge")

    def get_value(self, name: str) -> bytes | None:
        """See `KeyStore`. Raises `KeyStoreError` when what is kept is damaged."""
        wrapped = self._database.get_value(name)
        return None if wrapped is None else self._unwrap(wrapped, _value_associated(name), f"value {name!r}")

    async def put_value(self, name: str, data: bytes) -> None:
        """See `KeyStore`."""
        self._check_open()
        self._database.put_value(name, self._master.wrap(data, _value_associated(name)))
        await self._syncs.join(None)

    async def agree_on_value(self, name: str, make: Callable[[], bytes]) -> bytes:
        """See `KeyStore`."""
        found = self.get_value(name)
        if found is None:
            found = make()
            await self.put_value(name, found)
        return found

    async def refresh(self) -> None:
        """See `KeyStore`. The folder is locked: nobody else puts anything."""
        self._check_open()

    def subscribe(self, listener: PurgeListener) -> None:
        """See `KeyStore`."""
        self._listeners.append(listener)

    async def close(self) -> None:
        """See `KeyStore`."""
        if self._closed:
            return
        self._closed = True
        await self._syncs.drain()
        await self._erasures.drain()
        self._threads.shutdown()
        try:
            self._database.close()
        finally:
            os.close(self._lock)

    def _check_open(self) -> None:
        if self._closed:
            raise KeyStoreError(self._path, "closed")
        self._check_synced()

    def _rows_of(self, owner: str) -> tuple[KeyRow, ...]:
        return tuple(row for row in self._database.rows_of(owner) if row.key_id not in self._purging)

    def _unwrap(self, wrapped: bytes, associated: bytes, what: str) -> bytes:
        try:
            return self._master.unwrap(wrapped, associated)
        except MasterKeyError as error:
            # The check value did open under this master key, so it is not the key that is wrong.
            raise KeyStoreError(self._path, f"damaged: {what} does not open") from error

    async def _sync(self, _: Sequence[None]) -> None:
        self._check_synced()
        try:
            await self._in_thread(self._database.sync)
        except BaseException:
            # After a failed fsync the kernel may call lost pages clean, so a second one proves nothing.
            self._failed = True
            raise

    def _check_synced(self) -> None:
        if self._failed:
            raise KeyStoreError(self._path, "stopped after a failed sync; open it again")

    async def _erase(self, batches: Sequence[Sequence[KeyRow]]) -> None:
        self._unfinished.update((row.sequence, row) for batch in batches for row in batch)
        old_logs: frozenset[str] = frozenset()
        for sequences in passes(sorted(self._unfinished)):
            rows = [row for row in map(self._unfinished.get, sequences) if row is not None]
            old_logs |= await self._in_thread(self._database.delete, sequences, rows)
            self._purging.difference_update(row.key_id for row in rows)
            self._environment.failpoint("keys.purge_deleted")
            await self._in_thread(self._database.compact, sequences)
            self._environment.failpoint("keys.purge_compacted")
        if self._unfinished:
            done = tuple(self._unfinished)
            await self._removed(old_logs, done)
            await self._in_thread(self._database.settle, done)
            self._unfinished.clear()

    async def _removed(self, old_logs: frozenset[str], sequences: Sequence[int]) -> None:
        deadline = self._environment.monotonic() + removal_seconds_max
        wait_seconds = removal_poll_seconds
        while left := await self._in_thread(self._database.leftovers, old_logs):
            if self._environment.monotonic() > deadline:
                raise KeyStoreError(self._path, f"purged bytes may remain in {', '.join(sorted(left))}")
            await self._environment.sleep(wait_seconds)
            wait_seconds = min(2 * wait_seconds, removal_poll_seconds_max)
            await self._in_thread(self._database.remove_given_up, sequences)

    async def _in_thread(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: function(*args, **kwargs))


def _open(path: Path, master: MasterKey, *, create: bool) -> tuple[int, Database]:
    if not folder.exists(path):
        if not create:
            raise KeyStoreError(path, f"missing: without its keys nothing can be read. {RESTORE}")
        folder.create(path, master)
    lock = folder.lock(path)
    try:
        folder.check(path, master)
        return lock, Database(path)
    except BaseException:
        os.close(lock)
        raise


def _value_associated(name: str) -> bytes:
    return b"value\0" + name.encode()
