"""A key store in memory, for simulations: no files, no threads, and time only through the environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.environment import Environment
from engine.keys.errors import KeyStoreError
from engine.keys.interface import PurgeListener, check_key


@dataclass(frozen=True, slots=True)
class MemoryDisk:
    """What outlives a store in memory: keys with their owners by key ID, and values by name."""

    keys: dict[bytes, tuple[str, bytes]] = field(default_factory=dict)
    values: dict[str, bytes] = field(default_factory=dict)


class MemoryKeyStore:
    """The key store of a simulation; one that is handed the disk of a former one goes on from there."""

    def __init__(self, environment: Environment, disk: MemoryDisk | None = None) -> None:
        disk = MemoryDisk() if disk is None else disk
        self._environment = environment
        self._keys = disk.keys
        self._values = disk.values
        self._listeners: list[PurgeListener] = []
        self._closed = False

    @property
    def failed(self) -> bool:
        """See `KeyStore`."""
        return False

    async def put(self, owner: str, key_id: bytes, key: bytes) -> None:
        """See `KeyStore`. Raises `ValueError` for a key ID that is taken."""
        self._check_open()
        check_key(owner, key_id, key)
        self._environment.failpoint("keys.before_put")
        if key_id in self._keys:
            raise ValueError(f"data key {key_id.hex()} is kept already")
        self._keys[key_id] = (owner, key)
        await self._environment.sleep(0.0)
        self._environment.failpoint("keys.after_put")

    def get(self, key_id: bytes) -> bytes | None:
        """See `KeyStore`."""
        found = self._keys.get(key_id)
        return None if found is None else found[1]

    def keys_of(self, owner: str) -> tuple[bytes, ...]:
        """See `KeyStore`."""
        return tuple(key_id for key_id, (its_owner, _) in self._keys.items() if its_owner == owner)

    async def purge(self, owner: str) -> None:
        """See `KeyStore`."""
        self._check_open()
        self._environment.failpoint("keys.before_purge")
        key_ids = self.keys_of(owner)
        for key_id in key_ids:
            del self._keys[key_id]
        for listener in self._listeners:
            listener(key_ids)
        await self._environment.sleep(0.0)
        self._environment.failpoint("keys.after_purge")

    def get_value(self, name: str) -> bytes | None:
        """See `KeyStore`."""
        return self._values.get(name)

    async def put_value(self, name: str, data: bytes) -> None:
        """See `KeyStore`."""
        self._check_open()
        self._values[name] = data
        await self._environment.sleep(0.0)

    async def agree_on_value(self, name: str, make: Callable[[], bytes]) -> bytes:
        """See `KeyStore`."""
        self._check_open()
        if name not in self._values:
            self._values[name] = make()
        return self._values[name]

    async def refresh(self) -> None:
        """See `KeyStore`."""
        self._check_open()

    def subscribe(self, listener: PurgeListener) -> None:
        """See `KeyStore`."""
        self._listeners.append(listener)

    async def close(self) -> None:
        """See `KeyStore`."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise KeyStoreError(None, "key store in memory: closed")
