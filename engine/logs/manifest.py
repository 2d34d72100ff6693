"""The manifest of a RocksDB: up to which write its tables hold everything, and from which log on it needs the logs.

Basics
  A manifest is a file of the write-ahead logs' form (see `engine.logs.blocks`), whose records are edits: tagged fields.
  `CURRENT` names the manifest that counts, and does so only when that one is synced.
  A flush is two edits, written together: the table, and from which log on the logs are needed from now on.

Caveats
  RocksDB takes a manifest that ends early for a whole one. Tables that only the lost end names are removed then, and
  the logs that came before them are gone: writes are missing in the middle, and nothing tells but the sequence numbers.
  A manifest whose last edit a loss of power has torn does not open, though RocksDB acts on an edit (removes logs and
  tables) only when it is synced, so that everything is still there without it. `Manifest.torn` tells such an end; who
  cuts it off must know first that the logs go on from what is left, or it was a damaged end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from engine.logs import blocks

_COMPARATOR, _LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _COMPACT_CURSOR, _DELETED_FILE = 1, 2, 3, 4, 5, 6
_PREVIOUS_LOG, _LOGS_FROM, _NEW_FILE = 9, 10, 103
_FAMILY, _FAMILY_ADDED, _FAMILY_DROPPED, _FAMILIES_MAX, _IN_GROUP = 200, 201, 202, 203, 300
_IGNORABLE: Final = 1 << 13
"""A field whose tag has this bit is a text that whoever does not know it may pass over."""
_LAST_CUSTOM: Final = 1
"""The tag that ends the fields of a new table."""
_TEXTS: Final = frozenset({_COMPARATOR, _FAMILY_ADDED})
_NUMBERS: Final = frozenset(
    {_LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _PREVIOUS_LOG, _LOGS_FROM, _FAMILY, _FAMILIES_MAX, _IN_GROUP}
)

_CHECKED_BYTES_MAX: Final = 1024 * 1024
"""How much of the end is checked by its checksums: no more can be unsynced, and RocksDB checks the rest."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a manifest says of writes and logs, up to its first damage."""

    last_sequence: int
    """The tables hold every write up to some write before this, or this one; the logs go on no later than after it."""
    logs_from: int
    """Logs of lower numbers are given up, whether they have been removed or not."""
    tables: frozenset[int] | None = frozenset()
    """The tables' numbers; None where a field is not known here."""
    path: Path = Path()
    damage: blocks.Damage | None = None
    torn: bool = False
    """Whether the damage is the end, as a loss of power may leave it: no table is named after it."""
    lost_bytes: int = 0
    """What would be cut off with the damage."""

    def missing_tables(self) -> list[Path]:
        """Return the tables that are named and are not there."""
        files = (self.path.with_name(f"{number:06}.sst") for number in sorted(self.tables or ()))
        return [file for file in files if not file.exists()]

    def cut(self) -> None:
        """Cut the damage off, durably."""
        if self.damage is not None:
            blocks.truncate(self.path, self.damage.keep)


NOTHING_WRITTEN: Final = Manifest(0, 0)


@dataclass(slots=True)
class _Edit:
    numbers: dict[int, int] = field(default_factory=dict)
    added: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)
    known: bool = True
    """False where it has a field that is not known here; what follows that is left out."""


def read_manifest(directory: Path) -> Manifest | None:
    """Return what the manifest of a database's folder says; None where there is none that can be read."""
    try:
        path = directory / (directory / "CURRENT").read_text(encoding="ascii").strip()
        data = path.read_bytes()
    except (OSError, ValueError):
        return None
    last_sequence = newest = logs_from = 0
    tables: set[int] = set()
    known = True
    damage: blocks.Damage | None = None
    keep = 0
    try:
        for record in blocks.records(data, _checked_from(len(data))):
            edit = _edit(record.payload(data))
            newest = max(newest, edit.numbers.get(_LAST_SEQUENCE, 0))
            if edit.numbers.get(_LOGS_FROM, 0) > logs_from:
                # A later edit's number is no bound: that of a compaction counts writes that are in the logs alone.
                logs_from, last_sequence = edit.numbers[_LOGS_FROM], newest
            tables = (tables - edit.deleted) | edit.added
            known = known and edit.known
            keep = record.end
    except blocks.Damaged as damaged:
        damage = blocks.Damage(damaged.offset, keep, damaged.reason)
    return Manifest(
        last_sequence=last_sequence if logs_from else newest,
        logs_from=logs_from,
        tables=frozenset(tables) if known else None,
        path=path,
        damage=damage,
        torn=damage is not None and not _tables_after(data, damage.keep),
        lost_bytes=len(data) - keep,
    )


def _checked_from(length: int) -> int:
    begin = max(0, length - _CHECKED_BYTES_MAX)
    return begin - begin % blocks.BLOCK_BYTES


def _tables_after(data: bytes, offset: int) -> bool:
    """Whether an edit after the damage names a table. The second edit of a flush, written with the first, does not."""
    for payload in blocks.beginnings_after(data, offset):
        edit = _edit(payload)
        if edit.added or edit.deleted or not edit.known:
            return True
    return False


def _edit(data: bytes) -> _Edit:
    """The fields of an edit that are needed here."""
    edit = _Edit()
    fields = _Fields(data)
    try:
        while fields.left():
            tag = fields.number()
            if tag in _NUMBERS:
                edit.numbers[tag] = fields.number()
            elif tag in _TEXTS or tag & _IGNORABLE:
                fields.text()
            elif tag == _DELETED_FILE:
                fields.number()
                edit.deleted.add(fields.number())
            elif tag == _NEW_FILE:
                edit.added.add(_new_file(fields))
            elif tag == _COMPACT_CURSOR:
                fields.number()
                fields.text()
            elif tag != _FAMILY_DROPPED:
                edit.known = False
                break
    except IndexError:
        edit.known = False
    return edit


def _new_file(fields: _Fields) -> int:
    fields.number()
    number = fields.number()
    fields.number()
    for _smallest_and_largest in range(2):
        fields.text()
    for _their_sequence_numbers in range(2):
        fields.number()
    while fields.number() != _LAST_CUSTOM:
        fields.text()
    return number


class _Fields:
    """Reads an edit from its beginning. Raises `IndexError` where it ends within a field."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    def left(self) -> bool:
        return self._offset < len(self._data)

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._offset]
            value |= byte % 128 << shift  # Seven bits a byte; the eighth says that more follow.
            self._offset, shift = self._offset + 1, shift + 7
            if not byte & 0x80:
                return value

    def text(self) -> None:
        length = self.number()
        self._offset += length
        if self._offset > len(self._data):
            raise IndexError
