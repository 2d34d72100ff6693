"""RocksDB for the embedded log: how it is opened, and its errors in the log's own terms.

Caveats
  rocksdict raises bare `Exception` with RocksDB's status as its text; it is looked at here and nowhere else.
  RocksDB holds the GIL in a write, and a write may wait for RocksDB's own flushing and compaction. That would stand
  the whole process still, so every write must have `no_slowdown`: it is refused instead (`WriteStalled`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
)

from engine.logs import wal
from engine.logs.interface import LogCorrupt, LogError, LogUnavailable

write_buffer_bytes: Final = 32 * 1024 * 1024
wal_bytes_max: Final = 128 * 1024 * 1024
block_cache_bytes: Final = 32 * 1024 * 1024


class WriteStalled(LogError):
    """Nothing was written: RocksDB must first flush what it has. Trying again soon works."""


@contextlib.contextmanager
def translated(done: str, partition: int | None = None, position: int | None = None) -> Iterator[None]:
    """Turn what rocksdict raises, a bare `Exception` with RocksDB's status as its text, into the log's own errors."""
    try:
        yield
    except Exception as error:
        if type(error) is not Exception:
            raise
        status = str(error)
        kind: type[LogError] = LogUnavailable
        if status.startswith("Corruption"):
            kind = LogCorrupt
        elif status.startswith("Result incomplete: Write stall"):
            kind = WriteStalled
        where = "" if position is None else f" at position {position}"
        where = "" if partition is None else f", partition {partition}{where},"
        raise kind(f"the log{where} could not be {done}: {status}", partition=partition, position=position) from error


def open_database(directory: Path, *, merging: bool = True) -> Rdict:
    """Open or make the database. Raises `LogUnavailable`, or `LogCorrupt` with the damaged place where it is known.

    Without `merging`, tables are left as they are, however many: one that is damaged is met by nobody but its readers.
    """
    try:
        with translated("opened"):
            family = options()
            family.set_disable_auto_compactions(not merging)
            return Rdict(str(directory), options(), column_families={"default": family})
    except LogCorrupt as error:
        raise wal.first_damage(directory) or error from error


def options() -> Options:
    """All of them, at every opening, and for the column family by name: those of tables are dropped otherwise."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_paranoid_checks(True)
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_recycle_log_file_num(0)
    options.set_max_total_wal_size(wal_bytes_max)
    options.set_write_buffer_size(write_buffer_bytes)
    options.set_max_write_buffer_number(wal_bytes_max // write_buffer_bytes)
    # A write is refused from the first of these on; compaction is usually done long before.
    options.set_level_zero_slowdown_writes_trigger(40)
    options.set_level_zero_stop_writes_trigger(60)
    options.set_max_background_jobs(2)
    options.set_max_open_files(512)
    # What is sealed does not compress, IDs and types do.
    options.set_compression_type(DBCompressionType.lz4())
    options.set_bottommost_compression_type(DBCompressionType.lz4())
    blocks = BlockBasedOptions()
    blocks.set_block_size(16 * 1024)
    blocks.set_block_cache(Cache(block_cache_bytes))
    options.set_block_based_table_factory(blocks)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1024 * 1024)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options
