"""Exports: a run to read elsewhere, a session or a sessionless tree to import elsewhere.

What is exported is one prefix of the log. The records are handed out a few at a time, so an export of any size takes
little memory; a purge meanwhile ends it with the refusal.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial

from engine.decide.sessions import session_value
from engine.reads import Reader
from engine.replay.family import members, row_of
from engine.replay.history import History, Prefix, portions
from projections import layout
from projections.rows import SessionRow
from schemas.refusals import Refused, invalid
from schemas.replays import ExportedRun
from schemas.values import Checkpoint, Record, RunStatus, Session


@dataclass(frozen=True, slots=True)
class Export:
    """What is exported: runs in the order of their starts and records in log order; `session` is theirs, if it is one.

    Each method raises `Refused` where what is exported is gone or cannot be read.
    """

    session: Session | None
    run_ids: Sequence[str]
    _prefix: Prefix
    _positions: Sequence[int]

    async def runs(self) -> AsyncIterator[ExportedRun]:
        """Every run."""
        for portion in portions(self.run_ids):
            await self._prefix.pause()
            for each in self._prefix.look(partial(_runs, run_ids=portion)):
                yield each

    async def records(self) -> AsyncIterator[Record]:
        """Every record."""
        for portion in portions(self._positions):
            for record in await self._prefix.records(portion):
                yield record

    async def checkpoints(self) -> AsyncIterator[tuple[str, Checkpoint]]:
        """The checkpoint of every run that is suspended, with the run's ID."""
        for run_id in self.run_ids:
            await self._prefix.pause()
            found = self._prefix.look(partial(_checkpoint, run_id=run_id, end=self._prefix.end))
            if found is not None:
                yield run_id, found


async def run_export(history: History) -> Export:
    """A run and its descendants."""
    family = sorted(await members(history), key=lambda member: member.row.number)
    positions: list[int] = []
    for member in family:
        positions += await history.positions_at(layout.run_records_prefix(member.row.owner, member.row.number))
    return Export(None, [member.run_id for member in family], history, sorted(positions))


async def tree_export(history: History) -> Export:
    """A sessionless tree, from its root. Raises `Refused` for any other run."""
    row = history.row
    if row.session_id or row.parent_run_id:
        raise Refused(invalid(f"run {history.run_id!r} is no root of a sessionless tree", run_id=history.run_id))
    return await run_export(history)


async def session_export(session_id: str, row: SessionRow, prefix: Prefix) -> Export:
    """A session with all its runs."""
    runs = await prefix.rows_at(layout.session_runs_prefix(row.number))
    positions = await prefix.positions_at(layout.session_records_prefix(row.number))
    return Export(session_value(session_id, row), [run_id.decode() for _, run_id in runs], prefix, positions)


def _runs(reader: Reader, run_ids: Sequence[str]) -> list[ExportedRun]:
    rows = [(run_id, row_of(reader, run_id)) for run_id in run_ids]
    return [ExportedRun(reader.meta(run_id, row), row.predecessor_run_id) for run_id, row in rows]


def _checkpoint(reader: Reader, run_id: str, end: int) -> Checkpoint | None:
    row = row_of(reader, run_id)
    if row.status != RunStatus.SUSPENDED.value or row.terminal >= end:
        return None
    found = reader.checkpoint(run_id)
    assert isinstance(found, Checkpoint), f"run {run_id!r} is suspended and has no checkpoint"
    return found
