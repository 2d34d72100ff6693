"""Faults in reads: pages, cursors, lists and values."""

from __future__ import annotations

from typing import Final

from tests.simulation.planting import Planted

_PAGE: Final = "engine.reads:Reader._page"
_RUNS: Final = "engine.reads:Reader.runs_of_session"
_META: Final = "engine.reads:Reader._meta"

READS: Final = (
    Planted(
        "cursor-past-the-last-record-read",
        "a cursor stands for the last record shown",
        _PAGE,
        "number_bytes(positions[len(records) - 1])",
        "number_bytes(positions[-1])",
    ),
    Planted(
        "cursor-at-the-end-of-the-log",
        "a page's cursor leads to what follows the page, whatever was appended since",
        _PAGE,
        "number_bytes(positions[len(records) - 1])",
        "number_bytes(self.view.applied().position - 1)",
    ),
    Planted(
        "cursor-shows-its-record-again",
        "a page after a cursor starts with the record after it",
        _PAGE,
        "number_bytes(after + 1)",
        "number_bytes(max(after, 0))",
    ),
    Planted(
        "cursor-of-any-run",
        "a cursor that was not issued for that listing is an error",
        "engine.cursors:run_subject",
        'return f"run {run_id}"',
        'return f"run {run_id[:1]}"',
    ),
    Planted(
        "page-one-record-too-long",
        "a page has as many records as asked for at most",
        _PAGE,
        "self._bounded(positions[:limit])",
        "self._bounded(positions[: limit + 1])",
    ),
    Planted(
        "page-newest-first",
        "a page's records are oldest first",
        _PAGE,
        "positions = list(heapq.merge(*found))[: limit + 1]",
        "positions = sorted(heapq.merge(*found), reverse=True)[: limit + 1]",
    ),
    Planted(
        "next-cursor-though-nothing-follows",
        "the next cursor is empty when nothing follows",
        _PAGE,
        "more = len(records) < len(positions)",
        "more = len(records) == limit",
    ),
    Planted(
        "runs-listed-by-id",
        "runs of a session are listed in start order",
        _RUNS,
        "return tuple(self._metas(runs))",
        "return tuple(self._metas(sorted(runs, key=lambda each: each[0])))",
    ),
    Planted(
        "status-filter-ignored",
        "runs are listed of the statuses asked for alone",
        _RUNS,
        "if not statuses or run.status in statuses:",
        "if not statuses or run.status:",
    ),
    Planted(
        "status-filter-takes-the-first-alone",
        "runs are listed of all the statuses asked for",
        _RUNS,
        "if not statuses or run.status in statuses:",
        "if not statuses or run.status == statuses[0]:",
    ),
    Planted(
        "updated-at-of-a-read-from-the-clock",
        "updated_at comes from the log",
        _META,
        "updated_at=row.updated_at,",
        'updated_at=__import__("time").time_ns() // 1_000_000,',
    ),
    Planted(
        "outcome-shown-from-the-status",
        "start_outcome is fixed for ever by the first start",
        _META,
        "start_outcome=StartOutcome(row.outcome),",
        'start_outcome=StartOutcome("stop" if row.status == "canceled" else "proceed"),',
    ),
    Planted(
        "purged-session-not-found",
        "reading a purged session is session_purged",
        "engine.reads:Reader.session_row",
        "return purged_refusal(session_id) if row.purged else row",
        "return session_not_found(session_id) if row.purged else row",
    ),
)
