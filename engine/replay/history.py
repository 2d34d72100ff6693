"""The history of a run and its family, as far as it was applied when a view began to be read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from engine.cursors import Cursors
from engine.decide.common import run_not_found
from engine.partition import Partition, PartitionUnavailable
from engine.reads import Reader
from projections import layout
from projections.layout import number_bytes, read_number
from projections.queries import live_run
from projections.rows import RunRow, SessionRow
from projections.view import View
from schemas.refusals import Refusal, Refused
from schemas.values import Record

T = TypeVar("T")
Pause = Callable[[], Awaitable[None]]

_PORTION_RECORDS: Final = 32
_SCAN_ROWS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """A prefix of a partition's history, for as long as the session or run that is read is there.

    `end` is the position after the prefix; `pause` lets others have their turn; `gone` says that what is read is not
    there any more. Every method raises `Refused` once it is gone, and where the partition does not serve.
    """

    end: int
    pause: Pause
    partition: Partition
    cursors: Cursors
    gone: Callable[[View], Refusal | None]

    def look(self, function: Callable[[Reader], T]) -> T:
        """Evaluate a read of the partition at once; what it sees may go beyond the prefix."""

        def read(view: View) -> T:
            if (refusal := self.gone(view)) is not None:
                raise Refused(refusal)
            return function(Reader(view, self.partition.opener, self.cursors))

        try:
            return self.partition.look(read)
        except PartitionUnavailable as error:
            raise Refused(error.refusal) from error

    async def rows_at(self, key: bytes) -> list[tuple[bytes, bytes]]:
        """The rows of an index whose keys are this one and a position in the prefix, in log order."""
        found: list[tuple[bytes, bytes]] = []
        begin, end = key, key + number_bytes(self.end)
        while True:
            rows = self.look(_scan(begin, end))
            found += rows
            if len(rows) < _SCAN_ROWS:
                return found
            begin = rows[-1][0] + b"\x00"
            await self.pause()

    async def positions_at(self, key: bytes) -> list[int]:
        """The positions in these rows."""
        return [read_number(row) for row, _ in await self.rows_at(key)]

    async def records(self, positions: Sequence[int]) -> list[Record]:
        """The records at these positions; for a portion of them at a time."""
        await self.pause()
        return self.look(lambda reader: reader.opener.records(positions))


@dataclass(frozen=True, slots=True, kw_only=True)
class History(Prefix):
    """A prefix of the history of a run's home, seen from the run."""

    run_id: str
    row: RunRow

    async def positions(self, row: RunRow, *types: str) -> list[int]:
        """Where the records of a run with one of these types are, in log order."""
        found: list[int] = []
        for record_type in types:
            found += await self.positions_at(layout.run_types_prefix(row.owner, row.number, record_type))
        return sorted(found)

    def position_of(self, partition: int, position: int) -> int | None:
        """The position, if it is that of a record of the run in the prefix."""
        key = layout.run_records_prefix(self.row.owner, self.row.number) + number_bytes(position)
        mine = partition == self.partition.number and position < self.end
        return position if mine and self.look(lambda reader: reader.view.get(key)) is not None else None


async def history_of(partition: Partition, cursors: Cursors, run_id: str, pause: Pause) -> History:
    """The history of a run at its home, at least as new as this call. Raises `Refused` and `PartitionUnavailable`."""

    def gone(view: View) -> Refusal | None:
        return None if live_run(view, run_id) is not None else run_not_found(run_id)

    row, end = await partition.read(lambda view: (live_run(view, run_id), view.applied().position))
    if row is None:
        raise Refused(run_not_found(run_id))
    return History(end=end, pause=pause, partition=partition, cursors=cursors, gone=gone, run_id=run_id, row=row)


async def session_history_of(
    partition: Partition, cursors: Cursors, session_id: str, pause: Pause
) -> tuple[SessionRow, Prefix]:
    """A session and the history of its home, at least as new as this call. Raises as `history_of` does."""

    def row_of(view: View) -> SessionRow | Refusal:
        return Reader(view, partition.opener, cursors).session_row(session_id)

    def gone(view: View) -> Refusal | None:
        row = row_of(view)
        return row if isinstance(row, Refusal) else None

    row, end = await partition.read(lambda view: (row_of(view), view.applied().position))
    if isinstance(row, Refusal):
        raise Refused(row)
    return row, Prefix(end=end, pause=pause, partition=partition, cursors=cursors, gone=gone)


def portions(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """The values, a few at a time, in their order."""
    return (values[start : start + _PORTION_RECORDS] for start in range(0, len(values), _PORTION_RECORDS))


def _scan(begin: bytes, end: bytes) -> Callable[[Reader], list[tuple[bytes, bytes]]]:
    return lambda reader: reader.view.scan(begin, end, _SCAN_ROWS)
