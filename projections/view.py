"""Views of a projection: what `fold` writes on, and what decisions and readers read from.

`View` is the storage behind (RocksDB, or a sorted map in memory); `Overlay` holds changes that are
not stored yet on top of one, and is dropped or committed whole.
"""

from __future__ import annotations

import copy
from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Protocol

from projections import layout
from projections.rows import Applied, RunRow, SessionRow, decode_applied, decode_run, decode_session, encode_row


class View(Protocol):
    """A projection that can be read. Sorted by key."""

    def get(self, key: bytes) -> bytes | None:
        """The row at a key."""
        ...

    def scan(self, begin: bytes, end: bytes, limit: int, *, backwards: bool = False) -> list[tuple[bytes, bytes]]:
        """Up to `limit` rows from `begin` (included) to `end` (not), in key order or backwards from the end."""
        ...

    def session(self, session_id: str) -> SessionRow | None:
        """The row of a session."""
        ...

    def run(self, run_id: str) -> RunRow | None:
        """The row of a run that lives in this partition, purged sessions' included."""
        ...

    def applied(self) -> Applied:
        """How far the log has been applied."""
        ...


class Changes(Protocol):
    """A view that takes an overlay's changes, all or none."""

    def commit(self, overlay: Overlay, applied: Applied) -> None:
        """Store every change of the overlay together with how far the log is applied."""
        ...


class Overlay:
    """Changes on top of a view: read through, written to memory, committed or dropped whole.

    Point reads see the changes. Ranges are only deleted (a purge), after which nothing is written in them,
    so that whoever commits may write the puts first and the range deletes last.
    """

    def __init__(self, base: View) -> None:
        self._base = base
        self.sessions: dict[str, SessionRow] = {}
        self.runs: dict[str, RunRow] = {}
        self.puts: dict[bytes, bytes | None] = {}
        self.ranges: list[tuple[bytes, bytes]] = []

    def get(self, key: bytes) -> bytes | None:
        """See `View`."""
        if key in self.puts:
            return self.puts[key]
        return self._base.get(key)

    def session(self, session_id: str) -> SessionRow | None:
        """See `View`."""
        row = self.sessions.get(session_id)
        return row if row is not None else self._base.session(session_id)

    def run(self, run_id: str) -> RunRow | None:
        """See `View`."""
        row = self.runs.get(run_id)
        return row if row is not None else self._base.run(run_id)

    def put(self, key: bytes, value: bytes) -> None:
        """Set the row at a key that is neither a session's nor a run's."""
        self.puts[key] = value

    def delete(self, key: bytes) -> None:
        """Remove the row at a key."""
        self.puts[key] = None

    def put_session(self, session_id: str, row: SessionRow) -> None:
        """Set the row of a session."""
        self.sessions[session_id] = row

    def put_run(self, run_id: str, row: RunRow) -> None:
        """Set the row of a run."""
        self.runs[run_id] = row

    def delete_ranges(self, ranges: Iterable[tuple[bytes, bytes]]) -> None:
        """Remove everything in these ranges, what this overlay has put there included."""
        self.ranges.extend(ranges)

    def rows(self) -> Iterable[tuple[bytes, bytes | None]]:
        """Every single change as key and row, None for a removal."""
        for session_id, session in self.sessions.items():
            yield layout.session_key(session_id), encode_row(session)
        for run_id, run in self.runs.items():
            yield layout.run_key(run_id), encode_row(run)
        yield from self.puts.items()


class MemoryView:
    """A projection in memory, for simulation and tests. Same rows, same order, same digest as on disk."""

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    def copy(self) -> MemoryView:
        """Return a projection of the same kind with the same rows, which goes its own way."""
        copied = copy.copy(self)
        vars(copied).update(_rows=self._rows.copy(), _keys=self._keys.copy())
        return copied

    def get(self, key: bytes) -> bytes | None:
        """See `View`."""
        return self._rows.get(key)

    def scan(self, begin: bytes, end: bytes, limit: int, *, backwards: bool = False) -> list[tuple[bytes, bytes]]:
        """See `View`."""
        first, after = bisect_left(self._keys, begin), bisect_left(self._keys, end)
        keys = self._keys[max(first, after - limit) : after][::-1] if backwards else self._keys[first:after][:limit]
        return [(key, self._rows[key]) for key in keys]

    def session(self, session_id: str) -> SessionRow | None:
        """See `View`."""
        data = self._rows.get(layout.session_key(session_id))
        return decode_session(data) if data is not None else None

    def run(self, run_id: str) -> RunRow | None:
        """See `View`."""
        data = self._rows.get(layout.run_key(run_id))
        return decode_run(data) if data is not None else None

    def applied(self) -> Applied:
        """See `View`."""
        return read_applied(self._rows.get(layout.APPLIED))

    def commit(self, overlay: Overlay, applied: Applied) -> None:
        """See `Changes`."""
        for key, value in overlay.rows():
            if value is not None:
                self._put(key, value)
            elif self._rows.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]
        for begin, end in overlay.ranges:
            first, after = bisect_left(self._keys, begin), bisect_left(self._keys, end)
            for key in self._keys[first:after]:
                del self._rows[key]
            del self._keys[first:after]
        self._put(layout.APPLIED, encode_row(applied))

    def _put(self, key: bytes, value: bytes) -> None:
        if key not in self._rows:
            insort(self._keys, key)
        self._rows[key] = value


def read_applied(data: bytes | None) -> Applied:
    """The applied row of a projection, or that of an empty one."""
    return Applied(view_version=layout.VIEW_VERSION) if data is None else decode_applied(data)
