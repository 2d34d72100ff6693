"""Opening stored records: from a position to the record with what was sealed in it."""

from __future__ import annotations

from collections.abc import Sequence

from engine.decide.state import Opened
from engine.keys.sealing import Sealer, pack, unpack
from engine.logs.interface import Log, LogCorrupt, LogEntry
from schemas.log_record import (
    LogRecord,
    RecordUnreadable,
    SealedContent,
    associated_data,
    decode,
    decode_content,
    encode_content,
    record_id,
)
from schemas.payloads import LifecyclePayload, PayloadError, parse_lifecycle
from schemas.values import NewRecord, Record


class Opener:
    """Reads a partition's records from the log and opens them with the data keys."""

    def __init__(self, partition: int, log: Log, sealer: Sealer) -> None:
        self._partition = partition
        self._log = log
        self._sealer = sealer

    async def refresh(self) -> None:
        """Learn the keys that others have made before this call. Raises a `KeysError`."""
        await self._sealer.refresh()

    def open(self, position: int) -> Opened:
        """Open the record at a position. Raises `LogCorrupt`, `LogUnavailable` or a `KeysError`."""
        return self.open_all([position])[0]

    def open_all(self, positions: Sequence[int]) -> list[Opened]:
        """Open the records at these positions, in the order given."""
        opened = []
        for position, data in zip(positions, self._log.fetch(self._partition, positions), strict=True):
            record = self.read(position, data)
            opened.append(Opened(content_of(record, private := self.unseal(record)), private))
        return opened

    def records(self, positions: Sequence[int]) -> list[Record]:
        """The records at these positions as callers see them."""
        return [
            Record(record_id(self._partition, position), opened.record)
            for position, opened in zip(positions, self.open_all(positions), strict=True)
        ]

    def stored(self, position: int, end: int, records_max: int) -> list[LogEntry]:
        """The entries of the log from a position to before another, those that do not count among them."""
        return self._log.stored(self._partition, position, end, records_max)

    def plain(self, position: int) -> LogRecord:
        """The record at a position without opening what is sealed in it."""
        return self.read(position, self._log.fetch(self._partition, [position])[0])

    def read(self, position: int, data: bytes) -> LogRecord:
        """Decode what the log holds at a position; damage is named by partition and position."""
        try:
            record = decode(data)
        except RecordUnreadable as error:
            raise self._corrupt(position, str(error)) from error
        if record.position != position:
            raise self._corrupt(position, f"it holds the record of position {record.position}")
        return record

    def unseal(self, record: LogRecord) -> SealedContent:
        """Open what is sealed in a record."""
        packed = self._sealer.open(record.key_id, associated_data(record), record.sealed)
        try:
            return decode_content(unpack(packed))
        except RecordUnreadable as error:
            raise self._corrupt(record.position, str(error)) from error

    def lifecycle(self, position: int) -> LifecyclePayload:
        """The payload of the lifecycle record at a position; checked when it is read as when it was written."""
        record = self.open(position).record
        try:
            return parse_lifecycle(record.type, record.payload)
        except PayloadError as error:
            raise self._corrupt(position, f"its payload is none of {record.type}: {error}") from error

    def seal(self, record: LogRecord, private: SealedContent) -> bytes:
        """Seal what is private in a record that has all its plain fields."""
        return self._sealer.seal(record.key_id, associated_data(record), pack(encode_content(private)))

    def _corrupt(self, position: int, why: str) -> LogCorrupt:
        return LogCorrupt(
            f"partition {self._partition}, position {position}: {why}", partition=self._partition, position=position
        )


def content_of(record: LogRecord, private: SealedContent) -> NewRecord:
    """The record as its caller sent it."""
    return NewRecord(
        event_key=record.event_key,
        run_id=record.run_id,
        agent_id=record.agent_id,
        session_id=record.session_id,
        turn_id=record.turn_id,
        type=record.type,
        timestamp=record.timestamp,
        payload=private.payload,
    )
