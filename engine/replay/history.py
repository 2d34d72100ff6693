"""The history of a run and its family, as far as it was applied when a view began to be read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from engine.cursors import Cursors
from engine.decide.common import run_not_found
from engine.partition import Partition
from engine.reads import Reader
from projections import layout
from projections.layout import number_bytes, read_number
from projections.queries import live_run
from projections.rows import RunRow
from projections.view import View
from schemas.refusals import Refused
from schemas.values import Record

T = TypeVar("T")
Pause = Callable[[], Awaitable[None]]

_PORTION_RECORDS: Final = 32
_SCAN_ROWS: Final = 1000


@dataclass(frozen=True, slots=True)
class History:
    """A prefix of a partition's history, seen from one run in it.

    `end` is the position after the prefix; `pause` lets others have their turn. Every method raises `Refused` once
    the run is gone, and `PartitionUnavailable` where the partition does not serve.
    """

    run_id: str
    row: RunRow
    end: int
    pause: Pause
    _partition: Partition
    _cursors: Cursors

    def look(self, function: Callable[[Reader], T]) -> T:
        """Evaluate a read of the partition at once; what it sees may go beyond the prefix."""

        def read(view: View) -> T:
            if live_run(view, self.run_id) is None:
                raise Refused(run_not_found(self.run_id))
            return function(self._reader(view))

        return self._partition.look(read)

    async def positions(self, row: RunRow, *types: str) -> list[int]:
        """Where the records of a run with one of these types are, in log order."""
        found: list[int] = []
        for record_type in types:
            begin = prefix = layout.run_types_prefix(row.owner, row.number, record_type)
            end = prefix + number_bytes(self.end)
            while True:
                rows = self.look(_scan(begin, end))
                found.extend(read_number(key) for key, _ in rows)
                if len(rows) < _SCAN_ROWS:
                    break
                begin = rows[-1][0] + b"\x00"
                await self.pause()
        return sorted(found)

    async def records(self, positions: Sequence[int]) -> list[Record]:
        """The records at these positions; for a portion of them at a time."""
        await self.pause()
        return self.look(lambda reader: reader.opener.records(positions))

    def position_of(self, partition: int, position: int) -> int | None:
        """The position, if it is that of a record of the run in the prefix."""
        key = layout.run_records_prefix(self.row.owner, self.row.number) + number_bytes(position)
        mine = partition == self._partition.number and position < self.end
        return position if mine and self.look(lambda reader: reader.view.get(key)) is not None else None

    def _reader(self, view: View) -> Reader:
        return Reader(view, self._partition.opener, self._cursors)


async def history_of(partition: Partition, cursors: Cursors, run_id: str, pause: Pause) -> History:
    """The history of a run at its home, at least as new as this call. Raises as `History` does."""

    def begin(view: View) -> tuple[RunRow | None, int]:
        return live_run(view, run_id), view.applied().position

    row, end = await partition.read(begin)
    if row is None:
        raise Refused(run_not_found(run_id))
    return History(run_id, row, end, pause, partition, cursors)


def portions(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """The values, a few at a time, in their order."""
    return (values[start : start + _PORTION_RECORDS] for start in range(0, len(values), _PORTION_RECORDS))


def _scan(begin: bytes, end: bytes) -> Callable[[Reader], list[tuple[bytes, bytes]]]:
    return lambda reader: reader.view.scan(begin, end, _SCAN_ROWS)
