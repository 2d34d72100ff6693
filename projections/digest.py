"""The digest of a projection, and where two projections differ.

Everything that a reader could see goes in, row by row in key order; of the applied row only what
does not depend on void entries at the end of the log, so that live and rebuilt projections agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from projections import layout
from projections.rows import decode_applied
from projections.view import View

_SCAN_ROWS = 2000


@dataclass(frozen=True, slots=True)
class Difference:
    """The first key at which two projections differ, and what each holds there (None: nothing)."""

    key: bytes
    left: bytes | None
    right: bytes | None

    def __str__(self) -> str:
        table = self.key[:1].decode("latin-1")
        side = (
            "missing on the left" if self.left is None else "missing on the right" if self.right is None else "differs"
        )
        return f"table {table}, key {self.key[1:]!r}: {side}"


def rows(view: View) -> Iterator[tuple[bytes, bytes]]:
    """Every row of a projection that counts for its digest, in key order."""
    begin = b""
    while True:
        page = view.scan(begin, b"\xff", _SCAN_ROWS)
        for key, value in page:
            if key == layout.APPLIED:
                applied = decode_applied(value)
                yield key, b"%d:%d" % (applied.batch_start, applied.batch_end) + applied.batch_digest
            else:
                yield key, value
        if len(page) < _SCAN_ROWS:
            return
        begin = page[-1][0] + b"\x00"


def digest(view: View) -> str:
    """The SHA-256 of a projection, in hex."""
    sha = hashlib.sha256()
    for key, value in rows(view):
        sha.update(b"%d,%d;" % (len(key), len(value)))
        sha.update(key)
        sha.update(value)
    return sha.hexdigest()


def first_difference(left: View, right: View) -> Difference | None:
    """The first key, in key order, at which two projections differ; None when they are equal."""
    lefts, rights = rows(left), rows(right)
    while True:
        one, other = next(lefts, None), next(rights, None)
        if one is None and other is None:
            return None
        if one == other:
            continue
        if other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            return Difference(one[0], one[1], None)
        if one is None or other[0] < one[0]:
            return Difference(other[0], None, other[1])
        return Difference(one[0], one[1], other[1])
