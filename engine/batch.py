"""One batch in the making: commands decided one after the other, each on what the ones before it wrote.

A `Batch` is the projection with the drafts of this batch folded on top. It becomes bytes for the log, and is
committed to the projection when it has landed where it was decided for, or dropped whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from engine.decide.state import Draft, Opened
from engine.opener import Opener
from engine.placement import place
from projections import layout
from projections.fold import fold
from projections.position_rule import PositionRule
from projections.queries import consumer_row, memory_row
from projections.rows import ConsumerRow, MemoryRow, RunRow, SessionRow
from projections.view import Overlay, View
from schemas.log_record import Kind, LogRecord, encode


class Batch:
    """The state that decisions of one batch read (`engine.decide.state.State`), and the records they wrote."""

    def __init__(
        self, partition: int, partitions: int, view: View, rule: PositionRule, opener: Opener, wall_ms: int
    ) -> None:
        self._partition = partition
        self._partitions = partitions
        self._opener = opener
        self._prev = rule.prev()
        self._appended_at = max(rule.appended_at, wall_ms)
        self._opened: dict[int, Opened] = {}
        self.first_position = rule.end
        self.overlay = Overlay(view)
        self.records: list[LogRecord] = []
        self.data: list[bytes] = []

    @property
    def partition(self) -> int:
        """See `State`."""
        return self._partition

    @property
    def run_ids(self) -> list[str]:
        """The run that each record belongs to; empty for one that belongs to none."""
        return [record.run_id for record in self.records]

    @property
    def next_position(self) -> int:
        """See `State`."""
        return self.first_position + len(self.records)

    def session(self, session_id: str) -> SessionRow | None:
        """See `State`."""
        return self.overlay.session(session_id)

    def run(self, run_id: str) -> RunRow | None:
        """See `State`."""
        return self.overlay.run(run_id)

    def reserved_home(self, run_id: str) -> int | None:
        """See `State`."""
        data = self.overlay.get(layout.reserved_key(run_id))
        return layout.read_home(data) if data is not None else None

    def directory_of(self, run_id: str) -> int:
        """See `State`."""
        return place(run_id, self._partitions)

    def event_position(self, run: RunRow, event_key: str) -> int | None:
        """See `State`."""
        data = self.overlay.get(layout.event_key(run.owner, run.number, event_key))
        return layout.read_number(data) if data is not None else None

    def memory(self, agent_id: str, run_id: str) -> MemoryRow | None:
        """See `State`."""
        return memory_row(self.overlay, agent_id, run_id)

    def memory_appends(self, memory: MemoryRow, appearance: str) -> Sequence[int]:
        """See `State`."""
        data = self.overlay.get(layout.memory_alike_key(memory.number, appearance))
        return layout.read_numbers(data or b"")

    def consumer(self, name: str) -> ConsumerRow | None:
        """See `State`."""
        return consumer_row(self.overlay, name)

    def opened(self, position: int) -> Opened:
        """See `State`."""
        written = self._opened.get(position)
        return written if written is not None else self._opener.open(position)

    def write(self, drafts: tuple[Draft, ...], command_id: bytes) -> None:
        """Write a command's records: positions, seals, encoded bytes, and their effect on the views."""
        last = len(drafts) - 1
        for index, draft in enumerate(drafts):
            record = self._record(draft, command_id, last=index == last)
            if draft.private is not None:
                record = msgspec.structs.replace(record, sealed=self._opener.seal(record, draft.private))
                if draft.content is not None:
                    self._opened[record.position] = Opened(draft.content, draft.private)
            self.records.append(record)
            self.data.append(encode(record))
            fold(self.overlay, record)

    def barrier(self, command_id: bytes) -> None:
        """Write a record that only takes its position, so that no other batch decided for it can ever count."""
        self.write((Draft(kind=Kind.BARRIER),), command_id)

    def _record(self, draft: Draft, command_id: bytes, *, last: bool) -> LogRecord:
        content = draft.content
        return LogRecord(
            position=self.next_position,
            prev=b"" if self.records else self._prev,
            last=last,
            command_id=command_id,
            appended_at=self._appended_at,
            kind=draft.kind.value,
            type=content.type if content is not None else "",
            event_key=content.event_key if content is not None else "",
            session_id=draft.session_id,
            run_id=draft.run_id,
            agent_id=content.agent_id if content is not None else "",
            turn_id=content.turn_id if content is not None else "",
            parent_run_id=draft.parent_run_id,
            predecessor_run_id=draft.predecessor_run_id,
            child_run_id=draft.child_run_id,
            timestamp=draft.timestamp,
            start_outcome=draft.start_outcome,
            terminal_status=draft.terminal_status,
            home=draft.home,
            key_id=draft.key_id,
            consumer=draft.consumer,
            place=draft.place,
        )
