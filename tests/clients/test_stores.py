"""Readers beside what happens: stores that write to the same topics, a broker that dies."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

from clients.python_reader import (
    KEY_GONE,
    LogReader,
    Record,
    topic,
)
from engine.environment import SystemEnvironment
from engine.opening import StoreSettings, open_store
from engine.store import Store
from schemas.refusals import Code, Refused
from schemas.values import Page
from service.methods import call
from tests.clients.logs import KEPT, PARTITIONS, PAYLOAD, PURGED
from tests.clients.scene import HOME, scene
from tests.clients.test_rule import Writer
from tests.contract.builders import Command, Run, create_session, end_session, purge_session
from tests.kafka.brokers import Brokers
from tests.kafka.topics import own_topics


async def test_what_real_stores_wrote_side_by_side_is_read(bootstrap_servers: str, tmp_path: Path) -> None:
    kafka = own_topics(bootstrap_servers)
    key_file = tmp_path / "master.key"
    settings = StoreSettings(tmp_path / "one", PARTITIONS, log="kafka", kafka=kafka, master_key_file=key_file)
    one = await open_store(settings, SystemEnvironment(""))
    other = await open_store(dataclasses.replace(settings, data_dir=tmp_path / "other"), SystemEnvironment(""))
    kept, purged = Run("kept-run", KEPT, labels={"tenant": "acme"}), Run("purged-run", PURGED)
    try:
        for command in (create_session(KEPT), create_session(PURGED), kept.start(), purged.start()):
            await call(one, command.method, command.args)
        notes = [kept.append(f"note/{number}", PAYLOAD) for number in range(60)]

        async def write(store: Store, commands: list[Command]) -> None:
            for command in commands:
                while True:
                    try:
                        await call(store, command.method, command.args)
                        break
                    except Refused as refused:
                        # Two who write to one partition defeat each other now and then: it is to be repeated.
                        if refused.code is not Code.UNAVAILABLE:
                            raise

        await asyncio.gather(write(one, notes[::2]), write(other, notes[1::2]))
        await write(one, [purged.append(), purged.end(), end_session(PURGED), purge_session(PURGED)])
        page = await one.list_run_records(kept.run_id, "", 1000)
    finally:
        await one.close()
        await other.close()
    assert isinstance(page, Page)

    def found() -> tuple[list[Record], int]:
        config = {"bootstrap.servers": bootstrap_servers}
        with LogReader(config, prefix=kafka.topic_prefix, master_key_file=key_file) as reader:
            return list(reader), reader.void_records

    records, void_records = await asyncio.to_thread(found)
    assert [
        (record.id, record.log.event_key, record.content and record.content.payload)
        for record in records
        if record.log.run_id == kept.run_id and record.log.kind == "record"
    ] == [(record.id, record.content.event_key, record.content.payload) for record in page.records]
    assert len(page.records) == 61
    assert {record.sealed_because for record in records if record.log.session_id == PURGED and record.log.sealed} == {
        KEY_GONE
    }
    assert void_records > 0, "the two stores never met"


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
