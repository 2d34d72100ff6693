"""The embedded log's files: a lock, a marker of what was acknowledged, and one RocksDB with a key for each record.

Basics
  `lock` is held (flock) while the log is open. `acknowledged` is the marker (see `engine.logs.wal`). `rocksdb/` holds
  the records: key = partition (2 bytes) and position (8 bytes), big-endian; value = CRC-32 of the record (4 bytes,
  big-endian), then the record.

Caveats
  Everything here blocks, and holds the GIL in all but `sync` and `close`.
  RocksDB's iterators end quietly where a block is damaged; only their `status()` tells.
  An iterator keeps the database locked, so each is deleted before its method returns, also when it raises.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rocksdict import WriteBatch, WriteOptions

from engine.durable import RESTORE, make_folder, sync_folder
from engine.logs import wal
from engine.logs.interface import LogCorrupt, LogEntry, LogError, LogUnavailable
from engine.logs.rocks import open_database, translated

_log = logging.getLogger(__name__)

position_max: Final = 2**63 - 1
read_bytes_max: Final = 4 * 1024 * 1024
marker_lag_bytes_max: Final = 4 * 1024 * 1024
"""How much may be acknowledged before the marker itself is fsynced again."""

_KEY: Final = struct.Struct(">HQ")
_CRC_BYTES: Final = 4


class LogLocked(LogError):
    """Another process, or another object in this one, has the log open."""


class LogFiles:
    """The open files of an embedded log. For one thread, but `sync` may run in another beside anything but `close`."""

    def __init__(self, path: Path, partitions: int, *, merging: bool = True) -> None:
        """Open, or make, the log under `path`. Raises `LogLocked`, `LogCorrupt` or `LogUnavailable`.

        `merging` is False for a log with a damaged table: merging would meet it, and RocksDB take no more writes.
        """
        self._path = path
        self._merging = merging
        self._partitions = partitions
        self._unsynced_marker_bytes = 0
        self._write_options = WriteOptions()
        self._write_options.no_slowdown = True  # See `engine.logs.rocks`.
        with contextlib.ExitStack() as opened:
            try:
                self._open(opened)
            except OSError as error:
                raise LogUnavailable(f"{path} could not be opened: {error}") from error
            self._opened = opened.pop_all()

    def _open(self, opened: contextlib.ExitStack) -> None:
        directory = self._path / "rocksdb"
        make_folder(directory)
        opened.callback(os.close, _lock(self._path / "lock"))
        self._marker = wal.Marker(self._path / "acknowledged")
        opened.callback(self._marker.close)
        acknowledged = self._marker.load()
        wal.repair_tail(directory, acknowledged)
        self._database = open_database(directory, merging=self._merging)
        opened.callback(self._close_database)
        self._check(acknowledged)
        self._wal_end = wal.WalEnd(directory)
        opened.callback(self._wal_end.close)
        self._marker.store(self._written())
        self._marker.sync()
        sync_folder(self._path)
        self.damaged_ends: dict[int, LogCorrupt] = {}
        """The partitions whose end cannot be told, because a record there cannot be read, and why."""
        self.ends_at_opening = [self._end(partition) for partition in range(self._partitions)]
        """Each partition's end: the position after its last record, 0 where there is none."""

    def _check(self, acknowledged: wal.Acknowledged | None) -> None:
        sequence = self._database.latest_sequence_number()
        if acknowledged is not None and sequence < acknowledged.sequence:
            raise LogCorrupt(
                f"{self._path} ends at sequence number {sequence}, but {acknowledged.sequence} was acknowledged: "
                f"records are lost. {RESTORE}"
            )
        with translated("looked through"):
            iterator = self._database.iter()
            try:
                iterator.seek(_KEY.pack(self._partitions, 0))
                stray = _KEY.unpack(iterator.key()) if iterator.valid() else None
                iterator.status()
            finally:
                del iterator
        if stray is not None:
            raise LogError(f"{self._path} holds more than {self._partitions} partitions", partition=stray[0])

    def write(self, batches: Sequence[tuple[int, int, Sequence[bytes]]]) -> wal.Acknowledged:
        """Write batches (partition, position, records) as one, and return what `acknowledge` may store once synced.

        Raises `WriteStalled`, with nothing written, or `LogUnavailable`: after that only closing makes sense.
        """
        write_batch = WriteBatch(raw_mode=True)
        for partition, position, records in batches:
            for at, record in enumerate(records, position):
                write_batch.put(_KEY.pack(partition, at), zlib.crc32(record).to_bytes(_CRC_BYTES, "big") + record)
        self._unsynced_marker_bytes += write_batch.size_in_bytes()
        with translated("written to"):
            self._database.write(write_batch, self._write_options)
        self._wal_end.advance()
        return self._written()

    def sync(self) -> None:
        """Wait until all that was written before this call would survive a loss of power. Releases the GIL.

        Raises `LogUnavailable`: after that only closing makes sense.
        """
        with translated("synced"):
            self._database.flush_wal(sync=True)
        if self._unsynced_marker_bytes > marker_lag_bytes_max:
            self._unsynced_marker_bytes = 0
            self._marker.sync()

    def acknowledge(self, written: wal.Acknowledged) -> None:
        """Note that a `sync` that began after this was written has returned. Comes before any answer."""
        self._marker.store(written)

    def read(self, partition: int, position: int, end: int, records_max: int) -> list[LogEntry]:
        """Return entries from `position` to before `end`, as many as fit the bounds, in order.

        What comes before damage is returned; a read that begins within it raises `LogCorrupt`, with where it begins.
        """
        entries: list[LogEntry] = []
        try:
            with translated("read", partition, position):
                self._read(partition, position, end, records_max, entries)
        except LogCorrupt as error:
            if not entries:
                raise self._placed(error, partition, position) from error
        except LogError:
            if not entries:
                raise
        return entries

    def _read(self, partition: int, position: int, end: int, records_max: int, entries: list[LogEntry]) -> None:
        end_key = _KEY.pack(partition, end)
        bytes_left = read_bytes_max
        iterator = self._database.iter()
        try:
            iterator.seek(_KEY.pack(partition, position))
            while bytes_left > 0 and len(entries) < records_max and iterator.valid():
                key = iterator.key()
                if key >= end_key:
                    return
                at = int.from_bytes(key[2:], "big")
                record = _checked(iterator.value(), partition, at)
                entries.append(LogEntry(at, record))
                bytes_left -= len(record)
                iterator.next()
            iterator.status()
        finally:
            del iterator

    def fetch(self, partition: int, positions: Sequence[int]) -> list[bytes]:
        """Return the records at exactly these positions. Raises `LogCorrupt` where one is missing or damaged."""
        keys: list[str | int | float | bytes | bool] = [_KEY.pack(partition, position) for position in positions]
        try:
            with translated("read", partition):
                values = self._database.get(keys)
        except LogCorrupt:
            # A damaged block fails them all; one by one, the damage gets its position.
            values = [self._placed_get(partition, position) for position in positions]
        assert values is not None
        return [_checked(value, partition, position) for value, position in zip(values, positions, strict=True)]

    def _get(self, partition: int, position: int) -> bytes | None:
        with translated("read", partition, position):
            value: bytes | None = self._database.get(_KEY.pack(partition, position))
        return value

    def _placed_get(self, partition: int, position: int) -> bytes | None:
        try:
            return self._get(partition, position)
        except LogCorrupt as error:
            raise self._placed(error, partition, position) from error

    def _placed(self, error: LogCorrupt, partition: int, position: int) -> LogCorrupt:
        """The error with the first position of the damage: a block holds many records, and a read begins at any."""
        step, begin, readable = 1, position, -1
        while begin > 0:
            probe = max(0, position - step)
            if self._readable(partition, probe):
                readable = probe
                break
            begin, step = probe, 2 * step
        while begin - readable > 1:
            probe = (begin + readable) // 2
            if self._readable(partition, probe):
                readable = probe
            else:
                begin = probe
        try:
            self._get(partition, begin)
        except LogCorrupt as first:
            return first
        return error

    def _readable(self, partition: int, position: int) -> bool:
        try:
            self._get(partition, position)
        except LogCorrupt:
            return False
        return True

    def close(self) -> None:
        """Flush what RocksDB has in memory and release everything. A failure is logged: nothing can be done."""
        self._opened.close()

    def _close_database(self) -> None:
        try:
            with translated("closed"):
                self._database.close()
        except LogError as error:
            _log.warning("%s: %s", self._path, error)

    def _end(self, partition: int) -> int:
        """Find a partition's end; note where damage hides it: a lower one, taken for true, would overwrite records."""
        try:
            with translated("looked through", partition):
                iterator = self._database.iter()
                try:
                    # Going backwards, RocksDB knows no bound: what it finds may be another partition's.
                    iterator.seek_for_prev(_KEY.pack(partition, position_max))
                    # The next seek would forget an error, and a damaged block looks like the end of everything.
                    iterator.status()
                    found, position = _KEY.unpack(iterator.key()) if iterator.valid() else (None, 0)
                finally:
                    del iterator
        except LogCorrupt as error:
            end = self._readable_end(partition)
            self.damaged_ends[partition] = LogCorrupt(
                f"partition {partition}: the record at position {end}, or one after it, is damaged: {error}",
                partition=partition,
                position=end,
            )
            return end
        return position + 1 if found == partition else 0

    def _readable_end(self, partition: int) -> int:
        """The position after the last record that can be reached from the first one."""
        end = 0
        iterator = self._database.iter()
        try:
            iterator.seek(_KEY.pack(partition, 0))
            while iterator.valid() and iterator.key()[:2] == _KEY.pack(partition, 0)[:2]:
                end = int.from_bytes(iterator.key()[2:], "big") + 1
                iterator.next()
        finally:
            del iterator
        return end

    def _written(self) -> wal.Acknowledged:
        return wal.Acknowledged(self._wal_end.number, self._wal_end.length, self._database.latest_sequence_number())


def _checked(value: bytes | None, partition: int, position: int) -> bytes:
    what = f"partition {partition}: the record at position {position}"
    if value is None:
        raise LogCorrupt(f"{what} is missing", partition=partition, position=position)
    record = value[_CRC_BYTES:]
    if int.from_bytes(value[:_CRC_BYTES], "big") != zlib.crc32(record) or len(value) < _CRC_BYTES:
        raise LogCorrupt(f"{what} is damaged", partition=partition, position=position)
    return record


def _lock(path: Path) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise LogLocked(f"{path} is locked: another process has this log open. Stop it first.") from None
    return file
