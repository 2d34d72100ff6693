"""All that a key store holds, as it is carried over: data keys as they are wrapped, named values opened.

A wrapped data key is bound to its owner and ID alone, wherever it is kept, so it moves as it is, under the same master
key. A named value is bound to where it is kept too, and is wrapped anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.keys.errors import MasterKeyError
from engine.keys.master import MasterKey, key_associated
from engine.migration.errors import MigrationRefused


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key, wrapped under the master key."""

    owner: str
    key_id: bytes
    wrapped: bytes


@dataclass(frozen=True, slots=True)
class Keyring:
    """Data keys, the older of an owner before the newer, and named values."""

    keys: tuple[WrappedKey, ...]
    values: Mapping[str, bytes]

    def by_id(self) -> dict[bytes, WrappedKey]:
        """The data keys by their IDs."""
        return {key.key_id: key for key in self.keys}


def check_opens(keys: Iterable[WrappedKey], master: MasterKey, where: str) -> None:
    """Raise `MigrationRefused` for a key that does not open: it must not be found when its source is gone."""
    for key in keys:
        try:
            master.unwrap(key.wrapped, key_associated(key.owner, key.key_id))
        except MasterKeyError as error:
            raise MigrationRefused(f"data key {key.key_id.hex()} of {key.owner} in {where} is damaged") from error
