"""Places of the stream of everything, as its cursors hold them: for each partition the position to read on at.

Form: each position as an unsigned LEB128 number, in the order of the partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_MORE: Final = 0x80
_BITS: Final = 7
_BITS_MAX: Final = 63


def pack_place(place: Sequence[int]) -> bytes:
    """The bytes of a place."""
    packed = bytearray()
    for position in place:
        left = position
        while left >= _MORE:
            packed.append(left & (_MORE - 1) | _MORE)
            left >>= _BITS
        packed.append(left)
    return bytes(packed)


def unpack_place(packed: bytes, partitions: int) -> tuple[int, ...] | None:
    """The place in these bytes; None for what is no place in so many partitions."""
    place: list[int] = []
    position = shift = 0
    for byte in packed:
        if shift >= _BITS_MAX:
            return None
        position |= (byte & (_MORE - 1)) << shift
        shift += _BITS
        if byte < _MORE:
            place.append(position)
            position = shift = 0
    return tuple(place) if len(place) == partitions and not shift else None
