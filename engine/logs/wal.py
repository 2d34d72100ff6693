"""The write-ahead log (WAL) below the embedded log: how much of it was acknowledged, and repair of a torn tail.

Basics
  RocksDB's WALs are files of 32 KiB blocks. A block holds fragments: a header (masked CRC-32C of type and payload,
  length, type) and a payload. A record is one whole fragment, or a first, middle ones and a last. Its payload begins
  with the sequence number of its first write and the count of its writes.
  Beside the database lies a marker: up to which WAL, byte and sequence number all was fsynced and acknowledged.
  It is overwritten in place after each fsync and before anyone is answered, so it is a lower bound.
  Before RocksDB opens, every WAL is walked. Damage in what was not acknowledged is a torn tail, and is cut off. Damage
  in what was acknowledged is `LogCorrupt`, and nothing is touched.

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

import functools
import logging
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.logs.interface import LogCorrupt
from engine.logs.manifest import NOTHING_WRITTEN, Manifest, read_manifest

_log = logging.getLogger(__name__)

_BLOCK_BYTES: Final = 32 * 1024
_FRAGMENT_HEADER: Final = struct.Struct("<IHB")
_RECORD_HEADER: Final = struct.Struct("<QI")
_ZERO, _FULL, _FIRST, _MIDDLE, _LAST = range(5)

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
    next_sequence: int | None = None
    cuts: list[tuple[Path, int, _Damage]] = []
    for number, path in wal_files(directory):
        if number < manifest.logs_from:
            continue
        data = path.read_bytes()
        if next_sequence is None and (acknowledged is None or acknowledged.sequence > manifest.last_sequence):
            _refuse_gap(path, data, manifest)
        bound = _acknowledged_bytes(number, len(data), acknowledged)
        if len(data) < bound:
            raise _corrupt(path, _Damage(len(data), len(data), f"the file ends, {bound} bytes were acknowledged"))
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
            "lost. It does not open, and nothing was changed. Restore it from a backup."
        )
    for path, cut_bytes, damage in cuts:
        _log.warning(
            "%s is damaged at byte %d: %s. Nothing from there on was acknowledged; its last %d bytes are cut off.",
            path, damage.offset, damage.reason, cut_bytes,
        )  # fmt: skip
        _truncate(path, damage.keep)


def cut_at_damage(directory: Path) -> None:
    """Cut the WALs of a database that can be made again at the first place where their structure is damaged.

    RocksDB may loop for ever over a fragment of an unknown type, so it must not meet one. Nor must it meet a WAL that
    does not go on where the tables or the WAL before it end: it would open with a hole. Checksums are left to it.
    """
    manifest = read_manifest(directory) or NOTHING_WRITTEN
    damage: _Damage | None = None
    next_sequence: int | None = None
    for number, path in wal_files(directory):
        if number < manifest.logs_from:
            continue
        if damage is not None:
            path.unlink()
            continue
        data = path.read_bytes()
        if next_sequence is None and (sequence := _first_sequence(data)) > manifest.last_sequence + 1:
            damage = _Damage(0, 0, f"sequence number {sequence}, and the tables end at {manifest.last_sequence}")
        else:
            damage, next_sequence = _walk(data, len(data), next_sequence)
        if damage is not None:
            _log.warning("%s is damaged at byte %d: %s; it is cut there", path, damage.offset, damage.reason)
            _truncate(path, damage.keep)


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
    if len(data) < _FRAGMENT_HEADER.size + _RECORD_HEADER.size:
        return 0
    return int(_RECORD_HEADER.unpack_from(data, _FRAGMENT_HEADER.size)[0])


def _refuse_gap(path: Path, data: bytes, manifest: Manifest) -> None:
    if (sequence := _first_sequence(data)) > manifest.last_sequence + 1:
        raise LogCorrupt(
            f"{path} begins with sequence number {sequence}, and the tables beside it end at {manifest.last_sequence}: "
            "the MANIFEST has lost its end, or a write-ahead log is missing. Acknowledged records are lost, so the log "
            "does not open, and nothing was changed. Restore it from a backup."
        )


def _corrupt(path: Path, damage: _Damage) -> LogCorrupt:
    return LogCorrupt(
        f"{path} is damaged at byte {damage.offset}: {damage.reason}. Acknowledged records may be damaged or lost, "
        "so the log does not open, and nothing was changed. Restore it from a backup."
    )


def _truncate(path: Path, length: int) -> None:
    with path.open("r+b") as file:
        file.truncate(length)
        os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class _Damage:
    offset: int
    keep: int
    """Where the last whole record before the damage ends."""
    reason: str


class _Damaged(Exception):
    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(offset, reason)
        self.offset = offset
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Fragment:
    offset: int
    end: int
    kind: int
    head: bytes
    """The payload's beginning, as much as a record's header may take."""


@dataclass(frozen=True, slots=True)
class _Record:
    end: int
    next_sequence: int


def _walk(data: bytes, bound: int, next_sequence: int | None) -> tuple[_Damage | None, int | None]:
    """Return the first damage in a WAL's bytes, and the sequence number that should follow its last whole record.

    Before `bound` checksums are left out, and sequence numbers go on from `next_sequence` without a gap. After it a gap
    is legal: of two unacknowledged writes a loss of power may spare the second.
    """
    keep = 0
    try:
        for record in _records(data, bound, next_sequence):
            keep, next_sequence = record.end, record.next_sequence
    except _Damaged as damaged:
        return _Damage(damaged.offset, keep, damaged.reason), next_sequence
    return None, next_sequence


def _records(data: bytes, bound: int, next_sequence: int | None) -> Iterator[_Record]:
    fragments: list[_Fragment] = []
    for fragment in _fragments(data, bound):
        if fragment.kind > _LAST:
            continue
        if (fragment.kind in (_FULL, _FIRST)) == bool(fragments):
            raise _Damaged(fragment.offset, "a fragment is out of place")
        fragments.append(fragment)
        if fragment.kind in (_FIRST, _MIDDLE):
            continue
        start = fragments[0].offset
        head = b"".join(each.head for each in fragments)
        if len(head) < _RECORD_HEADER.size:
            raise _Damaged(start, "a record is too short")
        sequence, count = _RECORD_HEADER.unpack_from(head)
        if start < bound and next_sequence not in (None, sequence):
            raise _Damaged(start, f"sequence number {sequence} where {next_sequence} should be")
        next_sequence = sequence + count
        yield _Record(fragment.end, next_sequence)
        fragments.clear()
    if fragments:
        raise _Damaged(fragments[0].offset, "a record is cut short")


def _fragments(data: bytes, bound: int) -> Iterator[_Fragment]:
    offset = 0
    while offset < len(data):
        block_end = offset - offset % _BLOCK_BYTES + _BLOCK_BYTES
        if block_end - offset < _FRAGMENT_HEADER.size:  # Padding.
            offset = block_end
            continue
        if len(data) - offset < _FRAGMENT_HEADER.size:
            raise _Damaged(offset, "a record is cut short")
        checksum, length, kind = _FRAGMENT_HEADER.unpack_from(data, offset)
        payload = offset + _FRAGMENT_HEADER.size
        end = payload + length
        if end > min(block_end, len(data)) or offset < bound < end:
            raise _Damaged(offset, "a record is cut short, or its length is wrong")
        if kind == _ZERO:
            raise _Damaged(offset, "zeros where a record should be")
        # A type unknown here may be a newer RocksDB's; its checksum tells.
        if (offset >= bound or kind > _LAST) and checksum != _masked(crc32c(data[payload - 1 : end])):
            raise _Damaged(offset, "checksum mismatch")
        yield _Fragment(offset, end, kind, data[payload : min(end, payload + _RECORD_HEADER.size)])
        offset = end


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of `data`. Takes about 0.15 s a megabyte."""
    table = _crc_table()
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


@functools.cache
def _crc_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [(value >> 1) ^ (0x82F63B78 if value & 1 else 0) for value in table]
    return table


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
