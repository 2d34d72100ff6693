"""Histories of one partition: batches of commands as a writer would have written them, with holes between them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from engine.logs.interface import LogEntry
from projections.position_rule import PositionRule
from schemas.log_record import Kind, LogRecord, encode


class History:
    """The entries of a partition, which can be read as a log is."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.end = 0
        self._rule = PositionRule(0, voids_legal=True)

    def batch(self, *commands: int, sealed: bytes = b"sealed", run: str = "r1") -> list[LogEntry]:
        """Write a batch of commands, each of that many records; return its entries."""
        data: list[bytes] = []
        for records in commands:
            command_id = os.urandom(16)
            for number in range(records):
                record = LogRecord(
                    position=self.end + len(data),
                    prev=b"" if data else self._rule.prev(),
                    last=number == records - 1,
                    command_id=command_id,
                    appended_at=1,
                    kind=Kind.RECORD.value,
                    run_id=run,
                    sealed=sealed,
                )
                data.append(encode(record))
        return self._write(data)

    def void(self) -> list[LogEntry]:
        """Write a record that was decided for another position."""
        record = LogRecord(
            position=self.end + 7, prev=bytes(32), command_id=os.urandom(16), appended_at=1, kind=Kind.BARRIER.value
        )
        return self._write([encode(record)])

    def hole(self, positions: int) -> None:
        """Leave positions out."""
        self.end += positions

    def _write(self, data: list[bytes]) -> list[LogEntry]:
        entries = [LogEntry(at, each) for at, each in enumerate(data, self.end)]
        self._rule.feed(entries)
        self.entries += entries
        self.end += len(data)
        return entries

    def rule(self) -> PositionRule:
        """A rule that has read nothing of it."""
        return PositionRule(0, voids_legal=True)

    async def read(self, partition: int, position: int, records_max: int = 250) -> Sequence[LogEntry]:
        """See `Log`."""
        assert partition == 0
        return [entry for entry in self.entries if entry.offset >= position][:records_max]
