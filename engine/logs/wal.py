"""The write-ahead log (WAL) below the embedded log: how much of it was acknowledged, and repair of a torn tail.

Basics
  RocksDB's WALs are files of records (see `engine.logs.blocks`). A record's payload begins with the sequence number of
  its first write and the count of its writes.
  Beside the database lies a marker: up to which WAL, byte and sequence number all was fsynced and acknowledged.
  It is overwritten in place after each fsync and before anyone is answered, so it is a lower bound.
  Before RocksDB opens, every WAL is walked. Damage in what was not acknowledged is a torn tail, and is cut off. Damage
  in what was acknowledged is `LogCorrupt`, and nothing is touched. A torn end of the manifest is cut off where nothing
  that was acknowledged is missing without it.

Caveats
  RocksDB alone is too kind and too strict at once: it drops, without a word, a last record that is cut short or whose
  length is damaged, acknowledged or not, and refuses to open for a wrong checksum in a tail that nobody was told of.
  Below the marker only the structure and the sequence numbers are checked here. The checksums there are left to RocksDB
  when it opens, since Python needs a second for 7 MB of them.
  The marker is fsynced only now and then, so after a loss of power it may be older than the truth, and damage above it
  then passes for a torn tail. Without a marker everything counts as acknowledged.
  WALs must not be recycled (an option of the database), or a file could hold an older file's records.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.durable import RESTORE
from engine.logs import blocks
from engine.logs.blocks import Damage, Damaged, truncate
from engine.logs.interface import LogCorrupt
from engine.logs.manifest import NOTHING_WRITTEN, Manifest, read_manifest

_log = logging.getLogger(__name__)

_RECORD_HEADER: Final = struct.Struct("<QI")

_MARKER: Final = struct.Struct(">4sQQQ")
_MARKER_MAGIC: Final = b"ack1"
_MARKER_BYTES: Final = _MARKER.size + 4


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A lower bound of what was acknowledged: every WAL before `wal_number`, and of that one `wal_bytes` bytes."""

    wal_number: int
    wal_bytes: int
    sequence: int
    """RocksDB's sequence number of the last acknowledged write."""


class Marker:
    """The file that holds `Acknowledged`: 32 bytes in one disk sector, so that an overwrite is never half done."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def load(self) -> Acknowledged | None:
        """Return what was stored, or None where there is nothing or it cannot be read."""
        data = os.pread(self._file, _MARKER_BYTES, 0)
        if len(data) != _MARKER_BYTES or int.from_bytes(data[-4:], "big") != zlib.crc32(data[:-4]):
            return None
        magic, wal_number, wal_bytes, sequence = _MARKER.unpack(data[:-4])
        return Acknowledged(wal_number, wal_bytes, sequence) if magic == _MARKER_MAGIC else None

    def store(self, acknowledged: Acknowledged) -> None:
        """Overwrite in place. That survives the end of this process; a loss of power, only after `sync`."""
        data = _MARKER.pack(_MARKER_MAGIC, acknowledged.wal_number, acknowledged.wal_bytes, acknowledged.sequence)
        os.pwrite(self._file, data + zlib.crc32(data).to_bytes(4, "big"), 0)

    def sync(self) -> None:
        """Wait until what was stored would survive a loss of power."""
        os.fsync(self._file)

    def close(self) -> None:
        """Release the file."""
        os.close(self._file)


class WalEnd:
    """Which WAL the last write went to, and how long that file was then. `advance` must follow every single write.

    RocksDB does not say, but a write makes the current WAL longer; where it did not, RocksDB has begun another.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.number, self._file, self.length = _open_newest(directory)

    def advance(self) -> None:
        """Notice where the write that just returned went."""
        length = os.fstat(self._file).st_size
        if length > self.length:
            self.length = length
            return
        os.close(self._file)
        self.number, self._file, self.length = _open_newest(self._directory)

    def close(self) -> None:
        """Release the file."""
        os.close(self._file)


def _open_newest(directory: Path) -> tuple[int, int, int]:
    number, path = wal_files(directory)[-1]
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return number, file, os.fstat(file).st_size


def wal_files(directory: Path) -> list[tuple[int, Path]]:
    """Return the WALs in a database's folder with their numbers, oldest first."""
    return sorted((int(path.stem), path) for path in directory.glob("*.log") if path.stem.isdigit())


def repair_tail(directory: Path, acknowledged: Acknowledged | None) -> None:
    """Cut off what is damaged at the WALs' tail, if none of it was acknowledged.

    To be called before RocksDB opens, by the process that holds the log's lock. None: all counts as acknowledged.
    Raises `LogCorrupt`, having changed nothing, for damage anywhere else.
    """
    manifest = read_manifest(directory) or NOTHING_WRITTEN
    _refuse_damaged(manifest, acknowledged)
    next_sequence: int | None = None
    cuts: list[tuple[Path, int, Damage]] = []
    files = [(number, path) for number, path in wal_files(directory) if number >= manifest.logs_from]
    for number, path in files:
        data = path.read_bytes()
        if next_sequence is None and (acknowledged is None or acknowledged.sequence > manifest.last_sequence):
            _refuse_gap(path, data, manifest)
        bound = _acknowledged_bytes(number, len(data), acknowledged)
        if len(data) < bound:
            raise _corrupt(path, Damage(len(data), len(data), f"the file ends, {bound} bytes were acknowledged"))
        damage, next_sequence = _walk(data, bound, next_sequence)
        if damage is None:
            continue
        if damage.keep < bound:
            raise _corrupt(path, damage)
        cuts.append((path, len(data) - damage.keep, damage))
    reached = max(manifest.last_sequence, (next_sequence or 0) - 1)
    if acknowledged is not None and reached < acknowledged.sequence:
        raise LogCorrupt(
            f"{directory} ends at sequence number {reached}, but {acknowledged.sequence} was acknowledged: records are "
            f"lost. It does not open, and nothing was changed. {RESTORE}"
        )
    _refuse_missing(directory, files, manifest, acknowledged)
    if manifest.damage is not None:
        _log.warning(
            "%s is torn at byte %d: %s. Its last edit was never synced, and nothing is missing without it; its last %d "
            "bytes are cut off.",
            manifest.path, manifest.damage.offset, manifest.damage.reason, manifest.lost_bytes,
        )  # fmt: skip
        manifest.cut()
    for path, cut_bytes, damage in cuts:
        _log.warning(
            "%s is damaged at byte %d: %s. Nothing from there on was acknowledged; its last %d bytes are cut off.",
            path, damage.offset, damage.reason, cut_bytes,
        )  # fmt: skip
        truncate(path, damage.keep)


def cut_at_damage(directory: Path) -> None:
    """Cut the WALs of a database that can be made again at the first place where their structure is damaged.

    RocksDB may loop for ever over a fragment of an unknown type, so it must not meet one. Nor must it meet a WAL that
    does not go on where the tables or the WAL before it end: it would open with a hole. Checksums are left to it.
    """
    manifest = read_manifest(directory) or NOTHING_WRITTEN
    damage: Damage | None = None
    next_sequence: int | None = None
    for number, path in wal_files(directory):
        if number < manifest.logs_from:
            continue
        if damage is not None:
            path.unlink()
            continue
        data = path.read_bytes()
        if next_sequence is None and (sequence := _first_sequence(data)) > manifest.last_sequence + 1:
            damage = Damage(0, 0, f"sequence number {sequence}, and the tables end at {manifest.last_sequence}")
        else:
            damage, next_sequence = _walk(data, len(data), next_sequence)
        if damage is not None:
            _log.warning(
                "%s is damaged at byte %d: %s; it is cut there. After a loss of power this is expected; it is read "
                "again from the log.",
                path, damage.offset, damage.reason,
            )  # fmt: skip
            truncate(path, damage.keep)


def first_damage(directory: Path) -> LogCorrupt | None:
    """Return where the WALs are damaged, going by every checksum (slow), for a database that RocksDB does not open."""
    for _number, path in wal_files(directory):
        damage, _ = _walk(path.read_bytes(), 0, None)
        if damage is not None:
            return _corrupt(path, damage)
    return None


def _acknowledged_bytes(number: int, length: int, acknowledged: Acknowledged | None) -> int:
    if acknowledged is None or number < acknowledged.wal_number:
        return length
    return acknowledged.wal_bytes if number == acknowledged.wal_number else 0


def _first_sequence(data: bytes) -> int:
    """The sequence number that a WAL begins with, 0 where that is not to be had."""
    if len(data) < blocks.HEADER_BYTES + _RECORD_HEADER.size:
        return 0
    return int(_RECORD_HEADER.unpack_from(data, blocks.HEADER_BYTES)[0])


def _refuse_damaged(manifest: Manifest, acknowledged: Acknowledged | None) -> None:
    """Refuse a damaged manifest, unless its end is torn and no table is missing without that."""
    if manifest.damage is None:
        return
    missing = manifest.missing_tables()
    if acknowledged is None or not manifest.torn or missing:
        why = f", and {missing[0].name}, which it names before that, is missing" if missing else ""
        raise LogCorrupt(
            f"{manifest.path} is damaged at byte {manifest.damage.offset}: {manifest.damage.reason}{why}. Acknowledged "
            f"records may be lost, so it does not open, and nothing was changed. {RESTORE}"
        )


def _refuse_missing(
    directory: Path, files: list[tuple[int, Path]], manifest: Manifest, acknowledged: Acknowledged | None
) -> None:
    """Refuse when the WAL that was acknowledged last is needed and not there."""
    if acknowledged is None or acknowledged.wal_bytes == 0 or acknowledged.wal_number < manifest.logs_from:
        return
    if acknowledged.wal_number not in dict(files):
        raise LogCorrupt(
            f"{directory / f'{acknowledged.wal_number:06}.log'} is missing: acknowledged records are lost. It does "
            f"not open, and nothing was changed. {RESTORE}"
        )


def _refuse_gap(path: Path, data: bytes, manifest: Manifest) -> None:
    if (sequence := _first_sequence(data)) > manifest.last_sequence + 1:
        raise LogCorrupt(
            f"{path} begins with sequence number {sequence}, and the tables beside it end at {manifest.last_sequence}: "
            "the MANIFEST has lost its end, or a write-ahead log is missing. Acknowledged records are lost, so it "
            f"does not open, and nothing was changed. {RESTORE}"
        )


def _corrupt(path: Path, damage: Damage) -> LogCorrupt:
    return LogCorrupt(
        f"{path} is damaged at byte {damage.offset}: {damage.reason}. Acknowledged records may be damaged or lost, "
        f"so it does not open, and nothing was changed. {RESTORE}"
    )


def _walk(data: bytes, bound: int, next_sequence: int | None) -> tuple[Damage | None, int | None]:
    """Return the first damage in a WAL's bytes, and the sequence number that should follow its last whole record.

    Before `bound` checksums are left out, and sequence numbers go on from `next_sequence` without a gap. After it a gap
    is legal: of two unacknowledged writes a loss of power may spare the second.
    """
    keep = 0
    try:
        for record in blocks.records(data, bound):
            head = record.payload(data, _RECORD_HEADER.size)
            if len(head) < _RECORD_HEADER.size:
                return Damage(record.start, keep, "a record is too short"), next_sequence
            sequence, count = _RECORD_HEADER.unpack_from(head)
            if record.start < bound and next_sequence not in (None, sequence):
                reason = f"sequence number {sequence} where {next_sequence} should be"
                return Damage(record.start, keep, reason), next_sequence
            keep, next_sequence = record.end, sequence + count
    except Damaged as damaged:
        return Damage(damaged.offset, keep, damaged.reason), next_sequence
    return None, next_sequence
