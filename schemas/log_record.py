"""The form of a log record: Avro single-object encoding, with room for older and newer schemas.

An encoded record is the two marker bytes ``C3 01``, the CRC-64-AVRO fingerprint of the writer's schema
(eight bytes, little-endian) and the Avro body. Every schema ever written stays in ``schemas/avro/``;
a reader finds the writer's by its fingerprint. A later schema only adds fields and kinds, and what an older one does
not have is as `LogRecord` has it by default.

`LogRecord` and `SealedContent` are msgspec structs and not dataclasses, because one is made for each
record written or read, and a frozen dataclass of this size takes ten times as long to make.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import fastavro
import msgspec
from fastavro.schema import fingerprint, load_schema, to_parsing_canonical_form

from schemas import avro_form

NO_POSITION: Final = -1
NO_HOME: Final = -1
PREV_BYTES: Final = 32
GENESIS: Final = bytes(PREV_BYTES)
"""What the first batch of a partition follows."""

_RECORD_ID_CHARACTERS: Final = 19
_MARKER: Final = b"\xc3\x01"
_HEADER_BYTES: Final = 10
_AVRO_FOLDER: Final = Path(__file__).parent / "avro"
_CURRENT: Final = "log_record.2.avsc"
_CURRENT_CONTENT: Final = "sealed_content.1.avsc"


class Kind(StrEnum):
    """What a log record is: a caller's record, or an entry of the store's own."""

    RECORD = "record"
    SESSION_CREATED = "session_created"
    SESSION_ENDED = "session_ended"
    SESSION_PURGED = "session_purged"
    RUN_RESERVED = "run_reserved"
    BARRIER = "barrier"
    MEMORY_APPENDED = "memory_appended"
    MEMORY_PURGED = "memory_purged"
    CONSUMER_CREATED = "consumer_created"
    CONSUMER_COMMITTED = "consumer_committed"
    CONSUMER_DELETED = "consumer_deleted"


class LogRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the log; the fields are those of the Avro schema, where each is described."""

    position: int
    command_id: bytes
    appended_at: int
    kind: str
    prev: bytes = b""
    last: bool = True
    type: str = ""
    event_key: str = ""
    session_id: str = ""
    run_id: str = ""
    agent_id: str = ""
    turn_id: str = ""
    parent_run_id: str = ""
    predecessor_run_id: str = ""
    child_run_id: str = ""
    timestamp: int = 0
    start_outcome: str = "none"
    terminal_status: str = "none"
    home: int = NO_HOME
    key_id: bytes = b""
    sealed: bytes = b""
    consumer: str = ""
    place: bytes = b""


class SealedContent(msgspec.Struct, frozen=True, kw_only=True):
    """What a log record keeps private: readable only with the data key."""

    payload: bytes = b""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    reason: str = ""
    checkpoint_id: str = ""
    checkpoint: bytes = b""


class RecordUnreadable(ValueError):
    """These bytes are no log record of a schema known here."""


@cache
def _schemas() -> dict[bytes, Any]:
    """Every known writer's schema of a log record, by its fingerprint as stored."""
    schemas = {}
    for path in sorted(_AVRO_FOLDER.glob("log_record.*.avsc")):
        schema = load_schema(str(path))
        schemas[schema_fingerprint(schema)] = schema
    return schemas


def schema_fingerprint(schema: Any) -> bytes:
    """The CRC-64-AVRO fingerprint as the single-object encoding stores it: eight bytes, little-endian."""
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


_SCHEMA: Final[Any] = load_schema(str(_AVRO_FOLDER / _CURRENT))
_CONTENT_SCHEMA: Final = load_schema(str(_AVRO_FOLDER / _CURRENT_CONTENT))
_HEADER: Final = _MARKER + schema_fingerprint(_SCHEMA)


def _symbols(field: str) -> dict[str, bytes]:
    """How each symbol of an enum is written: as its number."""
    (enum,) = (each["type"] for each in _SCHEMA["fields"] if each["name"] == field)
    return {symbol: avro_form.long(number) for number, symbol in enumerate(enum["symbols"])}


_KIND: Final = _symbols("kind")
_START_OUTCOME: Final = _symbols("start_outcome")
_TERMINAL_STATUS: Final = _symbols("terminal_status")
_NO_HOME: Final = avro_form.long(NO_HOME)
_PAYLOAD_ONLY: Final = b"\x00"
_WHOLE_CONTENT: Final = b"\x01"
_NO_MORE: Final = b"\x00"
"""Ends a map."""


def encode(record: LogRecord) -> bytes:
    """Encode a record under the current schema, whose fields are written here one by one, in its order."""
    prev, command_id, key_id, sealed = record.prev, record.command_id, record.key_id, record.sealed
    record_type, event_key = record.type.encode(), record.event_key.encode()
    session_id, run_id = record.session_id.encode(), record.run_id.encode()
    agent_id, turn_id = record.agent_id.encode(), record.turn_id.encode()
    parent, predecessor = record.parent_run_id.encode(), record.predecessor_run_id.encode()
    child = record.child_run_id.encode()
    consumer, place = record.consumer.encode(), record.place
    size = avro_form.size
    parts = (
        _HEADER,
        avro_form.long(record.position),
        size[len(prev)],
        prev,
        b"\x01" if record.last else b"\x00",
        size[len(command_id)],
        command_id,
        avro_form.time(record.appended_at),
        _KIND[record.kind],
        size[len(record_type)],
        record_type,
        size[len(event_key)],
        event_key,
        size[len(session_id)],
        session_id,
        size[len(run_id)],
        run_id,
        size[len(agent_id)],
        agent_id,
        size[len(turn_id)],
        turn_id,
        size[len(parent)],
        parent,
        size[len(predecessor)],
        predecessor,
        size[len(child)],
        child,
        avro_form.time(record.timestamp),
        _START_OUTCOME[record.start_outcome],
        _TERMINAL_STATUS[record.terminal_status],
        _NO_HOME if record.home == NO_HOME else avro_form.long(record.home),
        size[len(key_id)],
        key_id,
        size[len(sealed)],
        sealed,
        size[len(consumer)],
        consumer,
        size[len(place)],
        place,
    )
    return b"".join(parts)


def decode(data: bytes) -> LogRecord:
    """Decode a record written under any schema known here. Raises `RecordUnreadable`, for trailing bytes too."""
    header = data[:_HEADER_BYTES]
    source = BytesIO(data)
    source.seek(_HEADER_BYTES)
    try:
        # Not resolved to the current schema: fastavro would give the default of bytes as text.
        writer = _SCHEMA if header == _HEADER else _writer_schema(header)
        fields = fastavro.schemaless_reader(source, writer, None)
        record = LogRecord(**fields)  # type: ignore[arg-type]
    except RecordUnreadable:
        raise
    except Exception as error:  # fastavro raises whatever the damaged bytes led it to
        raise RecordUnreadable(f"not a readable log record: {type(error).__name__}") from error
    if source.tell() != len(data):
        raise RecordUnreadable(f"{len(data) - source.tell()} bytes too many after a log record")
    return record


def _writer_schema(header: bytes) -> Any:
    if header[:2] != _MARKER:
        raise RecordUnreadable("not a log record: the marker of the single-object encoding is missing")
    schema = _schemas().get(header[2:])
    if schema is None:
        raise RecordUnreadable(f"a log record of an unknown schema, fingerprint {header[2:].hex()}")
    return schema


def encode_content(content: SealedContent) -> bytes:
    """Encode what is to be sealed; a payload alone, which is the common case, costs one byte."""
    if not (content.labels or content.reason or content.checkpoint_id or content.checkpoint):
        return _PAYLOAD_ONLY + content.payload
    labels = [text.encode() for label in content.labels.items() for text in label]
    reason, checkpoint_id = content.reason.encode(), content.checkpoint_id.encode()
    size = avro_form.size
    parts = [_WHOLE_CONTENT, size[len(content.payload)], content.payload]
    if labels:
        parts.append(size[len(labels) // 2])
        for text in labels:
            parts += (size[len(text)], text)
    parts += (
        _NO_MORE,
        size[len(reason)],
        reason,
        size[len(checkpoint_id)],
        checkpoint_id,
        size[len(content.checkpoint)],
        content.checkpoint,
    )
    return b"".join(parts)


def decode_content(data: bytes) -> SealedContent:
    """Decode what was sealed. Raises `RecordUnreadable`."""
    form = data[:1]
    if form == _PAYLOAD_ONLY:
        return SealedContent(payload=data[1:])
    if form != _WHOLE_CONTENT:
        raise RecordUnreadable("sealed content of an unknown form")
    source = BytesIO(data)
    source.seek(1)
    try:
        fields = fastavro.schemaless_reader(source, _CONTENT_SCHEMA, None)
        content = SealedContent(**fields)  # type: ignore[arg-type]
    except Exception as error:  # fastavro raises whatever the damaged bytes led it to
        raise RecordUnreadable(f"not readable sealed content: {type(error).__name__}") from error
    if source.tell() != len(data):
        raise RecordUnreadable("bytes too many after sealed content")
    return content


def associated_data(record: LogRecord) -> bytes:
    """What a sealed value is bound to: every plain field but position, prev, last and appended_at.

    Those four differ between a void batch and the one decided after it, while the value may be sealed once.
    Each text is preceded by its length, so that no two records have the same associated data. What the first schema
    did not have is added only where there is any, so that what was sealed under it still opens.
    """
    texts = (
        record.kind,
        record.type,
        record.event_key,
        record.session_id,
        record.run_id,
        record.agent_id,
        record.turn_id,
        record.parent_run_id,
        record.predecessor_run_id,
        record.child_run_id,
        record.start_outcome,
        record.terminal_status,
    )
    lengths = ",".join([str(len(text)) for text in texts])
    head = f"{record.timestamp};{record.home};{lengths};{''.join(texts)}".encode()
    if record.consumer or record.place:
        head += f";{len(record.consumer)};{record.consumer}".encode() + record.place
    return record.command_id + record.key_id + head


def record_id(partition: int, position: int) -> str:
    """The ID of the record at a position. IDs of a run or session compare, as bytes, in log order."""
    return f"{partition:04x}-{position:014x}"


def parse_record_id(text: str) -> tuple[int, int] | None:
    """The partition and position of a record ID, or None if the store cannot have made it."""
    if len(text) != _RECORD_ID_CHARACTERS or text[4] != "-":
        return None
    try:
        partition, position = int(text[:4], 16), int(text[5:], 16)
    except ValueError:
        return None
    return (partition, position) if record_id(partition, position) == text else None
