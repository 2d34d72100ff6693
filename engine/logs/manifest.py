"""The manifest of a RocksDB: up to which write its tables hold everything, and from which log on it needs the logs.

Basics
  A manifest is a file of the write-ahead logs' form (see `engine.logs.wal`), whose records are edits: tagged fields, of
  which those that are read here come first. `CURRENT` names the manifest that counts.

Caveats
  RocksDB takes a manifest that ends early for a whole one. Tables that only the lost end names are removed then, and
  the logs that came before them are gone: writes are missing in the middle, and nothing tells but the sequence numbers.
  What cannot be read here is left out: RocksDB itself refuses a manifest with a wrong checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BLOCK_BYTES: Final = 32 * 1024
_FRAGMENT_HEADER: Final = struct.Struct("<IHB")
_FULL, _FIRST, _LAST = 1, 2, 4

_COMPARATOR, _LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _PREVIOUS_LOG, _LOGS_FROM = 1, 2, 3, 4, 9, 10
_FAMILIES_MAX, _DATABASE_ID = 203, 2001
_TEXTS: Final = frozenset({_COMPARATOR, _DATABASE_ID})
_NUMBERS: Final = frozenset({_LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _PREVIOUS_LOG, _LOGS_FROM, _FAMILIES_MAX})


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a manifest says of writes and logs."""

    last_sequence: int
    """The tables hold every write up to some write before this, or this one; the logs go on no later than after it."""
    logs_from: int
    """Logs of lower numbers are given up, whether they have been removed or not."""


NOTHING_WRITTEN: Final = Manifest(0, 0)


def read_manifest(directory: Path) -> Manifest | None:
    """Return what the manifest of a database's folder says; None where there is none that can be read."""
    try:
        name = (directory / "CURRENT").read_text(encoding="ascii").strip()
        data = (directory / name).read_bytes()
    except (OSError, ValueError):
        return None
    last_sequence = logs_from = 0
    for edit in _records(data):
        fields = dict(_first_fields(edit))
        last_sequence = max(last_sequence, fields.get(_LAST_SEQUENCE, 0))
        logs_from = max(logs_from, fields.get(_LOGS_FROM, 0))
    return Manifest(last_sequence, logs_from)


def _records(data: bytes) -> Iterator[bytes]:
    """Whole records, up to the first that is not."""
    offset = 0
    parts: list[bytes] = []
    while offset < len(data):
        left = _BLOCK_BYTES - offset % _BLOCK_BYTES
        if left < _FRAGMENT_HEADER.size:
            offset += left
            continue
        if len(data) - offset < _FRAGMENT_HEADER.size:
            return
        _, length, kind = _FRAGMENT_HEADER.unpack_from(data, offset)
        end = offset + _FRAGMENT_HEADER.size + length
        if not _FULL <= kind <= _LAST or end > len(data) or (kind in (_FULL, _FIRST)) == bool(parts):
            return
        parts.append(data[offset + _FRAGMENT_HEADER.size : end])
        if kind in (_FULL, _LAST):
            yield b"".join(parts)
            parts.clear()
        offset = end


def _first_fields(edit: bytes) -> Iterator[tuple[int, int]]:
    """The numbers that come before an edit's list of tables, by their tags."""
    offset = 0
    while offset < len(edit):
        tag, offset = _varint(edit, offset)
        if tag not in _TEXTS | _NUMBERS:
            return
        value, offset = _varint(edit, offset)
        if tag in _TEXTS:
            offset += value
        else:
            yield tag, value


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while offset < len(data):
        byte = data[offset]
        value |= byte % 128 << shift  # Seven bits a byte; the eighth says that more follow.
        offset, shift = offset + 1, shift + 7
        if not byte & 0x80:
            break
    return value, offset
