"""Pieces: what is written to a target at once. A command is never parted, and between two pieces may be a hole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

piece_bytes_max: Final = 1024 * 1024
"""How much is written at once; a command that is larger by itself is still one piece."""

piece_records_max: Final = 2000


@dataclass(frozen=True, slots=True)
class Piece:
    """Records, each with its key in a topic, whose positions follow each other."""

    position: int
    records: tuple[tuple[bytes | None, bytes], ...]
    bytes: int

    @property
    def end(self) -> int:
        """The position after the last record."""
        return self.position + len(self.records)


class Gathering:
    """Commands and fillers, gathered into pieces in their order."""

    def __init__(self) -> None:
        self._position = 0
        self._records: list[tuple[bytes | None, bytes]] = []
        self._bytes = 0

    def add(self, position: int, records: Sequence[tuple[bytes | None, bytes]]) -> list[Piece]:
        """Take records that belong together; return the piece that is complete by that, if one is."""
        size = sum(len(data) for _, data in records)
        full = self._bytes + size > piece_bytes_max or len(self._records) + len(records) > piece_records_max
        complete = self.rest() if full or position != self._position + len(self._records) else []
        if not self._records:
            self._position = position
        self._records += records
        self._bytes += size
        return complete

    def rest(self) -> list[Piece]:
        """Return what has been gathered, if anything has."""
        if not self._records:
            return []
        piece = Piece(self._position, tuple(self._records), self._bytes)
        self._records, self._bytes = [], 0
        return [piece]
