"""Two stores on the same topics, as two processes would be: one history, one set of keys, no stale answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engine.environment import SystemEnvironment
from engine.kafka.settings import KafkaSettings
from engine.keys import MasterKeyError
from engine.opening import FolderInUse, OpeningError, StoreSettings, open_store
from engine.store import Store
from schemas.log_record import Kind, decode
from schemas.refusals import Refused
from service import methods
from tests.contract import builders
from tests.contract.builders import Command, Run
from tests.kafka.topics import operating, own_topics

PARTITIONS = 2


@dataclass(frozen=True)
class Machine:
    """A machine that a store runs on."""

    folder: Path
    kafka: KafkaSettings

    @property
    def settings(self) -> StoreSettings:
        key_file = self.folder.parent / "master.key"
        return StoreSettings(self.folder, PARTITIONS, log="kafka", master_key_file=key_file, kafka=self.kafka)

    async def open(self) -> Store:
        return await open_store(self.settings, SystemEnvironment(""))


@pytest.fixture
def kafka(bootstrap_servers: str) -> KafkaSettings:
    return own_topics(bootstrap_servers)


@asynccontextmanager
async def stores(tmp_path: Path, kafka: KafkaSettings, count: int = 2) -> AsyncIterator[list[Store]]:
    async with AsyncExitStack() as stack:
        found = [await Machine(tmp_path / f"machine-{number}", kafka).open() for number in range(count)]
        for store in found:
            stack.push_async_callback(store.close)
        yield found


@pytest_asyncio.fixture
async def pair(tmp_path: Path, kafka: KafkaSettings) -> AsyncIterator[list[Store]]:
    async with stores(tmp_path, kafka) as found:
        yield found


async def do(store: Store, command: Command) -> dict[str, Any]:
    return await methods.call(store, command.method, command.args)


async def code(store: Store, command: Command) -> str:
    with pytest.raises(Refused) as refused:
        await do(store, command)
    return refused.value.code.value


async def test_what_one_writes_the_other_answers_at_once_with_what_was_sealed(pair: list[Store]) -> None:
    for number in range(10):
        writer, reader = pair[number % 2], pair[1 - number % 2]
        run = Run(f"run-{number}", f"session-{number}", labels={"secret": f"label-{number}"})
        await do(writer, builders.create_session(run.session_id))
        await do(writer, run.start())
        shown = await do(reader, Command("load_run", {"run_id": run.run_id}))
        assert shown["run"]["labels"] == {"secret": f"label-{number}"}
        # The other may write there, too, under the key that the first one made.
        await do(reader, run.append(payload=f'{{"n":{number}}}'))
        page = await do(writer, Command("list_run_records", {"run_id": run.run_id, "limit": 10}))
        assert page["records"][-1]["payload"] == f'{{"n":{number}}}'


async def test_a_store_opened_later_knows_the_keys_of_what_it_finds(tmp_path: Path, kafka: KafkaSettings) -> None:
    async with stores(tmp_path, kafka, 1) as (first,):
        run = Run("run", "session", labels={"secret": "label"})
        await do(first, builders.create_session(run.session_id))
        await do(first, run.start())
        second = await Machine(tmp_path / "later", kafka).open()
        try:
            shown = await do(second, Command("load_run", {"run_id": run.run_id}))
            assert shown["run"]["labels"] == {"secret": "label"}
            assert second.store_id == first.store_id
            assert (first.created, second.created) == (True, False)
        finally:
            await second.close()


async def test_a_purge_by_one_is_a_purge_for_both(pair: list[Store]) -> None:
    run = Run("run", "session")
    for command in (builders.create_session("session"), run.start(), run.append(), run.end()):
        await do(pair[0], command)
    await do(pair[1], Command("load_run", {"run_id": "run"}))
    await do(pair[1], builders.end_session("session"))
    await do(pair[0], builders.purge_session("session"))
    for store in pair:
        assert await code(store, Command("load_run", {"run_id": "run"})) == "run_not_found"
        assert await code(store, builders.create_session("session")) == "session_purged"


async def test_cursors_hold_on_either(pair: list[Store]) -> None:
    run = Run("run", "session")
    for command in (builders.create_session("session"), run.start(), *(run.append(f"note-{n}") for n in range(5))):
        await do(pair[0], command)
    first = await do(pair[0], Command("list_run_records", {"run_id": "run", "limit": 3}))
    rest = await do(
        pair[1], Command("list_run_records", {"run_id": "run", "limit": 10, "cursor": first["next_cursor"]})
    )
    keys = [record["event_key"] for page in (first, rest) for record in page["records"]]
    assert keys == [run.started_key, *(f"note-{n}" for n in range(5))]


async def test_both_write_to_the_same_run_at_once(pair: list[Store]) -> None:
    run = Run("run", "session")
    for command in (builders.create_session("session"), run.start()):
        await do(pair[0], command)

    async def write(number: int, command: Command) -> dict[str, Any]:
        while True:
            try:
                return await do(pair[number % 2], command)
            except Refused as refused:
                if not refused.code.temporary:
                    raise
                await asyncio.sleep(0.01)

    # Every record is sent by both: one of them inserts it.
    sent = [(number, run.append(f"note-{number // 2}")) for number in range(60)]
    answers = await asyncio.gather(*(write(number, command) for number, command in sent))
    for one, other in zip(answers[::2], answers[1::2], strict=True):
        assert one["id"] == other["id"]
        assert sorted([one["inserted"], other["inserted"]]) == [False, True]
    pages = [await do(store, Command("list_run_records", {"run_id": "run", "limit": 100})) for store in pair]
    assert pages[0]["records"] == pages[1]["records"]
    assert len(pages[0]["records"]) == 31
    for store in pair:
        assert all(verified.equal for verified in await store.verify())


async def test_strict_reads_are_proved_by_a_barrier_that_all_who_wait_share(
    tmp_path: Path, kafka: KafkaSettings
) -> None:
    strict = replace(kafka, strict_reads=True)
    async with stores(tmp_path, kafka, 1) as (writer,), operating(kafka) as operator:
        reader = await Machine(tmp_path / "strict", strict).open()
        try:
            run = Run("run", "session")
            await do(writer, builders.create_session("session"))
            await do(writer, run.start())
            home = builders.place("session", PARTITIONS)
            before = len(await operator.records(kafka.log_topic, home))
            reads = [Command("load_run", {"run_id": "run"})] * 50
            answers = await asyncio.gather(*(do(reader, command) for command in reads))
            assert all(answer["run"]["run_id"] == "run" for answer in answers)
            added = [decode(each.value or b"") for each in (await operator.records(kafka.log_topic, home))[before:]]
            assert added
            assert {record.kind for record in added} == {Kind.BARRIER}
            # The first of them are void: the reader did not know yet what had been written.
            assert added[-1].position == before + len(added) - 1
            assert len(added) <= 4

            # A refusal and a retry, too; and the other goes on from there.
            assert await code(reader, Command("load_run", {"run_id": "none"})) == "run_not_found"
            await do(reader, builders.create_session("session"))
            await do(writer, run.append())
            assert (await do(reader, Command("load_run", {"run_id": "run"})))["run"]["run_id"] == "run"
        finally:
            await reader.close()


# -- folders, keys and topics that do not belong together


async def test_a_folder_is_one_stores_alone(tmp_path: Path, kafka: KafkaSettings, bootstrap_servers: str) -> None:
    machine = Machine(tmp_path / "machine", kafka)
    store = await machine.open()
    with pytest.raises(FolderInUse):
        await machine.open()
    await store.close()
    await (await machine.open()).close()

    elsewhere = replace(machine, kafka=own_topics(bootstrap_servers))
    with pytest.raises(OpeningError, match=kafka.topic_prefix):
        await elsewhere.open()
    async with operating(elsewhere.kafka) as operator:
        assert (await operator.client.connect()).partitions == {}, "nothing is made for a store that is refused"
    embedded = StoreSettings(machine.folder, master_key_file=tmp_path / "master.key")
    with pytest.raises(OpeningError, match="migrate --to embedded"):
        await open_store(embedded, SystemEnvironment(""))


async def test_an_embedded_stores_folder_is_not_opened_on_kafka(tmp_path: Path, kafka: KafkaSettings) -> None:
    await (await open_store(StoreSettings(tmp_path / "machine", PARTITIONS), SystemEnvironment(""))).close()
    with pytest.raises(OpeningError, match="migrate --to kafka"):
        await Machine(tmp_path / "machine", kafka).open()


async def test_topics_that_are_gone_are_a_loss(tmp_path: Path, kafka: KafkaSettings) -> None:
    machine = Machine(tmp_path / "machine", kafka)
    await (await machine.open()).close()
    async with operating(kafka) as operator:
        await operator.delete(kafka.log_topic)
        await operator.delete(kafka.keys_topic)
    with pytest.raises(OpeningError, match=f"no topic {kafka.log_topic}"):
        await machine.open()


async def test_topics_that_were_made_anew_are_another_stores(tmp_path: Path, kafka: KafkaSettings) -> None:
    machine, another = Machine(tmp_path / "machine", kafka), Machine(tmp_path / "another", kafka)
    await (await machine.open()).close()
    async with operating(kafka) as operator:
        await operator.delete(kafka.log_topic)
        await operator.delete(kafka.keys_topic)
    store = await another.open()
    store_id = store.store_id
    await store.close()
    with pytest.raises(OpeningError, match=store_id):
        await machine.open()


async def test_another_master_key_is_refused(tmp_path: Path, kafka: KafkaSettings) -> None:
    store = await Machine(tmp_path / "one" / "machine", kafka).open()
    await store.close()
    with pytest.raises(MasterKeyError, match="missing"):
        await Machine(tmp_path / "two" / "machine", kafka).open()
    await (await Machine(tmp_path / "three" / "machine", own_topics(kafka.bootstrap_servers)).open()).close()
    (tmp_path / "two" / "master.key").write_bytes((tmp_path / "three" / "master.key").read_bytes())
    with pytest.raises(MasterKeyError, match="wrong one"):
        await Machine(tmp_path / "two" / "machine", kafka).open()


async def test_what_a_machine_keeps_can_be_deleted(tmp_path: Path, kafka: KafkaSettings) -> None:
    machine = Machine(tmp_path / "machine", kafka)
    store = await machine.open()
    run = Run("run", "session")
    for command in (builders.create_session("session"), run.start(), run.append()):
        await do(store, command)
    await store.close()
    for name in ("copy", "projections"):
        (machine.folder / name).rename(tmp_path / name)
        store = await machine.open()
        page = await do(store, Command("list_run_records", {"run_id": "run", "limit": 10}))
        assert len(page["records"]) == 2
        assert all(verified.equal for verified in await store.verify())
        await store.close()
