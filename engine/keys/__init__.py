"""Data keys: one an owner, so that what an owner sealed can be made unreadable in a log that cannot forget.

The basics. `load_or_create_master_key` gives the master key; `RocksKeyStore` keeps data keys wrapped under it, in a
folder, and `KafkaKeyStore` in a topic that several stores share; `Sealer` seals and opens values under them. A key is
put before anything that it seals is logged; purging its owner leaves only sealed bytes.

The caveats.

- A copy of the key store's folder, made before a purge, undoes the purge for whoever has the master key too.
- A purge removes keys, wrapped or not, from every file of the folder. It overwrites no disk blocks. Owners
  and key IDs may remain in the index for a while, as they do in the log; so may the former value of a named value.
- A purge of one owner rewrites one table; many owners at once, up to all tables. `database.py` tells why.
- In a topic, keys leave the brokers' files some time after a purge. `upkeep.py` tells when.
- A lost key cannot be told from a purged one here; the log tells.
"""

from __future__ import annotations

from engine.keys.errors import KeyMissing, KeysError, KeyStoreError, MasterKeyError, PackBroken, SealBroken
from engine.keys.interface import KeyStore, PurgeListener
from engine.keys.master import MasterKey, load_or_create_master_key
from engine.keys.memory import MemoryDisk, MemoryKeyStore
from engine.keys.sealing import Sealer, pack, unpack
from engine.keys.store import RocksKeyStore

__all__ = [
    "KeyMissing",
    "KeyStore",
    "KeyStoreError",
    "KeysError",
    "MasterKey",
    "MasterKeyError",
    "MemoryDisk",
    "MemoryKeyStore",
    "PackBroken",
    "PurgeListener",
    "RocksKeyStore",
    "SealBroken",
    "Sealer",
    "load_or_create_master_key",
    "pack",
    "unpack",
]
