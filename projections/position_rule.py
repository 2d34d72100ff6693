"""The position rule: which of the records that a log holds count.

    Every record carries the offset it must land at, and the first of a batch the digest of what it
    follows. A record counts only where its own position says. Anything else is void, for every reader, for ever.

It makes an append-only log a compare-and-append one: a batch that lands elsewhere than it was decided for
is void, whoever wrote it and however late. `prev`, a SHA-256 over the encoded records of the last
counted batch (its own `prev` among them), makes a log that was cut and written again unable to pass for the old one.

`PositionRule` is fed the entries of one partition in log order, in pieces of any size, and gives back
whole commands: a command whose last record has not been read yet is held back.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from projections.layout import VIEW_VERSION
from projections.rows import Applied
from schemas.log_record import GENESIS, NO_POSITION, LogRecord, RecordUnreadable, decode

log = logging.getLogger("runstore.log")


class Entry(Protocol):
    """An encoded record and the offset at which the log holds it."""

    @property
    def offset(self) -> int:
        """Where the log holds it."""
        ...

    @property
    def data(self) -> bytes:
        """The encoded record."""
        ...


class HistoryBroken(Exception):
    """The log holds something that no writer of this store can have written; the partition must stop."""

    def __init__(self, partition: int, position: int, message: str) -> None:
        super().__init__(f"partition {partition}, position {position}: {message}")
        self.partition = partition
        self.position = position


@dataclass(frozen=True, slots=True)
class CountedCommand:
    """The records of one command, in order, all counted."""

    records: tuple[LogRecord, ...]

    @property
    def command_id(self) -> bytes:
        """The random ID that its caller's command carries over re-decisions."""
        return self.records[0].command_id


class PositionRule:
    """Reads a partition's entries by the position rule, and knows where the next batch must land.

    `voids_legal` is False for a log that only this process can append to: there, a void record is damage.
    """

    def __init__(self, partition: int, *, voids_legal: bool) -> None:
        self._partition = partition
        self._voids_legal = voids_legal
        self._end = 0
        self._applied = 0
        self._batch_start = NO_POSITION
        self._batch_end = NO_POSITION
        self._digest = hashlib.sha256()
        self._seen = hashlib.sha256()
        self._in_void_batch = False
        self._held: list[LogRecord] = []
        self._held_data: list[bytes] = []
        self._appended_at = 0
        self._voids_before = 0
        self.void_records = 0
        self.rewrites_seen = 0
        """How many batches followed another history: the log was cut or written again somewhere before them."""

    @classmethod
    def resumed(
        cls, partition: int, applied: Applied, batch: Sequence[Entry], *, voids_legal: bool
    ) -> PositionRule | None:
        """Continue after what a projection has applied, or return None when the log is another one.

        `batch` is what the log holds from `applied.batch_start` up to `applied.batch_end`. None means that the
        log was cut below the projection, or written again: the projection must be rebuilt. Void records after that
        batch are read again, since no digest tells whether they are still what stands there.
        """
        rule = cls(partition, voids_legal=voids_legal)
        digest = hashlib.sha256()
        for entry in batch:
            digest.update(entry.data)
        if applied.batch_start != NO_POSITION and digest.digest() != applied.batch_digest:
            return None
        rule._digest = digest
        rule._seen = digest.copy()
        rule._end = rule._applied = max(applied.batch_end, 0)
        rule._batch_start = applied.batch_start
        rule._batch_end = applied.batch_end
        rule._appended_at = applied.appended_at
        rule.void_records = rule._voids_before = applied.void_records
        return rule

    @property
    def end(self) -> int:
        """The offset after the last entry fed: where the next batch must land."""
        return self._end

    @property
    def appended_at(self) -> int:
        """The newest `appended_at` counted; no later record may have an earlier one."""
        return self._appended_at

    def prev(self) -> bytes:
        """What the first record of the next batch must carry."""
        return GENESIS if self._batch_start == NO_POSITION else self._digest.digest()

    def seen(self) -> tuple[int, int, bytes]:
        """What was fed from the start of the last batch on, void entries too: first offset, the one after, SHA-256."""
        return max(self._batch_start, 0), self._applied, self._seen.digest()

    def applied(self) -> Applied:
        """How far whole commands have been given back, as a projection stores it."""
        return Applied(
            view_version=VIEW_VERSION,
            position=self._applied,
            batch_start=self._batch_start,
            batch_end=self._batch_end,
            batch_digest=self._digest.digest(),
            appended_at=self._appended_at,
            void_records=self._voids_before,
        )

    def feed(self, entries: Iterable[Entry]) -> list[CountedCommand]:
        """Take the next entries of the partition and return the commands they complete.

        Raises `HistoryBroken` for a record that cannot be read, or that no writer can have written there.
        """
        commands: list[CountedCommand] = []
        for entry in entries:
            try:
                record = decode(entry.data)
            except RecordUnreadable as error:
                raise self._broken(entry.offset, str(error)) from error
            if self._counts(record, entry):
                self._held.append(record)
                self._held_data.append(entry.data)
                if record.last:
                    commands.append(self._complete())
            elif self._held:
                raise self._broken(entry.offset, "a void record in the middle of a command")
            else:
                self._seen.update(entry.data)
            self._end = entry.offset + 1
            if not self._held:
                self._applied = self._end
        return commands

    def landed(self, records: Sequence[LogRecord], batch: Sequence[bytes]) -> None:
        """Take a batch that this process wrote and that landed where it was decided for: no need to read it back."""
        self._digest = hashlib.sha256()
        for data in batch:
            self._digest.update(data)
        self._batch_start = records[0].position
        self._batch_end = self._end = self._applied = records[-1].position + 1
        self._appended_at = records[-1].appended_at
        self._voids_before = self.void_records
        self._in_void_batch = False
        self._seen = self._digest.copy()

    def _complete(self) -> CountedCommand:
        command = CountedCommand(tuple(self._held))
        if command.records[0].prev:
            # Only now: a batch whose first command is not whole yet is not part of what is applied.
            self._digest = hashlib.sha256()
            self._batch_start = command.records[0].position
        for data in self._held_data:
            self._digest.update(data)
        self._held, self._held_data = [], []
        self._batch_end = command.records[-1].position + 1
        self._voids_before = self.void_records
        self._seen = self._digest.copy()
        self._appended_at = command.records[-1].appended_at
        return command

    def _counts(self, record: LogRecord, entry: Entry) -> bool:
        if record.position != entry.offset:
            self._void(entry.offset, f"it was decided for position {record.position}")
            return False
        if record.prev:
            if self._held:
                raise self._broken(entry.offset, "a batch starts before the last command of the one before has ended")
            if record.prev != self.prev():
                self.rewrites_seen += 1
                self._in_void_batch = True
                self._void(entry.offset, "it follows another history: the log was rewritten")
                return False
            self._in_void_batch = False
            return True
        if self._in_void_batch:
            self._void(entry.offset, "its batch follows another history")
            return False
        expected = self._held[-1].position + 1 if self._held else self._batch_end
        if entry.offset != expected:
            raise self._broken(entry.offset, "a record inside a batch, without the record before it")
        return True

    def _void(self, offset: int, why: str) -> None:
        self.void_records += 1
        if not self._voids_legal:
            raise self._broken(offset, f"a record that does not count, in a log that one process writes: {why}")
        if self._in_void_batch:
            log.error("partition %d: the record at offset %d is void: %s", self._partition, offset, why)

    def _broken(self, position: int, message: str) -> HistoryBroken:
        return HistoryBroken(self._partition, position, message)
