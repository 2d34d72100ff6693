"""Opening a store from its settings: whichever log it has."""

from __future__ import annotations

from engine.assembly import VERSION, StoreSettings, assemble
from engine.data_folder import FolderInUse, OpeningError, partitions_default, partitions_max
from engine.environment import Environment
from engine.opening_embedded import open_embedded
from engine.opening_kafka import open_on_kafka
from engine.store import Store

__all__ = [
    "VERSION",
    "FolderInUse",
    "OpeningError",
    "StoreSettings",
    "assemble",
    "open_store",
    "partitions_default",
    "partitions_max",
]

_OPENERS = {"embedded": open_embedded, "kafka": open_on_kafka}


async def open_store(settings: StoreSettings, environment: Environment) -> Store:
    """Open or make a store. Raises `OpeningError`, `MasterKeyError`, `KeyStoreError` or `LogError`."""
    opener = _OPENERS.get(settings.log)
    if opener is None:
        raise OpeningError(
            f"there is no log of kind {settings.log!r} in this version; choose {' or '.join(sorted(_OPENERS))}"
        )
    return await opener(settings, environment)
