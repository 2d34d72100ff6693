"""A local copy of a log that is elsewhere: what was read and appended, in one RocksDB, for reads that cannot wait.

Basics
  A key is partition (2 bytes) and position (8 bytes), big-endian; a value is the CRC-32 of the record (4 bytes,
  big-endian), then the record. Under `b"e"` and the partition stands the copy's **end**: all that the log holds below
  it is here. It changes in the same write as the records, so what a loss of power takes shows as a lower end.
  Nothing here is a truth: a copy that cannot be opened is thrown away, and what is missing or damaged in it is told as
  missing, to be copied again.
  What is only held (`hold`) waits in memory for the next write, so that one write serves many batches.

Caveats
  Everything here blocks and holds the GIL; one write takes what `write_bytes_max` allows, and callers let others run
  between two.
"""

from __future__ import annotations

import logging
import shutil
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from rocksdict import BlockBasedOptions, DBRecoveryMode, Options, Rdict, WriteBatch

from engine.durable import make_folder
from engine.logs.interface import LogCorrupt, LogEntry, LogError, LogUnavailable
from engine.logs.manifest import read_manifest
from engine.logs.rocks import translated

_log = logging.getLogger("runstore.copy")

write_bytes_max: Final = 1024 * 1024
write_records_max: Final = 1000
write_buffer_bytes: Final = 16 * 1024 * 1024
wal_bytes_max: Final = 64 * 1024 * 1024

_KEY: Final = struct.Struct(">HQ")
_END_KEY: Final = struct.Struct(">cH")
_CRC_BYTES: Final = 4
_HELD_ENTRIES: Final = 1000


class LocalCopy:
    """The open copy. For one thread."""

    def __init__(self, path: Path, partitions: int) -> None:
        """Open the copy, or begin a new one where there is none that can be opened. Raises `LogUnavailable`."""
        self._path = path
        self._partitions = partitions
        self._ends: list[int] = []
        self._written_ends: list[int] = []
        self._forget_waiting()
        try:
            make_folder(path.parent)
            self._open()
        except OSError as error:
            raise LogUnavailable(f"the copy of the log {path} could not be opened: {error}") from error

    def end(self, partition: int) -> int:
        """Return up to where the copy holds all that the log does."""
        return self._ends[partition]

    def hold(self, partition: int, entries: Sequence[LogEntry], end: int) -> None:
        """Hold these entries, new ones, up to the copy's new end; they are written later. Raises what `flush` does."""
        size = sum(len(entry.data) for entry in entries)
        if self._waiting_bytes + size > write_bytes_max or len(self._waiting) + len(entries) > write_records_max:
            self.flush()
        for entry in entries:
            self._waiting[_KEY.pack(partition, entry.offset)] = entry.data
        self._waiting_bytes += size
        self._ends[partition] = self._waiting_ends[partition] = end

    def flush(self) -> None:
        """Write what waits. Raises a `LogError`: then what waited is missing, and the ends are what was written."""
        if self._waiting_ends:
            records, ends = self._waiting, self._waiting_ends
            self._forget_waiting()
            self._write(records.items(), ends, next(iter(ends)))

    def write(self, partition: int, entries: Sequence[LogEntry], end: int | None = None) -> None:
        """Write these entries, in place of what was there; `end` is the copy's new end. Raises a `LogError`."""
        self.flush()
        records = ((_KEY.pack(partition, entry.offset), entry.data) for entry in entries)
        self._write(records, {} if end is None else {partition: end}, partition)

    def _write(self, records: Iterable[tuple[bytes, bytes]], ends: Mapping[int, int], partition: int) -> None:
        batch = WriteBatch(raw_mode=True)
        for key, record in records:
            batch.put(key, zlib.crc32(record).to_bytes(_CRC_BYTES, "big") + record)
        for each, end in ends.items():
            batch.put(_END_KEY.pack(b"e", each), end.to_bytes(8, "big"))
        try:
            with translated("copied", partition):
                self._database.write(batch)
        except LogError:
            self._ends = list(self._written_ends)
            raise
        for each, end in ends.items():
            self._ends[each] = self._written_ends[each] = end

    def _forget_waiting(self) -> None:
        self._waiting: dict[bytes, bytes] = {}
        self._waiting_bytes = 0
        self._waiting_ends: dict[int, int] = {}

    def fetch(self, partition: int, positions: Iterable[int]) -> list[bytes | None]:
        """Return the records at these positions; None for one that is missing or damaged."""
        keys = [_KEY.pack(partition, position) for position in positions]
        found: dict[bytes, bytes | None] = {key: self._waiting[key] for key in keys if key in self._waiting}
        if len(found) < len(keys):
            written = [key for key in keys if key not in found]
            found.update(zip(written, map(_checked, self._get_all(partition, written)), strict=True))
        return [found[key] for key in keys]

    def stored(self, partition: int, begin: int, end: int, records_max: int) -> list[tuple[int, bytes | None]]:
        """Return what is held from a position to before another, None for what is damaged. Raises a `LogError`."""
        self.flush()
        found: list[tuple[int, bytes | None]] = []
        end_key = _KEY.pack(partition, end)
        with translated("read", partition, begin):
            iterator = self._database.iter()
            try:
                iterator.seek(_KEY.pack(partition, begin))
                while len(found) < records_max and iterator.valid() and (key := iterator.key()) < end_key:
                    if len(key) == _KEY.size:
                        found.append((int.from_bytes(key[2:], "big"), _checked(iterator.value())))
                    iterator.next()
                iterator.status()
            finally:
                del iterator
        return found

    def held(self, partition: int, begin: int) -> Iterator[LogEntry]:
        """Yield what is held from a position on, without what is damaged; nothing may be written meanwhile."""
        self.flush()
        while found := self._held(partition, begin):
            yield from found
            begin = found[-1].offset + 1

    def cut(self, partition: int, end: int) -> None:
        """Hold nothing from a position on. Raises a `LogError`."""
        self.flush()
        batch = WriteBatch(raw_mode=True)
        batch.delete_range(_KEY.pack(partition, end), _KEY.pack(partition, 2**64 - 1))
        end = min(end, self._ends[partition])
        batch.put(_END_KEY.pack(b"e", partition), end.to_bytes(8, "big"))
        with translated("cut", partition):
            self._database.write(batch)
        self._ends[partition] = self._written_ends[partition] = end

    def begin_anew(self) -> None:
        """Throw the copy away and begin an empty one. Raises `LogUnavailable` or `OSError`."""
        self._forget_waiting()
        self.close()
        shutil.rmtree(self._path)
        self._open()

    def close(self) -> None:
        """Write what waits, and release the files. A failure is logged: what it loses is copied again."""
        try:
            self.flush()
        except LogError as error:
            _log.warning("the copy of the log %s: %s", self._path, error)
        try:
            with translated("closed"):
                self._database.close()
        except (LogCorrupt, LogUnavailable) as error:
            _log.warning("the copy of the log %s: %s", self._path, error)

    def _open(self) -> None:
        if (damage := _damage(self._path)) is None:
            try:
                self._open_database()
            except (LogCorrupt, LogUnavailable) as error:
                damage = str(error)
            else:
                return
        _log.error("the copy of the log %s is damaged, and made anew from the log: %s", self._path, damage)
        if self._path.is_dir():
            shutil.rmtree(self._path)
        else:
            self._path.unlink(missing_ok=True)
        self._open_database()

    def _open_database(self) -> None:
        with translated("opened"):
            self._database = Rdict(str(self._path), _options(), column_families={"default": _options()})
        try:
            with translated("read"):
                found = [self._database.get(_END_KEY.pack(b"e", each)) for each in range(self._partitions)]
        except BaseException:
            self._database.close()
            raise
        self._written_ends = [int.from_bytes(each, "big") if each is not None else 0 for each in found]
        self._ends = list(self._written_ends)

    def _get_all(self, partition: int, keys: list[bytes]) -> list[bytes | None]:
        try:
            with translated("read", partition):
                return list(self._database.get([*keys]) or ())
        except LogCorrupt:
            # A damaged block fails them all.
            return [self._get(partition, key) for key in keys]

    def _get(self, partition: int, key: bytes) -> bytes | None:
        try:
            with translated("read", partition):
                value: bytes | None = self._database.get(key)
        except LogCorrupt:
            return None
        return value

    def _held(self, partition: int, begin: int) -> list[LogEntry]:
        found: list[LogEntry] = []
        end_key = _KEY.pack(partition, 2**64 - 1)
        iterator = self._database.iter()
        try:
            iterator.seek(_KEY.pack(partition, begin))
            while len(found) < _HELD_ENTRIES and iterator.valid() and (key := iterator.key()) < end_key:
                record = _checked(iterator.value())
                if record is not None and len(key) == _KEY.size:
                    found.append(LogEntry(int.from_bytes(key[2:], "big"), record))
                iterator.next()
        finally:
            del iterator
        return found


def pieces(entries: Sequence[LogEntry]) -> Iterator[Sequence[LogEntry]]:
    """Split entries into what one write takes; one that is larger alone is a write of its own."""
    begin = size = 0
    for index, entry in enumerate(entries):
        if index > begin and (index - begin >= write_records_max or size + len(entry.data) > write_bytes_max):
            yield entries[begin:index]
            begin, size = index, 0
        size += len(entry.data)
    if begin < len(entries):
        yield entries[begin:]


def _damage(path: Path) -> str | None:
    """What is wrong with a copy before it is opened: RocksDB may loop for ever over a damaged manifest."""
    if not path.exists():
        return None
    if not path.is_dir() or (any(path.iterdir()) and not (path / "CURRENT").exists()):
        return "it has lost its file CURRENT"
    manifest = read_manifest(path)
    return None if manifest is None or manifest.damage is None else manifest.damage.reason


def _checked(value: bytes | None) -> bytes | None:
    if value is None or len(value) < _CRC_BYTES:
        return None
    record = value[_CRC_BYTES:]
    return record if int.from_bytes(value[:_CRC_BYTES], "big") == zlib.crc32(record) else None


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_paranoid_checks(True)
    # Its log is never synced: what a loss of power leaves of it counts up to the first gap, and the rest is read again.
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    options.set_write_buffer_size(write_buffer_bytes)
    options.set_max_write_buffer_number(4)
    options.set_max_total_wal_size(wal_bytes_max)
    # A write that RocksDB holds up holds the GIL, and with it the whole process: let compaction fall behind instead.
    options.set_level_zero_slowdown_writes_trigger(200)
    options.set_level_zero_stop_writes_trigger(400)
    options.set_soft_pending_compaction_bytes_limit(0)
    options.set_hard_pending_compaction_bytes_limit(0)
    options.set_max_background_jobs(2)
    options.set_max_open_files(256)
    blocks = BlockBasedOptions()
    blocks.set_block_size(16 * 1024)
    options.set_block_based_table_factory(blocks)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1024 * 1024)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options
