"""The record batch, Kafka's unit of storing: one is stored whole or not at all."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from engine.kafka.errors import Refused

_MAGIC: Final = 2
_HEAD: Final = struct.Struct(">qi11xi")
"""First offset, length of what follows, and – after epoch, magic, CRC and attributes – the last offset's distance."""
_LENGTH_AFTER: Final = 12


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """A record as a topic holds it; without a value it deletes its key in a compacted topic."""

    offset: int
    key: bytes | None
    value: bytes | None


def encoded(records: Sequence[tuple[bytes | None, bytes | None]], time_ms: int) -> bytes:
    """One record batch. The broker stores it whole or not at all."""
    builder = DefaultRecordBatchBuilder(
        magic=_MAGIC,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**31 - 1,  # The topic's max.message.bytes is the limit.
    )
    for number, (key, value) in enumerate(records):
        builder.append(number, time_ms, key, value, [])
    return bytes(builder.build())


def decoded(data: bytes | None, offset: int) -> tuple[list[KafkaRecord], int]:
    """The records at `offset` and after, and the offset after the last whole batch.

    A broker answers with whole batches, from the one that holds the offset, and cuts the last one short.
    """
    records: list[KafkaRecord] = []
    after = offset
    batches = MemoryRecords(data or b"")
    at = 0
    while batches.has_next():
        first, length, last = _HEAD.unpack_from(data or b"", at)
        at += _LENGTH_AFTER + length
        batch = batches.next_batch()
        if batch is None:
            break
        if not batch.validate_crc():
            raise Refused(f"the batch at offset {first} is damaged: its checksum does not match", "CorruptRecord")
        if not batch.is_control_batch:
            records.extend(KafkaRecord(each.offset, each.key, each.value) for each in batch if each.offset >= offset)
        after = max(after, first + last + 1)
    return records, after
