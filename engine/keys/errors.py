"""What the keys can raise.

The whole tree, by what a caller can do about it::

    KeysError
    ├── MasterKeyError   the master key file is missing, damaged or another one: the operator puts it right
    ├── KeyStoreError    the store of keys is damaged, locked, closed or failed: stop, and open again; or no broker
    │                    answered, which may pass (`KeyStore.failed` is false then)
    ├── KeyMissing       no such data key: purged, or never kept
    ├── SealBroken       a sealed value is not what was sealed, or not for this record
    └── PackBroken       an opened value does not unpack
"""

from __future__ import annotations

from pathlib import Path


class KeysError(Exception):
    """The base of what the keys raise. No message ever holds a key."""


class MasterKeyError(KeysError):
    """The master key cannot be had, or is not the one that wrapped this; the message says what to do."""


class KeyStoreError(KeysError):
    """The key store at `path` cannot do what was asked. Whether an unanswered put is kept is unknown."""

    def __init__(self, path: Path | None, detail: str) -> None:
        super().__init__(detail if path is None else f"key store {path}: {detail}")
        self.path = path


class KeyMissing(KeysError):
    """There is no data key of this ID, so what it sealed cannot be read."""

    def __init__(self, key_id: bytes) -> None:
        super().__init__(f"no data key {key_id.hex()}")
        self.key_id = key_id


class SealBroken(KeysError):
    """A sealed value failed authentication: changed, cut, or sealed for other associated data."""


class PackBroken(KeysError):
    """Bytes that `pack` did not make, or that would unpack to more than `unpacked_bytes_max`."""
