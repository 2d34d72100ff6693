"""Finding the home of a command, and what other partitions know of the runs and sessions it names.

A session and all its runs, or a sessionless tree, live in one partition: its **home**. A run ID has an entry in
the **run directory**, in partition `place(run_id)`: the run itself where that is its home, else a reservation that
names the home.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.decide.state import NOTHING_ELSEWHERE, Elsewhere, RunElsewhere
from engine.partition import Partition
from engine.placement import place
from projections import layout
from projections.queries import live_run, session_is_purged
from projections.rows import RunRow
from projections.view import View
from schemas.commands import (
    AppendMemory,
    Command,
    CreateSession,
    EndSession,
    PurgeMemory,
    PurgeSession,
    Start,
    StartChildRun,
    StartOneShotChildRun,
    StartOneShotRun,
    StartRootRun,
)
from schemas.values import NewRecord


@dataclass(frozen=True, slots=True)
class Route:
    """Where a command is decided, and what is known elsewhere."""

    home: Partition
    elsewhere: Elsewhere = NOTHING_ELSEWHERE


@dataclass(frozen=True, slots=True)
class _Found:
    """A run, where it lives; `row` is None for an ID that is reserved and has no run yet."""

    home: int
    row: RunRow | None
    purged: bool


class Router:
    """Routes commands over the partitions of one store."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self._partitions = partitions

    def home_of(self, name: str) -> Partition:
        """The home of a session or of a sessionless root run, and the directory partition of a run ID."""
        return self._partitions[place(name, len(self._partitions))]

    def memory_home(self, agent_id: str, run_id: str) -> Partition:
        """The home of a memory. No ID holds NUL."""
        return self.home_of(f"{agent_id}\0{run_id}")

    async def route(self, command: Command) -> Route:
        """Find the home of a command. Raises `PartitionUnavailable`."""
        match command:
            case CreateSession() | EndSession() | PurgeSession():
                return Route(self.home_of(command.session_id))
            case AppendMemory() | PurgeMemory():
                return Route(self.memory_home(command.agent_id, command.run_id))
            case StartRootRun() | StartChildRun():
                return await self._route_start(command, self.home_of(command.run.session_id))
            case StartOneShotRun():
                return await self._route_start(command, self.home_of(command.run.run_id))
            case StartOneShotChildRun():
                # Where the parent was found is the home, and a parent that was not found is not looked for again: one
                # that starts meanwhile would be refused for living in another partition than the home.
                parent = await self._find(command.run.parent_run_id)
                home = self.home_of(command.run.run_id) if parent is None else self._partitions[parent.home]
                return Route(home, Elsewhere(own_id_taken=await self._taken(command.run.run_id, home)))
            case _:
                return await self._route_record(command.record)

    async def run_home(self, run_id: str) -> Partition:
        """The home of a run; its directory partition, which will not find it either, when there is no such run."""
        found = await self._find(run_id)
        return self.home_of(run_id) if found is None else self._partitions[found.home]

    async def _route_record(self, record: NewRecord) -> Route:
        """Home of a command on an existing run: where the run lives, whatever session the record names."""
        if not record.session_id:
            return Route(await self.run_home(record.run_id))
        named = self.home_of(record.session_id)
        # The common case first: a record names the session of its run, so the run lives there.
        if await _knows(named, record.run_id):
            return Route(named)
        found = await self._find(record.run_id)
        home = named if found is None else self._partitions[found.home]
        if home is named:
            return Route(home)
        purged = await named.read(lambda view: session_is_purged(view, record.session_id))
        return Route(home, Elsewhere(session_purged=purged))

    async def _route_start(self, command: Start, home: Partition) -> Route:
        run = command.run
        return Route(
            home,
            Elsewhere(
                own_id_taken=await self._taken(run.run_id, home),
                parent=await self._elsewhere(run.parent_run_id, home),
                predecessor=await self._elsewhere(run.predecessor_run_id, home),
            ),
        )

    async def _taken(self, run_id: str, home: Partition) -> bool:
        """True when a run ID belongs to another home."""
        directory = self.home_of(run_id)
        if directory is home:
            return False
        entry = await directory.read(lambda view: _directory_entry(view, run_id, directory.number))
        return entry is not None and entry != home.number

    async def _elsewhere(self, run_id: str, home: Partition) -> RunElsewhere | None:
        """A run that a start names, if it lives in another partition than the start's home."""
        if not run_id or await _knows(home, run_id):
            return None
        found = await self._find(run_id)
        if found is None or found.row is None or found.home == home.number:
            return None
        return RunElsewhere(found.row.session_id, found.purged)

    async def _find(self, run_id: str) -> _Found | None:
        directory = self.home_of(run_id)
        entry = await directory.read(lambda view: _directory_entry(view, run_id, directory.number))
        if entry is None:
            return None
        return await self._partitions[entry].read(lambda view: _found(view, run_id, entry))


async def _knows(partition: Partition, run_id: str) -> bool:
    """True when a run lives in a partition. That never changes, so only a miss needs proof that it is not old."""
    if partition.view.run(run_id) is not None:
        return True
    return await partition.read(lambda view: view.run(run_id)) is not None


def _directory_entry(view: View, run_id: str, partition: int) -> int | None:
    if view.run(run_id) is not None:
        return partition
    data = view.get(layout.reserved_key(run_id))
    return layout.read_home(data) if data is not None else None


def _found(view: View, run_id: str, home: int) -> _Found:
    row = view.run(run_id)
    return _Found(home, row, purged=row is not None and live_run(view, run_id) is None)
