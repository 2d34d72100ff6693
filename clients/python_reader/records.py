"""The form of a log record, and of what is sealed in it.

A message's value is `C3 01`, the CRC-64-AVRO fingerprint of the schema it was written by (eight bytes, little-endian),
and the Avro body. The schemas are in `avro/`, as the store publishes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import fastavro
import zstandard
from fastavro.schema import fingerprint, load_schema, to_parsing_canonical_form

from .errors import RecordUnreadable

unpacked_bytes_max: Final = 32 * 1024 * 1024

_FOLDER: Final = Path(__file__).parent / "avro"
_MARKER: Final = b"\xc3\x01"
_HEADER_BYTES: Final = 10
_RAW: Final = b"\x00"
_ZSTD: Final = b"\x01"
_PAYLOAD_ONLY: Final = b"\x00"
_WHOLE_CONTENT: Final = b"\x01"


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One entry of the log; the fields are those of the Avro schema, where each is described."""

    position: int
    prev: bytes
    last: bool
    command_id: bytes
    appended_at: int
    kind: str
    type: str
    event_key: str
    session_id: str
    run_id: str
    agent_id: str
    turn_id: str
    parent_run_id: str
    predecessor_run_id: str
    child_run_id: str
    timestamp: int
    start_outcome: str
    terminal_status: str
    home: int
    key_id: bytes
    sealed: bytes
    consumer: str = ""
    place: bytes = b""


@dataclass(frozen=True, slots=True)
class Content:
    """What was sealed in a log record. `payload` is the caller's JSON text, byte for byte."""

    payload: bytes = b""
    labels: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    checkpoint_id: str = ""
    checkpoint: bytes = b""


@cache
def _schemas() -> tuple[dict[bytes, Any], Any]:
    """The schemas of log records by fingerprint, and the one of sealed content."""
    schemas = [load_schema(str(path)) for path in _FOLDER.glob("log_record.*.avsc")]
    known = {bytes.fromhex(fingerprint(to_parsing_canonical_form(each), "CRC-64-AVRO")): each for each in schemas}
    return known, load_schema(str(_FOLDER / "sealed_content.1.avsc"))


def decode(data: bytes) -> LogRecord:
    """Decode a message's value. Raises `RecordUnreadable`, for trailing bytes too."""
    known, _ = _schemas()
    if data[:2] != _MARKER:
        raise RecordUnreadable("no log record: the marker of Avro's single-object encoding is missing")
    written_by = known.get(data[2:_HEADER_BYTES])
    if written_by is None:
        raise RecordUnreadable(f"a log record of an unknown schema, fingerprint {data[2:_HEADER_BYTES].hex()}")
    return LogRecord(**_read(data, _HEADER_BYTES, written_by))


def open_content(plaintext: bytes) -> Content:
    """Take apart what a seal held: unpack it, then decode it. Raises `RecordUnreadable`."""
    data = _unpack(plaintext)
    form = data[:1]
    if form == _PAYLOAD_ONLY:
        return Content(payload=data[1:])
    if form != _WHOLE_CONTENT:
        raise RecordUnreadable("sealed content of an unknown form")
    return Content(**_read(data, 1, _schemas()[1]))


def associated_data(record: LogRecord) -> bytes:
    """What a sealed value is bound to; lengths are in characters (Unicode code points), not in bytes."""
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
    lengths = ",".join(str(len(text)) for text in texts)
    head = f"{record.timestamp};{record.home};{lengths};{''.join(texts)}".encode()
    if record.consumer or record.place:
        head += f";{len(record.consumer)};{record.consumer}".encode() + record.place
    return record.command_id + record.key_id + head


def record_id(partition: int, position: int) -> str:
    """The ID by which the store's interface knows the record at a position."""
    return f"{partition:04x}-{position:014x}"


def _read(data: bytes, begin: int, written_by: Any) -> dict[str, Any]:
    source = BytesIO(data)
    source.seek(begin)
    try:
        # What an older schema does not have is as `LogRecord` has it by default.
        fields = fastavro.schemaless_reader(source, written_by, None)
    except Exception as error:  # fastavro raises whatever the damaged bytes led it to
        raise RecordUnreadable(f"not readable: {type(error).__name__}") from error
    if source.tell() != len(data):
        raise RecordUnreadable(f"{len(data) - source.tell()} bytes too many")
    assert isinstance(fields, dict)
    return fields


def _unpack(packed: bytes) -> bytes:
    kind, body = packed[:1], packed[1:]
    if kind == _RAW:
        return body
    if kind != _ZSTD:
        raise RecordUnreadable("packed in an unknown way")
    try:
        # The frame's own size is what gets allocated, so it is looked at first; -1 is a frame that tells none.
        size = zstandard.frame_content_size(body)
        if not 0 <= size <= unpacked_bytes_max:
            raise RecordUnreadable(f"a packed value of {size} bytes is not from 0 to {unpacked_bytes_max}")
        return zstandard.ZstdDecompressor(max_window_size=unpacked_bytes_max).decompress(body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise RecordUnreadable(f"a packed value does not unpack: {error}") from error
