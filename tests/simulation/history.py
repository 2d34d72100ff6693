"""What the log says, read by the position rule alone: which batches count, which are void, and whose records they are.

Written apart from the store's own reader, so that a fault in that one is seen by this one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from engine.keys.memory import MemoryDisk
from engine.keys.sealing import unpack
from schemas.log_record import LogRecord, SealedContent, associated_data, decode, decode_content

_NONCE_BYTES = 12


class Violation(AssertionError):
    """The store did what it must never do."""


@dataclass(frozen=True, slots=True)
class Counted:
    """One command that counts: its records in order, and what was sealed in each that holds anything sealed."""

    partition: int
    records: tuple[LogRecord, ...]
    private: tuple[SealedContent | None, ...]

    @property
    def position(self) -> int:
        return self.records[0].position


@dataclass(slots=True)
class _Batch:
    """A batch that counts."""

    start: int
    end: int
    digest: bytes
    appended_at: int


class History:
    """One partition's log as it grows."""

    def __init__(self, partition: int, disk: MemoryDisk) -> None:
        self.partition = partition
        self._disk = disk
        self._batches: list[_Batch] = []
        self._inside: set[int] = set()
        self._nonces: dict[tuple[bytes, bytes], bytes] = {}

    def land(self, offset: int, batch: Sequence[bytes]) -> list[Counted]:
        """Take a batch where it landed; the commands in it, none if it is void."""
        records = [decode(data) for data in batch]
        self._check_nonces(records)
        first = records[0]
        prev = self._batches[-1].digest if self._batches else bytes(32)
        if first.position != offset or first.prev != prev:
            return []
        self._check_whole(offset, records)
        digest = hashlib.sha256(b"".join(batch)).digest()
        self._batches.append(_Batch(offset, offset + len(batch), digest, records[-1].appended_at))
        commands: list[Counted] = []
        begin = 0
        for index, record in enumerate(records):
            if not record.last:
                self._inside.add(record.position + 1)
            else:
                mine = tuple(records[begin : index + 1])
                commands.append(Counted(self.partition, mine, tuple(map(self._private, mine))))
                begin = index + 1
        return commands

    def ends(self) -> list[int]:
        """The end of each batch that counts."""
        return [batch.end for batch in self._batches]

    def is_inside_command(self, position: int) -> bool:
        """True for a position between two records of one command that counts."""
        return position in self._inside

    def cut(self, end: int) -> None:
        """Forget what the log forgot: every batch that does not end at or before `end`."""
        self._batches = [batch for batch in self._batches if batch.end <= end]
        self._inside = {position for position in self._inside if position < end}

    def _check_whole(self, offset: int, records: Sequence[LogRecord]) -> None:
        appended_at = self._batches[-1].appended_at if self._batches else 0
        command_id = b""
        for index, record in enumerate(records):
            where = f"partition {self.partition}, position {offset + index}"
            if record.position != offset + index or (record.prev and index):
                raise Violation(f"{where}: a batch that counts holds a record that does not")
            if record.appended_at < appended_at:
                raise Violation(f"{where}: appended_at runs backwards")
            if command_id and record.command_id != command_id:
                raise Violation(f"{where}: half a command: another one begins before it ends")
            appended_at, command_id = record.appended_at, b"" if record.last else record.command_id
        if not records[-1].last:
            raise Violation(f"partition {self.partition}, position {offset}: the batch ends in half a command")

    def _check_nonces(self, records: Sequence[LogRecord]) -> None:
        for record in records:
            if not record.sealed:
                continue
            used = (record.key_id, record.sealed[:_NONCE_BYTES])
            if self._nonces.setdefault(used, record.sealed) != record.sealed:
                raise Violation(f"partition {self.partition}: one nonce for two values, at {record.position}")

    def _private(self, record: LogRecord) -> SealedContent | None:
        if not record.sealed:
            return None
        found = self._disk.keys.get(record.key_id)
        if found is None:
            raise Violation(
                f"partition {self.partition}, position {record.position}: sealed under a key that nobody keeps"
            )
        owner = f"session:{record.session_id}" if record.session_id else found[0]
        if found[0] != owner or not (record.session_id or owner.startswith("tree:")):
            raise Violation(f"partition {self.partition}, position {record.position}: sealed under a key of {found[0]}")
        nonce, sealed = record.sealed[:_NONCE_BYTES], record.sealed[_NONCE_BYTES:]
        return decode_content(unpack(AESGCM(found[1]).decrypt(nonce, sealed, associated_data(record))))
