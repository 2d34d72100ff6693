"""Logs as stores write them, with what can befall one, and their copy in a topic at the same offsets."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from engine.consumers import ConsumerStream
from engine.keys import MasterKey
from engine.keys.topic import filler
from engine.logs.interface import LogEntry
from engine.logs.simulated import Answer, AppendFault
from projections.position_rule import PositionRule
from schemas.consumers import Consumer, Scope, ScopeKind, StartAt
from schemas.log_record import NO_POSITION, Kind, LogRecord, encode
from tests.clients.test_records import check_record, key_record
from tests.contract.builders import LATER, Command, Run, create_session, end_session, place, purge_session
from tests.engine.scene import Cluster
from tests.engine.test_partition import Scripted
from tests.simulation.virtual_time import run_virtual

PARTITIONS: Final = 2
KEPT: Final = "kept"
PURGED: Final = "purged"
PAYLOAD: Final = '{"Score": 1.10, "big": 123456789012345678901234567890}'
LABELS: Final = {"tenant": "acme"}
FILLER: Final = encode(LogRecord(position=NO_POSITION, command_id=bytes(16), appended_at=0, kind=Kind.BARRIER.value))
"""A record that counts nowhere."""

answer_seconds_max: Final = 20.0


@dataclass(frozen=True)
class MadeLog:
    """What is in each partition, and the data keys that are left, with their owners."""

    entries: tuple[tuple[LogEntry, ...], ...]
    keys: dict[bytes, tuple[str, bytes]]

    def prev(self, partition: int) -> bytes:
        """What the next batch of a partition must follow."""
        rule = PositionRule(partition, voids_legal=True)
        rule.feed(self.entries[partition])
        return rule.prev()

    def counted(self, partition: int) -> list[LogRecord]:
        """What counts in a partition, as the store reads it."""
        rule = PositionRule(partition, voids_legal=True)
        return [record for command in rule.feed(self.entries[partition]) for record in command.records]


def make_log() -> MadeLog:
    """Two processes write at once: void batches, doubled ones, a lost one and its barrier, a hole, a purged session."""

    async def main() -> MadeLog:
        cluster, faults = Cluster(1, PARTITIONS), Scripted()
        one, other = await cluster.start(faults), await cluster.start()
        kept, purged = Run("kept-run", KEPT, labels=LABELS), Run("purged-run", PURGED)
        kept_after_now = Run("kept-child", KEPT, parent="kept-run").append("after now", PAYLOAD, "note")
        shot, child = Run("shot"), Run("shot-child", parent="shot")
        for command in (create_session(KEPT), create_session(PURGED), kept.start(), purged.start(), shot.start()):
            await one.do(command)
        await one.do(Run("kept-child", KEPT, parent="kept-run").start())
        for number in range(4):
            appended = [run.append(f"race/{number}/{run.run_id}", PAYLOAD) for run in (kept, purged, shot)]
            await asyncio.gather(*(one.do(each) for each in appended), *(other.do(each) for each in appended))
        faults.appends = [AppendFault(copies=2), AppendFault(copies=0), AppendFault(answer=Answer.NONE)]
        for number in range(3):
            await one.do(kept.append(f"fault/{number}", PAYLOAD))
        await one.do(child.start())
        await one.do(kept.cancel("why not"))
        await one.do(kept.suspend())
        for command in (purged.end(), end_session(PURGED), purge_session(PURGED)):
            await one.do(command)
        for run_id, data in (("kept-run", PAYLOAD), ("forgotten-run", "1"), ("forgotten-run", '"again"')):
            if data == '"again"':
                await one.do(Command("memory/purge_run", {"agent_id": "agent", "run_id": run_id}))
            event = {"type": "thinking", "timestamp": LATER, "data": data, "labels": LABELS}
            args = {"agent_id": "agent", "run_id": run_id, "events": [event]}
            await one.do(Command("memory/append_events", args))
        consumers = one.store.consumers
        made = await consumers.put("a-consumer", Scope(ScopeKind.SESSION, KEPT), ("note", "usage"), StartAt.NOW)
        assert isinstance(made, Consumer)
        await one.do(kept_after_now)
        stream = await consumers.stream("a-consumer", follow=False)
        assert isinstance(stream, ConsumerStream)
        portion = await stream.take()
        stream.close()
        assert portion is not None
        await consumers.commit("a-consumer", portion.records[0].cursor)
        await consumers.delete("a-consumer")
        await cluster.storage.settle()
        hole = place(KEPT, PARTITIONS)
        cluster.storage.land(hole, [], cluster.storage.end(hole) + 2)
        await one.do(Run("after", KEPT, labels=LABELS, predecessor="kept-run").start())
        await cluster.storage.settle()
        for process in (one, other):
            await process.store.close()
        entries = tuple(tuple(cluster.storage.entries(partition)) for partition in range(PARTITIONS))
        return MadeLog(entries, dict(cluster.keys.keys))

    return run_virtual(main())


class Topics:
    """The two topics of a store, filled by a plain producer."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self._settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "linger.ms": 5}

    def create(self, name: str, partitions: int, **config: str) -> None:
        """Make a topic."""
        topic = NewTopic(f"{self.prefix}.{name}", partitions, 1, config=config)
        self.admin.create_topics([topic])[topic.topic].result(answer_seconds_max)

    def delete(self, name: str) -> None:
        """Delete a topic."""
        full = f"{self.prefix}.{name}"
        self.admin.delete_topics([full])[full].result(answer_seconds_max)

    def produce(self, name: str, partition: int, values: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        """Append records in order."""
        # Idempotent, so that what is tried again neither doubles nor changes places.
        producer = Producer(self._settings | {"enable.idempotence": True, "message.max.bytes": 20_000_000})
        for key, value in values:
            producer.produce(f"{self.prefix}.{name}", value, key, partition)
        assert producer.flush(answer_seconds_max) == 0

    def leave_hole(self, partition: int) -> None:
        """Take two offsets: a record that does not count, and the marker of an aborted transaction, which is no record.

        A consumer that reads what is committed only is shown neither.
        """
        settings = {"transactional.id": os.urandom(8).hex(), "linger.ms": 0}
        producer = Producer(self._settings | settings)
        producer.init_transactions(answer_seconds_max)
        producer.begin_transaction()
        producer.produce(f"{self.prefix}.log", FILLER, partition=partition)
        assert producer.flush(answer_seconds_max) == 0
        producer.abort_transaction(answer_seconds_max)

    def copy(self, made: MadeLog, master: MasterKey) -> None:
        """Make both topics, and put a log into them at its own offsets."""
        self.create("log", len(made.entries), **{"retention.ms": "-1"})
        self.create("keys", 1, **{"cleanup.policy": "compact"})
        keys = [key_record(owner, key_id, key, master) for key_id, (owner, key) in made.keys.items()]
        self.produce("keys", 0, [check_record(master), *keys, filler()])
        for partition, entries in enumerate(made.entries):
            self.copy_entries(partition, entries)

    def copy_entries(self, partition: int, entries: Sequence[LogEntry], end: int = 0) -> None:
        """Append entries, and what stands in for a hole of two offsets."""
        stretch: list[tuple[bytes | None, bytes | None]] = []
        for entry in entries:
            if entry.offset != end:
                assert entry.offset == end + 2
                self.produce("log", partition, stretch)
                self.leave_hole(partition)
                stretch = []
            stretch.append((None, entry.data))
            end = entry.offset + 1
        self.produce("log", partition, stretch)
