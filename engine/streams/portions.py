"""Portions of streams as they were read, and the small cache from which readers at the same place share them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from schemas.streams import Portion

PlaceT = TypeVar("PlaceT")

portion_records_max: Final = 64
portion_bytes_max: Final = 64 * 1024
"""About how large a portion may get; one record at least, whatever its size."""

cached_bytes_max: Final = 8 * 1024 * 1024
cached_portions_max: Final = 2048


State = tuple[tuple[int, int], ...]
"""How far each partition was: its resets, and the position up to which it was applied."""


@dataclass(frozen=True, slots=True)
class Read(Generic[PlaceT]):
    """A portion, the place after it, whether nothing followed it, and the state in which that was so."""

    portion: Portion
    following: PlaceT
    whole: bool
    state: State


class PortionCache:
    """The portions read last, by what was read, from where. It forgets those not asked for longest, and all at once."""

    def __init__(self) -> None:
        self._reads: OrderedDict[Hashable, tuple[Read[object], int]] = OrderedDict()
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        """About how many bytes of records it holds."""
        return self._held_bytes

    def get(self, key: Hashable) -> Read[object] | None:
        """What was read there."""
        found = self._reads.get(key)
        if found is None:
            return None
        self._reads.move_to_end(key)
        return found[0]

    def put(self, key: Hashable, read: Read[object]) -> None:
        """Keep what was read, within the bounds."""
        self.drop(key)
        size = read.portion.size
        if size > cached_bytes_max:
            return
        self._reads[key] = read, size
        self._held_bytes += size
        while self._held_bytes > cached_bytes_max or len(self._reads) > cached_portions_max:
            self.drop(next(iter(self._reads)))

    def drop(self, key: Hashable) -> None:
        """Forget one."""
        _, size = self._reads.pop(key, (None, 0))
        self._held_bytes -= size

    def clear(self) -> None:
        """Forget all of them: a session was purged, or a partition reads another history."""
        self._reads.clear()
        self._held_bytes = 0
