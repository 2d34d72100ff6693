"""The keys of a simulated process: a disk that all share, and writes that are lost if it dies before they are kept."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.environment import Environment
from engine.keys.errors import KeyStoreError
from engine.keys.interface import PurgeListener, check_key
from engine.keys.memory import MemoryDisk


@dataclass(slots=True)
class KeyDisk:
    """What is durable, and who is told of each key that is deleted: its owner, its ID."""

    disk: MemoryDisk = field(default_factory=MemoryDisk)
    on_delete: Callable[[str, bytes], None] = lambda _owner, _key_id: None
    followers: list[Callable[[bytes], None]] = field(default_factory=list)
    """Every process's store, which learns of what others delete."""


@dataclass(slots=True)
class KeyFaults:
    """How often a step of the key store fails, and how long one takes at most."""

    rate: float = 0.0
    purge_rate: float = 0.0
    """How often the deletion of a key fails beside that."""
    delay_seconds_max: float = 0.0
    tell: Callable[[str], None] = lambda _what: None


class SimulatedKeyStore:
    """One process's key store. A failure can come before, between or after any two steps of a call."""

    def __init__(self, environment: Environment, shared: KeyDisk, faults: KeyFaults, source: random.Random) -> None:
        self._environment = environment
        self._shared = shared
        self._faults = faults
        self._random = source
        self._unsynced: dict[bytes, tuple[str, bytes]] = {}
        self._listeners: list[PurgeListener] = []
        self._failed = self._closed = False
        shared.followers.append(self._deleted)

    @property
    def failed(self) -> bool:
        return self._failed

    async def put(self, owner: str, key_id: bytes, key: bytes) -> None:
        self._check_open()
        check_key(owner, key_id, key)
        self._environment.failpoint("keys.before_put")
        await self._step("before a put")
        if key_id in self._unsynced or key_id in self._shared.disk.keys:
            raise ValueError(f"data key {key_id.hex()} is kept already")
        self._unsynced[key_id] = (owner, key)
        try:
            await self._step("while a put was synced")
        except KeyStoreError:
            # As on a disk: after a failed sync nobody knows, and a second one would prove nothing.
            self._failed = True
            raise
        self._check_open()
        self._sync()
        await self._step("after a put")
        self._environment.failpoint("keys.after_put")

    def get(self, key_id: bytes) -> bytes | None:
        found = self._shared.disk.keys.get(key_id) or self._unsynced.get(key_id)
        return None if found is None else found[1]

    def keys_of(self, owner: str) -> tuple[bytes, ...]:
        if self._failed:
            raise KeyStoreError(None, "failed before")
        return self._ids_of(owner)

    async def purge(self, owner: str) -> None:
        self._check_open()
        self._environment.failpoint("keys.before_purge")
        key_ids = self._ids_of(owner)
        for listener in self._listeners:
            listener(key_ids)
        for key_id in key_ids:
            await self._step("in a purge", self._faults.purge_rate)
            self._unsynced.pop(key_id, None)
            if self._shared.disk.keys.pop(key_id, None) is not None:
                self._shared.on_delete(owner, key_id)
                for follow in self._shared.followers:
                    follow(key_id)
        await self._step("after a purge")
        self._environment.failpoint("keys.after_purge")

    def get_value(self, name: str) -> bytes | None:
        return self._shared.disk.values.get(name)

    async def put_value(self, name: str, data: bytes) -> None:
        self._check_open()
        await self._step("before a value was put")
        self._shared.disk.values[name] = data
        await self._step("after a value was put")

    async def agree_on_value(self, name: str, make: Callable[[], bytes]) -> bytes:
        if (found := self.get_value(name)) is None:
            # Others may have agreed on one while this one was put.
            await self._step("before a value was agreed on")
            found = self._shared.disk.values.setdefault(name, make())
        return found

    async def refresh(self) -> None:
        self._check_open()

    def subscribe(self, listener: PurgeListener) -> None:
        self._listeners.append(listener)

    async def close(self) -> None:
        self._closed = True

    def _ids_of(self, owner: str) -> tuple[bytes, ...]:
        kept = {**self._shared.disk.keys, **self._unsynced}
        return tuple(key_id for key_id, (its_owner, _) in kept.items() if its_owner == owner)

    def _deleted(self, key_id: bytes) -> None:
        for listener in self._listeners:
            listener([key_id])

    def _sync(self) -> None:
        for key_id, (owner, key) in self._unsynced.items():
            self._shared.disk.keys[key_id] = (owner, key)
        self._unsynced.clear()

    async def _step(self, where: str, beside: float = 0.0) -> None:
        """Take time, and perhaps fail."""
        await self._environment.sleep(self._random.random() * self._faults.delay_seconds_max)
        if (rate := max(self._faults.rate, beside)) and self._random.random() < rate:
            self._faults.tell(f"keys: failed {where}")
            raise KeyStoreError(None, f"failed by a fault {where}")

    def _check_open(self) -> None:
        if self._closed or self._failed:
            raise KeyStoreError(None, "closed, or failed before")
