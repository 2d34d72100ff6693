"""The one interface of a key store.

A data key is 32 random bytes under a random ID of 16, and belongs to an owner: a session, a sessionless
tree, a memory. It is durable before anything that was sealed under it is. Purging an owner removes its
keys so that no file holds them, wrapped or not; what they sealed cannot be read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from engine.keys.master import key_bytes

key_id_bytes: Final = 16

PurgeListener = Callable[[Sequence[bytes]], None]
"""Called with the IDs of keys that are being purged, once `get` no longer finds them."""


class KeyStore(Protocol):
    """Keeps data keys by ID and owner. `get` and `keys_of` may be called from any thread, the rest from the loop's."""

    @property
    def failed(self) -> bool:
        """True once nothing is kept any more until the store is opened again, as after a failed sync."""
        ...

    async def put(self, owner: str, key_id: bytes, key: bytes) -> None:
        """Keep a key; durable once this returns. Raises `KeyStoreError`: then whether it is kept is unknown."""
        ...

    def get(self, key_id: bytes) -> bytes | None:
        """Return the key, at once; None when it is purged or never was."""
        ...

    def keys_of(self, owner: str) -> tuple[bytes, ...]:
        """Return the IDs of the owner's keys, oldest first; one whose `put` has not returned may be among them.

        Raises `KeyStoreError` once a sync has failed: whether the last ones put are kept is then unknown.
        """
        ...

    async def purge(self, owner: str) -> None:
        """Remove every key that the owner has at this call, for good; safe to repeat, and cheap when there is none.

        From the call on `get` finds none of them; once it returns, no file holds them. A key put later stays.
        """
        ...

    def get_value(self, name: str) -> bytes | None:
        """Return a named value."""
        ...

    async def put_value(self, name: str, data: bytes) -> None:
        """Keep a named value in place of its former one; durable once this returns."""
        ...

    async def agree_on_value(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return the value of a name that is given one only once; `make` makes it where there is none yet.

        However many stores ask at once, all get the same. Such a name is not given to `put_value`.
        """
        ...

    async def refresh(self) -> None:
        """Learn all that other stores have put and purged before this call. Raises `KeyStoreError`."""
        ...

    def subscribe(self, listener: PurgeListener) -> None:
        """Have `listener` told of every purge: at its call, or once this store learns of another's."""
        ...

    async def close(self) -> None:
        """Finish what runs, and release files. Safe to repeat."""
        ...


def check_key(owner: str, key_id: bytes, key: bytes) -> None:
    """Raise `ValueError` unless these can be put: an owner without NUL, an ID of 16 bytes, a key of 32."""
    if not owner or "\0" in owner:
        raise ValueError("an owner is a text without NUL, and not empty")
    if len(key_id) != key_id_bytes:
        raise ValueError(f"a key ID is {key_id_bytes} bytes, not {len(key_id)}")
    if len(key) != key_bytes:
        raise ValueError(f"a data key is {key_bytes} bytes, not {len(key)}")
