"""Writing Avro by hand, for the log record and what is sealed in it: with a caller waiting, for each record.

What these bytes are is said by the Avro specification and the record's schema; a test holds them against an Avro
library's, over records of all kinds.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_SIZES_KEPT: Final = 4096
_LONG_MAX: Final = 2**63 - 1


def long(value: int) -> bytes:
    """A `long` or `int`, zigzag and then seven bits a byte, the lowest first. Raises `ValueError` beyond 64 bits."""
    if not -_LONG_MAX - 1 <= value <= _LONG_MAX:
        raise ValueError("a number beyond 64 bits")
    rest = value << 1 if value >= 0 else (~value << 1) | 1
    written = bytearray()
    while rest > 0x7F:  # noqa: PLR2004 # seven bits
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    written.append(rest)
    return bytes(written)


time: Final = lru_cache(maxsize=256)(long)
"""The same for times, which records of one moment share."""


class _Sizes(dict[int, bytes]):
    """How a text's or bytes' length is written before it; small ones are written often, so these are kept."""

    def __missing__(self, size: int) -> bytes:
        written = long(size)
        if size < _SIZES_KEPT:
            self[size] = written
        return written


size: Final = _Sizes()
