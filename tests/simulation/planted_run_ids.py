"""Faults in finding runs by their ID and in keeping an ID to one run, wherever it lives."""

from __future__ import annotations

from typing import Final

from tests.simulation.planting import Planted

_SAME_ID: Final = "engine.decide.starts:_same_id"

RUN_IDS: Final = (
    Planted(
        "run-id-unreserved",
        "a start whose home is not the ID's directory reserves the ID there",
        "engine.decide.starts:_needs",
        "reservation = state.directory_of(run_id) != state.partition and not prepared.reserved",
        "reservation = False",
    ),
    Planted(
        "run-id-reserved-after-the-start",
        "the order is: validate, reserve, start",
        "engine.store:Store._execute",
        "            ready = await self._prepare(outcome, command, route.home, prepared)\n",
        "            done: Outcome | None = None\n"
        "            if outcome.reservation and not outcome.data_key_of:\n"
        "                early = Prepared(prepared.key_id, reserved=True)\n"
        "                done = await route.home.submit(command, route.elsewhere, early, sequence)\n"
        "            ready = await self._prepare(outcome, command, route.home, prepared)\n"
        "            if done is not None and not isinstance(ready, Refusal):\n"
        "                return done\n",
    ),
    Planted(
        "reservation-overwritten",
        "a reservation by another home is run_conflict",
        "engine.decide.reserve:reserve_run",
        "if home is not None:",
        "if state.run(run_id) is not None:",
    ),
    Planted(
        "reservation-is-no-retry",
        "a reservation by the same home is a retry",
        "engine.decide.reserve:reserve_run",
        "    if home == command.home:\n        return Decided(Reserved())\n",
        "",
    ),
    Planted(
        "reserved-elsewhere-started-here",
        "a run ID is reserved for one home alone",
        _SAME_ID,
        "if elsewhere.own_id_taken or (home is not None and home != state.partition):",
        "if elsewhere.own_id_taken:",
    ),
    Planted(
        "own-id-taken-ignored",
        "a run of that ID anywhere is met before session, predecessor and parent are looked at",
        _SAME_ID,
        "if elsewhere.own_id_taken or (home is not None and home != state.partition):",
        "if home is not None and home != state.partition:",
    ),
    Planted(
        "purge-frees-the-run-ids",
        "run IDs of a purged session stay taken",
        _SAME_ID,
        "row = state.run(run.run_id)",
        "row = live_run(state, run.run_id)",
    ),
    Planted(
        "directory-forgets-reservations",
        "a run is found by its ID wherever it lives",
        "engine.router:_directory_entry",
        "return layout.read_home(data) if data is not None else None",
        "return partition if data is not None else None",
    ),
    Planted(
        "one-shot-child-at-another-home",
        "a sessionless tree lives in one partition",
        "engine.router:Router.route",
        "home = self.home_of(command.run.run_id) if parent is None else self._partitions[parent.home]",
        "home = self.home_of(command.run.run_id)",
    ),
    Planted(
        "parent-elsewhere-is-missing",
        "a parent in another session is found, and refused for what it is",
        "engine.router:Router._elsewhere",
        "if found is None or found.row is None or found.home == home.number:",
        "if found is None or found.row is None or found.home != home.number:",
    ),
    Planted(
        "purged-parent-elsewhere-is-found",
        "a run of a purged session counts as missing",
        "engine.decide.starts:_exists",
        "return run is not None and not run.purged",
        "return run is not None",
    ),
    Planted(
        "purged-session-elsewhere-not-looked-up",
        "a record that names a purged session is session_purged, wherever its run lives",
        "engine.router:Router._route_record",
        "return Route(home, Elsewhere(session_purged=purged))",
        "return Route(home)",
    ),
)
