"""The RocksDB of a key store: layout, and what it takes to leave no byte of a purged key behind.

Two column families. `keys` holds nothing but wrapped keys, by a sequence number that rises with every
put; the default one holds the rest::

    keys      sequence (8)              -> wrapped key
    default   "i" key ID (16)           -> sequence (8) || owner
              "o" owner 0x00 sequence   -> key ID
              "p" sequence              -> ""     deleted, but bytes may remain in files
              "v" name                  -> a named value, wrapped

The order of `keys` is what makes a purge cheap. A compaction rewrites every table that overlaps the
newest tables in its range; a tombstone in a table of its own overlaps only the one table that holds
the key, and new keys only ever overlap the newest. By owner or by key ID, which have no order in time, every
purge would rewrite the whole store. Tombstones of many keys in one table reach from the first to the
last of them, so far-apart ones go one by one while they are few (`passes`).

Every call here blocks.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocksdict import BottommostLevelCompaction, CompactOptions, WriteBatch

from engine.durable import RESTORE, sync_folder
from engine.keys.errors import KeyStoreError
from engine.keys.rocks import KEYS, last_key, open_database, scan, table_bytes, translated
from engine.logs import wal
from engine.logs.interface import LogCorrupt

passes_max: Final = 8
"""When the keys of one erasure lie in more places than this, rewriting all between them at once is the cheaper."""

_near_keys: Final = table_bytes // 80

_syncs_per_marker_sync: Final = 64


@dataclass(frozen=True, slots=True)
class KeyRow:
    """Where a data key is kept."""

    sequence: int
    key_id: bytes
    owner: str


class Database:
    """The open database of a key store's folder, whose lock the caller holds.

    Reads are for any thread, `put_key` is for one at a time, and the methods of an erasure are for another.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "rocksdb"
        self._writing = threading.Lock()
        self._syncs = 0
        # Closing what has been opened may fail too, of the same damage.
        with translated(folder), contextlib.ExitStack() as opened:
            try:
                self._open(opened)
            except OSError as error:
                raise KeyStoreError(folder, f"cannot be opened: {error.strerror or error}") from error
            except LogCorrupt as error:
                raise KeyStoreError(folder, f"damaged: {error}") from error
            self._opened = opened.pop_all()

    def _open(self, opened: contextlib.ExitStack) -> None:
        self._marker = wal.Marker(self._folder / "acknowledged")
        opened.callback(self._marker.close)
        acknowledged = self._marker.load()
        # RocksDB by itself drops keys without a word, or never returns, for some flipped bits in its log.
        wal.repair_tail(self._path, acknowledged)
        with translated(self._folder):
            self._default = open_database(self._path)
            opened.callback(self._default.close)
            self._keys = self._default.get_column_family(KEYS)
            self._keys_handle = self._default.get_column_family_handle(KEYS)
            opened.callback(self._close_keys)
            last = self._default.latest_sequence_number()
        if acknowledged is not None and last < acknowledged.sequence:
            raise KeyStoreError(
                self._folder,
                f"damaged: it ends at write {last} and {acknowledged.sequence} was acknowledged. {RESTORE}",
            )
        self._wal_end = wal.WalEnd(self._path)
        opened.callback(self._wal_end.close)
        self._marker.store(self._written())
        self._marker.sync()
        # A marker that is lost makes all that follows count as acknowledged, a torn tail too.
        sync_folder(self._folder)
        with translated(self._folder):
            newest = last_key(self._keys)
        # A pending sequence is not given again, so that no repetition of its erasure can meet another key.
        self._next_sequence = max(-1 if newest is None else _number(newest), *self.pending(), -1) + 1
        self._compaction = CompactOptions()
        # Without `force`, tables already at the last level are not rewritten, tombstones or not.
        self._compaction.set_bottommost_level_compaction(BottommostLevelCompaction.force())

    def get_key(self, key_id: bytes) -> tuple[str, bytes] | None:
        """Return (owner, wrapped key)."""
        with translated(self._folder):
            index = self._default.get(b"i" + key_id)
            if index is None:
                return None
            wrapped = self._keys.get(index[:8])
            if wrapped is None:
                if self._default.get(b"i" + key_id) is None:
                    return None  # deleted between the two reads
                raise KeyStoreError(self._folder, f"damaged: data key {key_id.hex()} is listed and not there")
        return index[8:].decode(), wrapped

    def rows_of(self, owner: str) -> tuple[KeyRow, ...]:
        """Return where the owner's keys are, oldest first."""
        prefix = b"o" + owner.encode() + b"\0"
        with translated(self._folder):
            return tuple(
                KeyRow(_number(key[len(prefix) :]), key_id, owner) for key, key_id in scan(self._default, prefix)
            )

    def every_row(self) -> list[KeyRow]:
        """Return where all keys are, oldest first."""
        with translated(self._folder):
            rows = [KeyRow(_number(index[:8]), key[1:], index[8:].decode()) for key, index in scan(self._default, b"i")]
        return sorted(rows, key=lambda row: row.sequence)

    def every_value(self) -> dict[str, bytes]:
        """Return all named values, by name."""
        with translated(self._folder):
            return {key[1:].decode(): value for key, value in scan(self._default, b"v")}

    def put_key(self, owner: str, key_id: bytes, wrapped: bytes) -> None:
        """Write a key; durable after the next `sync`. Raises `ValueError` for a key ID that is taken."""
        if self.get_key(key_id) is not None:
            raise ValueError(f"data key {key_id.hex()} is kept already")
        sequence = self._next_sequence.to_bytes(8)
        self._next_sequence += 1
        batch = WriteBatch(raw_mode=True)
        batch.put(sequence, wrapped, self._keys_handle)
        batch.put(b"i" + key_id, sequence + owner.encode())
        batch.put(b"o" + owner.encode() + b"\0" + sequence, key_id)
        self._write(batch)

    def get_value(self, name: str) -> bytes | None:
        """Return a named value."""
        with translated(self._folder):
            value: bytes | None = self._default.get(b"v" + name.encode())
        return value

    def put_value(self, name: str, value: bytes) -> None:
        """Write a named value; durable after the next `sync`."""
        batch = WriteBatch(raw_mode=True)
        batch.put(b"v" + name.encode(), value)
        self._write(batch)

    def sync(self) -> None:
        """Make durable what was written before this call. Releases the GIL."""
        with translated(self._folder):
            with self._writing:
                written = self._written()
            self._default.flush_wal(sync=True)
            self._marker.store(written)
            self._syncs += 1
            if self._syncs % _syncs_per_marker_sync == 0:
                self._marker.sync()

    def pending(self) -> frozenset[int]:
        """Return the sequences that were deleted and whose bytes may remain."""
        with translated(self._folder):
            return frozenset(_number(key[1:]) for key, _ in scan(self._default, b"p"))

    def delete(self, sequences: Sequence[int], rows: Sequence[KeyRow]) -> frozenset[str]:
        """Delete sequences with their `rows`, and mark them as pending; return the logs that may hold their bytes.

        A sequence has no row when its erasure was interrupted by the end of a process.
        """
        with translated(self._folder):
            old_logs = frozenset(self._files(".log"))
            # The tombstones come into a table of their own: beside new keys they would reach from the purged
            # key to the newest, and the compaction with them.
            self._keys.flush()
        batch = WriteBatch(raw_mode=True)
        for row in rows:
            batch.delete(b"i" + row.key_id)
            batch.delete(b"o" + row.owner.encode() + b"\0" + row.sequence.to_bytes(8))
        for sequence in sequences:
            batch.delete(sequence.to_bytes(8), self._keys_handle)
            batch.put(b"p" + sequence.to_bytes(8), b"")
        self._write(batch)
        return old_logs

    def compact(self, sequences: Sequence[int]) -> None:
        """Rewrite every table that holds one of these deleted sequences, and begin a new write-ahead log.

        A log is given up only when both families have flushed what it holds.
        """
        with translated(self._folder):
            self._keys.flush()
            self._default.flush()
            self._keys.compact_range(min(sequences).to_bytes(8), max(sequences).to_bytes(8), self._compaction)

    def remove_given_up(self, sequences: Sequence[int]) -> None:
        """Have RocksDB look again for files that it has given up.

        It looks when a flush or a compaction ends. A table that a reader in another thread is just then reading from
        stays, and the reader, when done, removes nothing: without this, till the next flush.
        """
        batch = WriteBatch(raw_mode=True)
        batch.put(b"p" + sequences[0].to_bytes(8), b"")
        self._write(batch)
        with translated(self._folder):
            self._default.flush()

    def leftovers(self, old_logs: frozenset[str]) -> frozenset[str]:
        """Return the files that are given up and not removed yet: of `old_logs`, and of all tables."""
        with translated(self._folder):
            tables = set(self._files(".sst"))
            live = {str(table["name"]).lstrip("/") for table in self._default.live_files()}
            return frozenset(tables - live) | old_logs.intersection(self._files(".log"))

    def settle(self, sequences: Sequence[int]) -> None:
        """Make the removal of files durable, and mark these sequences as pending no more."""
        with translated(self._folder):
            sync_folder(self._path)
        batch = WriteBatch(raw_mode=True)
        for sequence in sequences:
            batch.delete(b"p" + sequence.to_bytes(8))
        self._write(batch)

    def close(self) -> None:
        """Release everything."""
        with translated(self._folder):
            self._opened.close()

    def _close_keys(self) -> None:
        # A handle that is left keeps RocksDB's lock.
        del self._keys_handle
        self._keys.close()

    def _write(self, batch: WriteBatch) -> None:
        with self._writing, translated(self._folder):
            self._default.write(batch)
            self._wal_end.advance()

    def _written(self) -> wal.Acknowledged:
        return wal.Acknowledged(self._wal_end.number, self._wal_end.length, self._default.latest_sequence_number())

    def _files(self, suffix: str) -> list[str]:
        return [file.name for file in self._path.iterdir() if file.name.endswith(suffix)]


def passes(sequences: Sequence[int]) -> list[list[int]]:
    """Split rising sequences into those to delete and compact together: neighbours, or all when that is too many."""
    split: list[list[int]] = []
    for sequence in sequences:
        if split and sequence - split[-1][-1] <= _near_keys:
            split[-1].append(sequence)
        else:
            split.append([sequence])
    return split if len(split) <= passes_max else [list(sequences)]


def _number(sequence: bytes) -> int:
    return int.from_bytes(sequence)
