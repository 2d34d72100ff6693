"""A foreign consumer, confluent-kafka, reads what stores wrote, from a real broker."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import TopicPartition

from clients.python_reader import (
    KEY_GONE,
    NO_MASTER_KEY,
    Bookmark,
    LogCut,
    LogReader,
    Record,
    TopicUnreadable,
    read,
    topic,
)
from clients.python_reader.records import LogRecord as ReadRecord
from engine.environment import SystemEnvironment
from engine.keys import MemoryDisk, MemoryKeyStore, Sealer, load_or_create_master_key, unpack
from engine.logs.interface import LogEntry
from schemas.log_record import LogRecord, associated_data, decode_content, record_id
from tests.clients.logs import KEPT, PARTITIONS, PAYLOAD, PURGED, MadeLog, Topics, make_log
from tests.clients.test_records import key_record
from tests.clients.test_rule import Writer
from tests.contract.builders import place
from tests.kafka.brokers import Brokers
from tests.packaging.trees import ROOT

HOME = place(KEPT, PARTITIONS)
"""The partition with the sessions, the faults and the hole."""


@dataclass(frozen=True)
class Scene:
    """A store's log, its copy in a topic, and its master key."""

    made: MadeLog
    topics: Topics
    master_key_file: Path

    @property
    def config(self) -> dict[str, str]:
        return {"bootstrap.servers": self.topics.bootstrap}

    def reader(self, bookmarks: dict[int, Bookmark] | None = None, *, follow: bool = False) -> LogReader:
        """A reader of all partitions that can open what is sealed."""
        return LogReader(
            self.config,
            prefix=self.topics.prefix,
            bookmarks=bookmarks,
            master_key_file=self.master_key_file,
            follow=follow,
        )

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `python -m python_reader`."""
        options = ["--bootstrap", self.topics.bootstrap, "--prefix", self.topics.prefix]
        return subprocess.run(
            [sys.executable, "-m", "python_reader", *options, *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT / "clients")},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


def scene(bootstrap: str, folder: Path) -> Scene:
    """A scene of a test's own."""
    made, topics = make_log(), Topics(bootstrap, f"reader-{os.urandom(6).hex()}")
    key_file = folder / "master.key"
    topics.copy(made, load_or_create_master_key(key_file, create=True))
    return Scene(made, topics, key_file)


@pytest.fixture(scope="module")
def shared(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """For tests that only read."""
    return scene(bootstrap_servers, tmp_path_factory.mktemp("reader"))


@pytest.fixture
def own(bootstrap_servers: str, tmp_path: Path) -> Scene:
    """For tests that change the topics."""
    return scene(bootstrap_servers, tmp_path)


def of(records: list[Record], partition: int) -> list[ReadRecord]:
    return [record.log for record in records if record.partition == partition]


def same(found: list[ReadRecord], wanted: list[LogRecord]) -> bool:
    return [dataclasses.asdict(each) for each in found] == [msgspec.structs.asdict(each) for each in wanted]


def test_the_log_has_all_that_can_befall_one(shared: Scene) -> None:
    counted = shared.made.counted(HOME)
    entries = shared.made.entries[HOME]
    assert len(entries) - len(counted) > 5, "void records"
    assert "barrier" in {record.kind for record in counted}
    assert any(entry.offset - before.offset > 1 for before, entry in pairwise(entries)), "a hole"
    assert "run_reserved" in {record.kind for record in shared.made.counted(1 - HOME)}
    assert "session_purged" in {record.kind for record in counted}


def test_what_counts_is_read_in_order_and_opened(shared: Scene) -> None:
    with shared.reader() as reader:
        records = list(reader)
        void_records = reader.void_records
    sealer = Sealer(MemoryKeyStore(SystemEnvironment(), MemoryDisk(shared.made.keys)), os.urandom)
    for partition in range(PARTITIONS):
        assert same(of(records, partition), shared.made.counted(partition))
    fillers = 1
    assert void_records == sum(map(len, shared.made.entries)) + fillers - len(records)
    for record in records:
        assert record.id == record_id(record.partition, record.log.position)
        stored = LogRecord(**dataclasses.asdict(record.log))
        if not stored.sealed:
            assert (record.content, record.sealed_because) == (None, "")
        elif stored.session_id == PURGED:
            assert (record.content, record.sealed_because) == (None, KEY_GONE)
        else:
            content = decode_content(unpack(sealer.open(stored.key_id, associated_data(stored), stored.sealed)))
            assert record.content is not None
            assert dataclasses.asdict(record.content) == msgspec.structs.asdict(content)
            if stored.type == "note":
                assert record.content.payload == PAYLOAD.encode()
    assert {record.log.session_id for record in records if record.sealed_because} == {PURGED}
    assert any(record.content is not None and record.content.checkpoint for record in records)


def test_without_the_master_key_everything_stays_sealed_and_in_order(shared: Scene) -> None:
    records = list(read(shared.topics.bootstrap, prefix=shared.topics.prefix, partitions=[HOME]))
    assert same(of(records, HOME), shared.made.counted(HOME))
    assert {record.partition for record in records} == {HOME}
    assert {record.sealed_because for record in records if record.log.sealed} == {NO_MASTER_KEY}
    assert all(record.content is None for record in records)


def test_a_reader_that_stops_anywhere_goes_on_from_its_bookmarks(shared: Scene) -> None:
    wanted = shared.made.counted(HOME)
    for stop in range(0, len(wanted), 5):
        with shared.reader() as first:
            for record in first:
                if record.partition == HOME and record.log.position == wanted[stop].position:
                    break
            bookmarks = first.bookmarks()
        done = bookmarks[HOME].batch_end
        assert done in {0, *(each.position + 1 for each in wanted if each.last)}
        assert done > wanted[stop].position if wanted[stop].last else done <= wanted[stop].position
        with shared.reader(bookmarks) as rest:
            found = of(list(rest), HOME)
        assert same(found, [each for each in wanted if each.position >= done])


def test_a_batch_that_follows_another_history_is_skipped_and_said(own: Scene, caplog: pytest.LogCaptureFixture) -> None:
    with own.reader() as reader:
        before = list(reader)
        bookmarks = reader.bookmarks()
    end = own.made.entries[HOME][-1].offset + 1
    foreign = Writer(end, os.urandom(32)).batch([2])
    genuine = Writer(end + 2, bookmarks[HOME].digest).batch([1])
    own.topics.produce("log", HOME, [(None, data) for data in [*foreign, *genuine]])
    with caplog.at_level(logging.ERROR, "python_reader"), own.reader() as reader:
        after = list(reader)
    assert [each.position for each in of(after, HOME)] == [*(each.position for each in of(before, HOME)), end + 2]
    assert f"partition {HOME}, position {end}: a batch that follows another history, skipped" in caplog.text


def test_records_deleted_from_the_beginning_are_noticed(own: Scene) -> None:
    with own.reader() as reader:
        list(reader)
        bookmarks = reader.bookmarks()
    partition = TopicPartition(f"{own.topics.prefix}.log", HOME, 3)
    own.topics.admin.delete_records([partition])[partition].result(20)
    with own.reader() as reader, pytest.raises(LogCut, match=f"partition {HOME}, position 0: the log begins at 3"):
        list(reader)
    with own.reader(bookmarks) as reader:
        assert list(reader) == [], "whoever has read them goes on"


def rewritten(own: Scene, entries: tuple[LogEntry, ...]) -> None:
    """Make the topic again, with other entries."""
    own.topics.delete("log")
    own.topics.create("log", PARTITIONS)
    own.topics.copy_entries(HOME, entries)


def test_a_log_cut_at_its_end_is_noticed_by_whoever_had_read_on(own: Scene) -> None:
    with own.reader() as reader:
        list(reader)
        bookmarks = {HOME: reader.bookmarks()[HOME]}
    entries = own.made.entries[HOME]
    rewritten(own, entries[:-1])
    end, was = entries[-2].offset + 1, bookmarks[HOME].batch_end
    with own.reader(bookmarks) as reader, pytest.raises(LogCut, match=f"ends at {end}, and was read up to {was}"):
        list(reader)


def test_a_log_written_again_to_the_same_length_is_noticed(own: Scene) -> None:
    with own.reader() as reader:
        list(reader)
        bookmarks = {HOME: reader.bookmarks()[HOME]}
    *kept, last = own.made.entries[HOME]
    other = Writer(last.offset, os.urandom(32)).batch([1])
    rewritten(own, (*kept, LogEntry(last.offset, other[0])))
    with own.reader(bookmarks) as reader, pytest.raises(LogCut, match="something else stood here"):
        list(reader)


def test_a_log_written_again_below_a_reader_that_follows_is_noticed(own: Scene) -> None:
    with own.reader() as reader:
        list(reader)
        bookmarks = reader.bookmarks()
    with own.reader(bookmarks, follow=True) as reader:
        records = iter(reader)
        end = own.made.entries[HOME][-1].offset + 1
        own.topics.produce("log", HOME, [(None, data) for data in Writer(end, bookmarks[HOME].digest).batch([1])])
        assert next(records).log.position == end
        *kept, _ = own.made.entries[HOME]
        end = kept[-1].offset + 1
        rewritten(own, (*kept, *(LogEntry(end + n, data) for n, data in enumerate(Writer(end, bytes(32)).batch([4])))))
        with pytest.raises(LogCut):
            next(records)


def test_keys_that_come_and_go_while_the_log_is_followed(own: Scene) -> None:
    master = load_or_create_master_key(own.master_key_file, create=False)
    keys = MemoryKeyStore(SystemEnvironment())
    sealer = Sealer(keys, os.urandom)
    key_id, key = sealer.new_key()
    asyncio.run(keys.put("session:new", key_id, key))
    with own.reader() as reader:
        list(reader)
        bookmarks = reader.bookmarks()
    writer = Writer(own.made.entries[HOME][-1].offset + 1, bookmarks[HOME].digest)

    def land(kind: str) -> None:
        data = writer.sealed(sealer, kind, "new", key_id)
        own.topics.produce("log", HOME, [(None, data)])

    with own.reader(bookmarks, follow=True) as reader:
        records = iter(reader)
        own.topics.produce("keys", 0, [key_record("session:new", key_id, key, master)])
        land("record")
        opened = next(records)
        assert opened.content is not None
        assert opened.content.payload == b"{}"
        # The purge is logged before the key leaves the topic: from here on the reader opens nothing of the session.
        land("session_purged")
        assert next(records).log.kind == "session_purged"
        land("record")
        assert next(records).sealed_because == KEY_GONE


def test_the_command_prints_lines_of_json_and_goes_on_at_its_bookmarks(own: Scene, tmp_path: Path) -> None:
    options = ["--master-key", str(own.master_key_file), "--bookmarks", str(tmp_path / "bookmarks.json")]
    done = own.command(*options)
    assert done.returncode == 0, done.stderr
    assert "messages do not count, and were skipped" in done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    wanted = own.made.counted(HOME)
    assert [line["position"] for line in lines if line["partition"] == HOME] == [each.position for each in wanted]
    notes = [line for line in lines if line.get("type") == "note"]
    assert {line["payload"] for line in notes if "payload" in line} == {PAYLOAD}
    assert {line["sealed"] for line in notes if "sealed" in line} == {KEY_GONE}
    again = own.command(*options)
    assert (again.returncode, again.stdout) == (0, "")
    rewritten(own, own.made.entries[HOME][:-1])
    cut = own.command(*options)
    assert (cut.returncode, cut.stdout) == (3, "")
    assert "the log was cut or written again: partition" in cut.stderr


def test_a_topic_that_is_not_there_and_a_broker_that_is_not_there_are_said(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TopicUnreadable, match=r"topic nothing\.log: .*UNKNOWN_TOPIC"):
        next(read(bootstrap_servers, prefix="nothing"))
    monkeypatch.setattr(topic, "answer_seconds_max", 0.5)
    with pytest.raises(TopicUnreadable, match=r"topic runstore\.log: "):
        next(read("127.0.0.1:1", config={"log_level": 0}))


async def test_a_reader_that_follows_goes_on_after_the_broker_died(tmp_path: Path) -> None:
    async with Brokers(tmp_path / "kafka") as brokers:
        own = await asyncio.to_thread(scene, brokers.bootstrap, tmp_path)
        before = [record.position for record in own.made.counted(HOME)]
        writer = Writer(before[-1] + 1, own.made.prev(HOME))
        with LogReader(own.config, prefix=own.topics.prefix, partitions=[HOME], follow=True) as reader:
            records = iter(reader)
            found = [(await asyncio.to_thread(next, records)).log.position for _ in before]
            waiting = asyncio.create_task(asyncio.to_thread(next, records))
            await brokers.kill()
            done, _ = await asyncio.wait([waiting], timeout=topic.poll_seconds * 4)
            assert not done
            await brokers.start()
            await asyncio.to_thread(own.topics.produce, "log", HOME, [(None, data) for data in writer.batch([1])])
            assert (await waiting).log.position == writer.position
        assert found == before
