"""The record batch, Kafka's unit of storing: one is stored whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from engine.kafka.errors import Refused

_MAGIC: Final = 2


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """A record as a topic holds it; without a value it deletes its key in a compacted topic.

    `time_ms` is the client's clock or the broker's, as the topic is set.
    """

    offset: int
    key: bytes | None
    value: bytes | None
    time_ms: int = 0


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
    """The records at `offset` and after, and where to read on; a broker may cut the last batch short.

    Compaction may leave a batch without its last records, or without any.
    """
    records: list[KafkaRecord] = []
    following = offset
    batches = MemoryRecords(data or b"")
    while batches.has_next():
        batch = batches.next_batch()
        if batch is None:
            continue
        if not batch.validate_crc():
            raise Refused(f"the batch at offset {batch.base_offset} is damaged: wrong checksum", "CorruptRecord")
        following = max(following, batch.next_offset)
        if not batch.is_control_batch:
            records.extend(
                KafkaRecord(each.offset, each.key, each.value, each.timestamp)
                for each in batch
                if each.offset >= offset
            )
    return records, following
