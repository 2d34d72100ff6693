"""A foreign consumer, confluent-kafka, reads a log from a real broker."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from clients.python_reader import (
    KEY_GONE,
    NO_MASTER_KEY,
    TopicUnreadable,
    read,
    topic,
)
from engine.environment import SystemEnvironment
from engine.keys import MemoryDisk, MemoryKeyStore, Sealer, load_or_create_master_key, unpack
from schemas.log_record import LogRecord, associated_data, decode_content, record_id
from tests.clients.logs import PARTITIONS, PAYLOAD, PURGED
from tests.clients.scene import HOME, Scene, of, rewritten, same, scene
from tests.clients.test_records import key_record
from tests.clients.test_rule import Writer


@pytest.fixture(scope="module")
def shared(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """For tests that only read."""
    return scene(bootstrap_servers, tmp_path_factory.mktemp("reader"))


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
        elif stored.key_id not in shared.made.keys:
            assert stored.session_id == PURGED or stored.run_id == "forgotten-run"
            assert (record.content, record.sealed_because) == (None, KEY_GONE)
        else:
            content = decode_content(unpack(sealer.open(stored.key_id, associated_data(stored), stored.sealed)))
            assert record.content is not None
            assert dataclasses.asdict(record.content) == msgspec.structs.asdict(content)
            if stored.type == "note":
                assert record.content.payload == PAYLOAD.encode()
    sealed = [record.log for record in records if record.sealed_because]
    assert {record.session_id or record.run_id for record in sealed} == {PURGED, "forgotten-run"}
    assert any(record.content is not None and record.content.checkpoint for record in records)


def test_without_the_master_key_everything_stays_sealed_and_in_order(shared: Scene) -> None:
    records = list(read(shared.topics.bootstrap, prefix=shared.topics.prefix, partitions=[HOME]))
    assert same(of(records, HOME), shared.made.counted(HOME))
    assert {record.partition for record in records} == {HOME}
    assert {record.sealed_because for record in records if record.log.sealed} == {NO_MASTER_KEY}
    assert all(record.content is None for record in records)


def test_a_reader_that_stops_anywhere_goes_on_from_its_bookmarks(shared: Scene) -> None:
    wanted = shared.made.counted(HOME)
    inside = [number for number, record in enumerate(wanted) if not record.last]
    assert inside, "commands of several records"
    for stop in (0, *inside[-2:], len(wanted) - 1):
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
