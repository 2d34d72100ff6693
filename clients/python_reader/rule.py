"""The position rule: which messages of a partition count.

    Every record carries the offset it must land at, and the first of a batch the digest of what it follows. A record
    counts only where its own position says. Anything else is void, for every reader, for ever.

`Rule` takes the messages of one partition in order and gives back whole commands.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from .errors import HistoryBroken, LogCut, RecordUnreadable
from .records import LogRecord, decode

GENESIS: Final = bytes(32)
"""What the first batch of a partition follows."""


@dataclass(frozen=True, slots=True)
class Bookmark:
    """How far a partition was read, in whole commands, and what stood there.

    The last batch read begins at `batch_start`, and was read up to `batch_end`; `digest` is the SHA-256 over the
    encoded records between. Whoever keeps it notices later that the log was cut or written again.
    """

    batch_start: int = 0
    batch_end: int = 0
    digest: bytes = b""


class Rule:
    """Reads one partition by the position rule, from its beginning or from a bookmark.

    Messages must be handed in from offset `begin` on: from a bookmark these are the last batch again, to be compared.
    """

    def __init__(self, partition: int, bookmark: Bookmark | None = None) -> None:
        self.partition = partition
        self.bookmark = bookmark if bookmark is not None else Bookmark()
        self.begin = self.end = self.bookmark.batch_start
        self.compared = not self.bookmark.digest
        self._digest = hashlib.sha256()
        self._held: list[LogRecord] = []
        self._held_data: list[bytes] = []
        self._in_foreign_batch = False
        self._batch_must_start = False
        self.void_records = 0
        self.foreign_at: int | None = None
        """Where the last batch began that is at its own position and yet follows another history."""

    def take(self, offset: int, value: bytes | None) -> list[LogRecord]:
        """Take the next message and return the command that it completes, if any.

        Raises `HistoryBroken`, or `LogCut` where what was read before does not stand there any more.
        """
        if not self.compared:
            return self._compare(offset, value)
        record = self._decode(offset, value)
        self.end = offset + 1
        if not self._counts(offset, record):
            self.void_records += 1
            if self._held:
                raise HistoryBroken(self.partition, offset, "a void record in the middle of a command")
            return []
        assert value is not None
        self._held.append(record)
        self._held_data.append(value)
        return self._complete() if record.last else []

    def at_end(self) -> None:
        """Be told that the topic has no more now. A broker stores a batch whole, so the next one starts a batch."""
        if not self.compared:
            raise LogCut(self.partition, self.end, f"the log ends here, and was read up to {self.bookmark.batch_end}")
        if self._held:
            raise HistoryBroken(self.partition, self.end, "the log ends in the middle of a command")
        self._batch_must_start = True

    def _compare(self, offset: int, value: bytes | None) -> list[LogRecord]:
        if offset == self.end and offset < self.bookmark.batch_end and value is not None:
            self._digest.update(value)
            self.end = offset + 1
            if self.end < self.bookmark.batch_end:
                return []
            if self._digest.digest() == self.bookmark.digest:
                self.compared = True
                return []
        raise LogCut(self.partition, offset, "something else stood here, or before, when it was read last")

    def _decode(self, offset: int, value: bytes | None) -> LogRecord:
        try:
            return decode(value or b"")
        except RecordUnreadable as error:
            raise HistoryBroken(self.partition, offset, str(error)) from error

    def _counts(self, offset: int, record: LogRecord) -> bool:
        if record.position != offset:
            return False
        if record.prev:
            if self._held:
                raise HistoryBroken(self.partition, offset, "a batch starts inside a command")
            self._batch_must_start = False
            self._in_foreign_batch = record.prev != (self.bookmark.digest or GENESIS)
            if self._in_foreign_batch:
                self.foreign_at = offset
            return not self._in_foreign_batch
        if self._in_foreign_batch:
            return False
        if self._batch_must_start:
            raise LogCut(self.partition, offset, "the log ended here before, and now a batch goes on here")
        if offset != self._next_in_batch():
            raise HistoryBroken(self.partition, offset, "a record inside a batch, without the record before it")
        return True

    def _next_in_batch(self) -> int | None:
        if self._held:
            return self._held[-1].position + 1
        return self.bookmark.batch_end if self.bookmark.digest else None

    def _complete(self) -> list[LogRecord]:
        command = self._held
        start = self.bookmark.batch_start
        if command[0].prev:
            self._digest = hashlib.sha256()
            start = command[0].position
        for data in self._held_data:
            self._digest.update(data)
        self._held, self._held_data = [], []
        self.bookmark = Bookmark(start, command[-1].position + 1, self._digest.digest())
        return command
