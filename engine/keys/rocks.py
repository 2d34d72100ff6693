"""RocksDB for the key store: how it is opened, and its errors in the key store's own terms.

Caveats
  rocksdict raises bare `Exception` with RocksDB's status as its text; it is looked at here and nowhere else.
  RocksDB holds the GIL in a write, and a write waits where flushing or compaction is far behind; the bounds below let
  that be so only long after something has gone wrong. It releases the GIL in `flush`, `flush_wal` and `compact_range`.
  Iterators end quietly where a block is damaged; only their `status()` tells.
  An iterator points into its `ReadOptions` and does not keep them: freed too early, its bound is any bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rocksdict import (
    BlockBasedOptions,
    DbClosedError,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    ReadOptions,
)

from engine.durable import RESTORE
from engine.keys.errors import KeyStoreError

KEYS: Final = "keys"
"""The column family of wrapped keys, beside the default one."""

table_bytes: Final = 512 * 1024
"""How large a table of wrapped keys grows (about 6,000 keys): what the purge of one key rewrites."""


@contextlib.contextmanager
def translated(folder: Path) -> Iterator[None]:
    """Turn what rocksdict raises into `KeyStoreError`, which names the folder."""
    try:
        yield
    except OSError as error:
        raise KeyStoreError(folder, f"cannot be read or written: {error.strerror or error}") from error
    except DbClosedError as error:
        raise KeyStoreError(folder, "closed") from error
    except Exception as error:
        # rocksdict raises bare Exception; anything more exact is not its.
        if type(error) is not Exception:
            raise
        status = str(error)
        damaged = status.startswith(("Corruption", "IO error: No such file"))
        told = f"damaged: {status.rstrip('. ')}. {RESTORE}" if damaged else status
        raise KeyStoreError(folder, told) from error


def open_database(path: Path, *, create: bool = False) -> Rdict:
    """Open a database with both families. rocksdict's exceptions come as they are."""
    options = _options()
    options.create_if_missing(create)
    options.create_missing_column_families(create)
    # By name too: on reopening, a family keeps no options that are not given so.
    return Rdict(str(path), options, {"default": _options(), KEYS: _key_options()})


def scan(family: Rdict, prefix: bytes) -> list[tuple[bytes, bytes]]:
    """Return the keys that begin with `prefix`, in order, and their values. rocksdict's exceptions come as they are."""
    # Without a bound the iterator would also walk the tombstones behind the prefix, of every purge so far.
    bounded = ReadOptions()
    bounded.set_iterate_upper_bound(prefix[:-1] + bytes([prefix[-1] + 1]))
    rows = []
    rows_of_family = family.iter(bounded)
    try:
        rows_of_family.seek(prefix)
        while rows_of_family.valid():
            rows.append((rows_of_family.key(), rows_of_family.value()))
            rows_of_family.next()
        rows_of_family.status()
    finally:
        del rows_of_family, bounded
    return rows


def last_key(family: Rdict) -> bytes | None:
    """Return the last key; None where there is none. rocksdict's exceptions come as they are."""
    newest = family.iter()
    try:
        newest.seek_to_last()
        key: bytes | None = newest.key() if newest.valid() else None
        newest.status()
    finally:
        del newest
    return key


def _options() -> Options:
    # Of the default family and the whole database. RocksDB remembers none of them.
    options = Options(raw_mode=True)
    options.set_paranoid_checks(True)
    # The default would open a log with a flipped bit, and drop every key after it without a word.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    # A log that is given up is removed at once: not kept for a time, not written over later.
    options.set_recycle_log_file_num(0)
    options.set_wal_ttl_seconds(0)
    options.set_wal_size_limit_mb(0)
    options.set_write_buffer_size(4 * 1024 * 1024)
    options.set_max_total_wal_size(8 * 1024 * 1024)
    # A write that RocksDB holds up holds the GIL, and with it the whole process: let compaction fall behind instead.
    options.set_max_write_buffer_number(8)
    options.set_level_zero_slowdown_writes_trigger(200)
    options.set_level_zero_stop_writes_trigger(400)
    options.set_soft_pending_compaction_bytes_limit(0)
    options.set_hard_pending_compaction_bytes_limit(0)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(256 * 1024)
    options.set_max_manifest_file_size(1024 * 1024)
    options.set_manifest_preallocation_size(64 * 1024)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_compression_type(DBCompressionType.none())
    # The index is small but in no order of time, so each purge would soon rewrite it whole: more levels, less of that.
    options.set_max_bytes_for_level_base(8 * 1024 * 1024)
    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(10, False)
    options.set_block_based_table_factory(blocks)
    return options


def _key_options() -> Options:
    options = _options()
    options.set_max_bytes_for_level_base(256 * 1024 * 1024)
    options.set_target_file_size_base(table_bytes)
    return options
