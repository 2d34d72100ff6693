"""Faults in where things are kept and looked for: listings by type, what a purge removes, for whom IDs are reserved."""

from __future__ import annotations

from typing import Final

from tests.simulation.planting import Planted

_INDEX: Final = "projections.fold:_index"
_OWNED: Final = "projections.layout:owned_ranges"
_PREPARE: Final = "engine.store:Store._prepare"
_RESERVE: Final = "reserve = ReserveRun(run.run_id, home.number, run.session_id)"

PLACES: Final = (
    Planted(
        "session-types-not-indexed",
        "a session's records can be listed by type",
        _INDEX,
        '        view.put(layout.session_types_prefix(owner, record.type) + position, b"")\n',
        "",
    ),
    Planted(
        "run-types-indexed-for-links-alone",
        "a run's records can be listed by type",
        _INDEX,
        'view.put(layout.run_types_prefix(owner, run, record.type) + position, b"")',
        'view.put(layout.run_types_prefix(owner, run, record.type if record.child_run_id else "") + position, b"")',
    ),
    Planted(
        "first-type-alone-listed",
        "records of all the types that are asked for are listed",
        "engine.reads:Reader.run_records",
        "for name in dict.fromkeys(types)]",
        "for name in list(types)[:1]]",
    ),
    Planted(
        "session-type-cut-short",
        "records of exactly the types that are asked for are listed",
        "engine.reads:Reader.session_records",
        "layout.session_types_prefix(row.number, name)",
        "layout.session_types_prefix(row.number, name[:-1])",
    ),
    Planted(
        "purge-leaves-event-keys",
        "a purge removes every row of the session",
        _OWNED,
        "for table in OWNED_TABLES]",
        "for table in OWNED_TABLES if table != EVENT_KEYS]",
    ),
    Planted(
        "purge-leaves-successors",
        "a purge removes every row of the session",
        _OWNED,
        "for table in OWNED_TABLES]",
        "for table in OWNED_TABLES[:-1]]",
    ),
    Planted(
        "reserved-for-the-next-partition",
        "an ID is reserved for the home of its start",
        _PREPARE,
        _RESERVE,
        "reserve = ReserveRun(run.run_id, (home.number + 1) % len(self._partitions), run.session_id)",
    ),
    Planted(
        "tree-reserved-for-its-directory",
        "an ID is reserved for the home of its start",
        _PREPARE,
        _RESERVE,
        "home_of_tree = self._router.home_of(run.run_id).number\n"
        "        reserve = ReserveRun(run.run_id, home.number if run.session_id else home_of_tree, run.session_id)",
    ),
    Planted(
        "appended-at-frozen",
        "appended_at tells when a record was appended",
        "engine.batch:Batch.__init__",
        "max(rule.appended_at, wall_ms)",
        "max(rule.appended_at, 1)",
    ),
)
