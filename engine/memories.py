"""Reading product memory back: all that is remembered of a run by an agent, in the order of the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from engine.decide.shape import check_memory
from engine.partition import Partition, PartitionUnavailable
from engine.pending import unavailable
from engine.router import Router
from projections import layout
from projections.layout import read_number
from projections.queries import memory_row
from projections.rows import MemoryRow
from projections.view import View
from schemas.log_record import NO_POSITION
from schemas.memories import MemoryEvent, MemorySnapshot, decode_events
from schemas.refusals import Refusal, invalid

_PORTION_APPENDS: Final = 32
_SCAN_ROWS: Final = 1000
_ATTEMPTS_MAX: Final = 8


class Memories:
    """Product memory over the partitions of one store, for reading."""

    def __init__(
        self,
        router: Router,
        pause: Callable[[], Awaitable[None]],
        bounded: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        """`pause` lets others have their turn; `bounded` ends what takes longer than a caller waits."""
        self._router = router
        self._pause = pause
        self._bounded = bounded

    async def load(self, agent_id: str, run_id: str) -> MemorySnapshot | Refusal:
        """All events, at least as new as this call; without a history none. Never half an append."""
        if (problem := check_memory(agent_id, run_id)) is not None:
            return invalid(problem)
        home = self._router.memory_home(agent_id, run_id)
        try:
            async with self._bounded():
                for _ in range(_ATTEMPTS_MAX):
                    events = await self._events(home, agent_id, run_id)
                    if events is not None:
                        return MemorySnapshot(agent_id, run_id, tuple(events))
        except PartitionUnavailable as error:
            return error.refusal
        return unavailable("the memory is purged again and again while it is read", agent_id=agent_id, run_id=run_id)

    async def _events(self, home: Partition, agent_id: str, run_id: str) -> list[MemoryEvent] | None:
        """The events of the memory as it is now; None where it was purged while it was read."""

        def row_of(view: View) -> MemoryRow:
            return memory_row(view, agent_id, run_id) or MemoryRow()

        row, end = await home.read(lambda view: (row_of(view), view.applied().position))
        if not row.begun:
            return []
        events: list[MemoryEvent] = []
        prefix = layout.memory_appends_prefix(row.number)
        begin, after = prefix, prefix + layout.number_bytes(end)

        def scan(view: View) -> Sequence[int]:
            if row_of(view).number != row.number:
                return (NO_POSITION,)
            return [read_number(key) for key, _ in view.scan(begin, after, _SCAN_ROWS)]

        def read(view: View) -> list[bytes] | None:
            if row_of(view).number != row.number:
                return None
            return [opened.record.payload for opened in home.opener.open_all(portion)]

        while positions := home.look(scan):
            if positions[0] == NO_POSITION:
                return None
            for start in range(0, len(positions), _PORTION_APPENDS):
                portion = positions[start : start + _PORTION_APPENDS]
                payloads = home.look(read)
                if payloads is None:
                    return None
                events += [event for payload in payloads for event in decode_events(payload)]
                await self._pause()
            begin = prefix + layout.number_bytes(positions[-1] + 1)
        return events
