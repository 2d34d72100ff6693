"""The list of all sessions, merged from the partitions' lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from engine.cursors import SESSIONS_SUBJECT, Cursors
from engine.decide.sessions import session_value
from engine.partition import Partition
from projections import layout
from projections.view import View
from schemas.refusals import Refusal, invalid
from schemas.values import SessionPage, SessionStatus, SessionSummary

_SCAN_ROWS_MAX: Final = 5000
_CHUNK_ROWS: Final = 500
_STATUSES: Final = frozenset(status.value for status in SessionStatus)


async def list_sessions(
    partitions: Sequence[Partition], cursors: Cursors, status: str, cursor: str, limit: int
) -> SessionPage | Refusal:
    """Sessions of a status (empty: any), newest `created_at` first, then by ID. Raises `PartitionUnavailable`.

    A page ends early where a filter would make it read too much.
    """
    if status and status not in _STATUSES:
        return invalid(f"there is no session status {status!r}")
    begin = layout.SESSION_LIST
    if cursor:
        place = cursors.read(SESSIONS_SUBJECT, cursor)
        if isinstance(place, Refusal):
            return place
        begin = place + b"\x00"
    end = layout.SESSION_LIST + b"\xff" * 9
    chunk = max(limit + 1, _CHUNK_ROWS) if status else limit + 1
    found: list[tuple[bytes, SessionSummary]] = []
    read = 0
    while True:
        keys: list[tuple[bytes, Partition]] = []
        complete_to = end
        for partition in partitions:
            page = await partition.read(_scan(begin, end, chunk))
            keys.extend((key, partition) for key, _ in page)
            if len(page) == chunk:
                complete_to = min(complete_to, page[-1][0])
        # Beyond the shortest list that was cut, keys of other partitions might be missing.
        for key, partition in sorted((each for each in keys if each[0] <= complete_to), key=lambda each: each[0]):
            read += 1
            summary = await partition.read(_summary(key))
            if summary is None or (status and summary.session.status != status):
                continue
            if len(found) == limit:
                return _page(found, cursors.make(SESSIONS_SUBJECT, found[-1][0]))
            found.append((key, summary))
        if complete_to == end:
            return _page(found, "")
        begin = complete_to + b"\x00"
        if read >= _SCAN_ROWS_MAX:
            return _page(found, cursors.make(SESSIONS_SUBJECT, complete_to))


def _page(found: Sequence[tuple[bytes, SessionSummary]], next_cursor: str) -> SessionPage:
    return SessionPage(tuple(summary for _, summary in found), next_cursor)


def _scan(begin: bytes, end: bytes, limit: int) -> Callable[[View], list[tuple[bytes, bytes]]]:
    return lambda view: view.scan(begin, end, limit)


def _summary(key: bytes) -> Callable[[View], SessionSummary | None]:
    """A read of the session that a key of the list names; None for one that is gone."""
    _, session_id = layout.read_session_list_key(key)

    def read(view: View) -> SessionSummary | None:
        row = view.session(session_id)
        if row is None or row.purged:
            return None
        return SessionSummary(session_value(session_id, row), row.counts())

    return read
