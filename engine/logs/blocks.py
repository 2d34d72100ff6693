"""The form of RocksDB's write-ahead logs and manifests: records in fragments with checksums, fragments in blocks.

Basics
  A file is blocks of 32 KiB. A block holds fragments: a header (masked CRC-32C of type and payload, length, type) and a
  payload. A record is one whole fragment, or a first, middle ones and a last. What is left of a block when no header
  fits any more is padding.
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BLOCK_BYTES: Final = 32 * 1024
_HEADER: Final = struct.Struct("<IHB")
HEADER_BYTES: Final = _HEADER.size
_ZERO, _FULL, _FIRST, _MIDDLE, _LAST = range(5)


class Damaged(Exception):
    """Something at `offset` is not as it was written."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(offset, reason)
        self.offset = offset
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Damage:
    """The first damage in a file."""

    offset: int
    keep: int
    """Where the last whole record before the damage ends."""
    reason: str


@dataclass(frozen=True, slots=True)
class Record:
    """Where a record lies, with its payload's parts as (begin, end)."""

    start: int
    end: int
    parts: tuple[tuple[int, int], ...]

    def payload(self, data: bytes, part_bytes_max: int | None = None) -> bytes:
        """Return the payload, or, with a bound, no more than so much of each part."""
        if part_bytes_max is None:
            return b"".join(data[begin:end] for begin, end in self.parts)
        return b"".join(data[begin : min(end, begin + part_bytes_max)] for begin, end in self.parts)


def records(data: bytes, bound: int) -> Iterator[Record]:
    """Yield the whole records, in order. Before `bound` checksums are left out. Raises `Damaged`."""
    parts: list[tuple[int, int]] = []
    start = 0
    for offset, end, kind in _fragments(data, bound):
        if kind > _LAST:
            continue
        if (kind in (_FULL, _FIRST)) == bool(parts):
            raise Damaged(offset, "a fragment is out of place")
        start = start if parts else offset
        parts.append((offset + HEADER_BYTES, end))
        if kind in (_FULL, _LAST):
            yield Record(start, end, tuple(parts))
            parts.clear()
    if parts:
        raise Damaged(start, "a record is cut short")


def _fragments(data: bytes, bound: int) -> Iterator[tuple[int, int, int]]:
    """Offset, end and type of each fragment."""
    offset = 0
    while offset < len(data):
        block_end = offset - offset % BLOCK_BYTES + BLOCK_BYTES
        if block_end - offset < HEADER_BYTES:  # Padding.
            offset = block_end
            continue
        if len(data) - offset < HEADER_BYTES:
            raise Damaged(offset, "a record is cut short")
        checksum, length, kind = _HEADER.unpack_from(data, offset)
        payload = offset + HEADER_BYTES
        end = payload + length
        if end > min(block_end, len(data)) or offset < bound < end:
            raise Damaged(offset, "a record is cut short, or its length is wrong")
        if kind == _ZERO:
            raise Damaged(offset, "zeros where a record should be")
        # A type unknown here may be a newer RocksDB's; its checksum tells.
        if (offset >= bound or kind > _LAST) and checksum != masked(crc32c(data[payload - 1 : end])):
            raise Damaged(offset, "checksum mismatch")
        yield offset, end, kind
        offset = end


def beginnings_after(data: bytes, offset: int) -> Iterator[bytes]:
    """Yield the payload of each whole fragment after `offset` that begins a record. Slow; for a damaged end."""
    for at in range(offset + 1, len(data) - HEADER_BYTES + 1):
        if data[at + HEADER_BYTES - 1] not in (_FULL, _FIRST):
            continue
        checksum, length, _ = _HEADER.unpack_from(data, at)
        payload = at + HEADER_BYTES
        end = payload + length
        fits = length > 0 and end <= min(len(data), at - at % BLOCK_BYTES + BLOCK_BYTES)
        if fits and checksum == masked(crc32c(data[payload - 1 : end])):
            yield data[payload:end]


def truncate(path: Path, length: int) -> None:
    """Cut a file, durably."""
    with path.open("r+b") as file:
        file.truncate(length)
        os.fsync(file.fileno())


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


def masked(crc: int) -> int:
    """Return a checksum as it is stored."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
