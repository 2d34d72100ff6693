"""Reading a topic as anybody could: a plain consumer, from offset 0, and the position rule written down once more.

Nothing of this is the store's own code: the records are decoded by the schema file and fastavro.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import fastavro
from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.faults.folders import ROOT
from tests.kafka.faults.ledger import Problems

read_seconds_max: Final = 60.0
_SCHEMA: Final = fastavro.parse_schema(json.loads((ROOT / "schemas/avro/log_record.1.avsc").read_text()))
_HEADER_BYTES: Final = 10


@dataclass(frozen=True, slots=True)
class Found:
    """A record that counts."""

    partition: int
    offset: int
    kind: str
    run_id: str
    event_key: str
    session_id: str
    command_id: bytes
    terminal_status: str

    @property
    def id(self) -> str:
        """The record's ID, as answers give it."""
        return f"{self.partition:04x}-{self.offset:014x}"


@dataclass
class History:
    """What one reader takes a topic to say. `digests`: of all that counts, with its offsets, by partition."""

    records: list[Found] = field(default_factory=list)
    void: int = 0
    barriers: int = 0
    digests: dict[int, str] = field(default_factory=dict)
    by_name: dict[tuple[str, str], list[Found]] = field(default_factory=lambda: defaultdict(list))

    def take(self, partition: int, counted: Iterable[tuple[int, bytes, dict[str, Any]]]) -> None:
        """Take what counts of a partition, in order."""
        sha = hashlib.sha256()
        for offset, value, fields in counted:
            sha.update(b"%d,%d;" % (offset, len(value)) + value)
            self.barriers += fields["kind"] == "barrier"
            names = ("kind", "run_id", "event_key", "session_id", "command_id", "terminal_status")
            found = Found(partition, offset, *(fields[name] for name in names))
            self.records.append(found)
            if found.kind == "record":
                self.by_name[found.run_id, found.event_key].append(found)
        self.digests[partition] = sha.hexdigest()


async def entries(bootstrap: str, topic: str, partitions: int, **options: Any) -> list[list[tuple[int, bytes]]]:
    """Offset and value of each record that the consumer is given, from 0 to the end, by partition."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest", **options
    )
    found: list[list[tuple[int, bytes]]] = [[] for _ in range(partitions)]
    places = [TopicPartition(topic, number) for number in range(partitions)]
    async with asyncio.timeout(read_seconds_max), consumer:
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        await consumer.seek_to_beginning(*places)
        for place in places:
            # The position, and not the last record: an end may stand behind what is no record.
            while await consumer.position(place) < ends[place]:
                for got in (await consumer.getmany(place, timeout_ms=200, max_records=10_000)).values():
                    found[place.partition] += [(each.offset, each.value) for each in got]
    return found


async def read_by_position(bootstrap: str, topic: str, partitions: int, problems: Problems) -> History:
    """Read the log of a store."""
    history = History()
    for partition, held in enumerate(await entries(bootstrap, topic, partitions)):
        rule = Rule(partition, problems)
        history.take(partition, rule.counted(held))
        history.void += rule.void
    return history


@dataclass
class Rule:
    """A record counts where its own position says, after what it says that it follows."""

    partition: int
    problems: Problems
    void: int = 0

    def counted(self, held: Iterable[tuple[int, bytes]]) -> Iterable[tuple[int, bytes, dict[str, Any]]]:
        """Give what counts, in order. A command that is split is a problem."""
        prev, batch = bytes(32), b""
        open_command, follows_other = b"", False
        expected = 0
        for offset, value in held:
            fields: Any = fastavro.schemaless_reader(io.BytesIO(value[_HEADER_BYTES:]), _SCHEMA, None)
            where = f"partition {self.partition}, offset {offset}"
            if fields["position"] != offset:
                self.void += 1
                continue
            if fields["prev"]:
                prev = hashlib.sha256(batch).digest() if batch else bytes(32)
                follows_other = fields["prev"] != prev
                if not follows_other:
                    batch = b""
            if follows_other:
                self.void += 1
                self.problems.add("rewritten", f"{where}: it follows another history")
                continue
            if not fields["prev"]:
                self.problems.expect(offset == expected, "half", f"{where}: the record before it is missing")
            if open_command:
                self.problems.expect(fields["command_id"] == open_command, "half", f"{where}: within a command")
            open_command = b"" if fields["last"] else fields["command_id"]
            batch += value
            expected = offset + 1
            yield offset, value, fields
        self.problems.expect(not open_command, "half", f"partition {self.partition} ends within a command")
