"""Fillers: records that take an offset and count for nobody.

A log on Kafka has no holes, and a position is an offset: where the embedded log has a hole, the topic gets a record
that was decided for no position at all, and so is void by the position rule wherever it lands.
"""

from __future__ import annotations

from schemas.log_record import NO_POSITION, Kind, LogRecord, encode


def filler(store_id: str) -> bytes:
    """The encoded filler of a store. Always the same bytes, so that a store knows its own from anybody else's."""
    return encode(
        LogRecord(position=NO_POSITION, command_id=bytes.fromhex(store_id), appended_at=0, kind=Kind.BARRIER.value)
    )
