"""A log that was cut or written again: noticed, said loudly; the projection is rebuilt, what was lost is listed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engine.environment import SystemEnvironment
from engine.kafka.settings import KafkaSettings
from engine.kafka.topics import TopicUnfit
from engine.opening import StoreSettings, open_store
from engine.store import Store
from schemas.log_record import decode
from schemas.refusals import Refused
from service import methods
from tests.contract import builders
from tests.contract.builders import Command, Run
from tests.contract.clients import call_each
from tests.contract.makers import InProcess
from tests.kafka.topics import Operator, operating, own_topics

PARTITIONS = 2
noticed_seconds_max = 20.0


@pytest.fixture
def kafka(bootstrap_servers: str) -> KafkaSettings:
    return own_topics(bootstrap_servers)


@pytest_asyncio.fixture
async def operator(kafka: KafkaSettings) -> AsyncIterator[Operator]:
    async with operating(kafka) as found:
        yield found


async def opened(folder: Path, kafka: KafkaSettings) -> Store:
    return await open_store(StoreSettings(folder, PARTITIONS, log="kafka", kafka=kafka), SystemEnvironment(""))


async def do(store: Store, command: Command) -> dict[str, Any]:
    return await methods.call(store, command.method, command.args)


async def fill(store: Store, name: str, count: int = 5) -> None:
    """Sessions with a run and a record each, in all partitions."""
    for number in range(count):
        run = Run(f"{name}-run-{number}", f"{name}-{number}")
        for command in (builders.create_session(run.session_id), run.start(), run.append()):
            await do(store, command)


async def held(operator: Operator, kafka: KafkaSettings) -> dict[int, list[Any]]:
    return {partition: await operator.records(kafka.log_topic, partition) for partition in range(PARTITIONS)}


def written_down(folder: Path, partition: int) -> list[dict[str, Any]]:
    """The lines of all files of a partition's losses."""
    files = sorted((folder / "lost").glob(f"p{partition:04d}-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def positions_and_commands(lines: Iterable[dict[str, Any]]) -> set[tuple[int, str]]:
    return {(line["position"], line["command_id"]) for line in lines}


def expected(records: Iterable[Any]) -> set[tuple[int, str]]:
    return {(record.offset, decode(record.value).command_id.hex()) for record in records}


async def until_served(store: Store, command: Command) -> None:
    """Repeat a command while it is unavailable."""
    async with asyncio.timeout(noticed_seconds_max):
        while True:
            (outcome,) = await call_each(InProcess(store), [command])
            if not isinstance(outcome, Refused):
                return
            assert outcome.code.value == "unavailable"
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("running", [False, True], ids=["while-stopped", "while-running"])
@pytest.mark.parametrize("longer", [False, True], ids=["cut", "written-again"])
async def test_what_is_lost_is_told_by_position(
    operator: Operator,
    kafka: KafkaSettings,
    tmp_path: Path,
    running: bool,
    longer: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = tmp_path / "store"
    store = await opened(folder, kafka)
    await fill(store, "kept")
    kept = await held(operator, kafka)
    await fill(store, "lost")
    before = await held(operator, kafka)
    if not running:
        await store.close()

    await operator.rewrite(kafka.log_topic, kept, PARTITIONS)
    if longer:
        # Another store writes on from there, further than the first one had come.
        other = StoreSettings(
            tmp_path / "other",
            PARTITIONS,
            log="kafka",
            kafka=kafka,
            master_key_file=folder / "master.key",
        )
        another = await open_store(other, SystemEnvironment(""))
        await fill(another, "another", 12)
        await another.close()

    caplog.clear()
    if not running:
        store = await opened(folder, kafka)
    for number in range(4):
        await until_served(store, builders.create_session(f"after-{number}"))
    status = await store.status()
    for partition in range(PARTITIONS):
        lost = before[partition][len(kept[partition]) :]
        assert lost
        lines = written_down(folder, partition)
        assert positions_and_commands(lines) == expected(lost)
        assert status.partitions[partition].lost_records == len(lines) == len(lost)
        named = {line["run_id"] for line in lines if line["run_id"]}
        assert named == {record.key.decode() for record in lost if record.key is not None}
    loud = [record.getMessage() for record in caplog.records if record.levelno >= logging.CRITICAL]
    assert any("acknowledged records are lost" in message for message in loud)

    run = Run("kept-run-0", "kept-0")
    assert (await do(store, Command("load_run", {"run_id": run.run_id})))["run"]["run_id"] == run.run_id
    with pytest.raises(Refused) as refused:
        await do(store, Command("load_run", {"run_id": "lost-run-0"}))
    assert refused.value.code.value == "run_not_found"
    assert all(verified.equal for verified in await store.verify())
    await store.close()

    # What was lost is told again after a restart, and nothing more is.
    store = await opened(folder, kafka)
    assert [each.lost_records for each in (await store.status()).partitions] == [
        each.lost_records for each in status.partitions
    ]
    await store.close()


async def test_a_log_whose_beginning_was_deleted_is_refused(
    operator: Operator, kafka: KafkaSettings, tmp_path: Path
) -> None:
    store = await opened(tmp_path / "store", kafka)
    await fill(store, "some")
    await operator.delete_records(kafka.log_topic, 1, 3)
    await store.partitions[1].rebuild()
    assert not store.ready()
    assert "begins at offset 3" in (await store.status()).partitions[1].last_error
    with pytest.raises(Refused) as refused:
        await asyncio.gather(*(do(store, builders.create_session(f"after-{number}")) for number in range(4)))
    assert refused.value.code.value == "unavailable"
    await store.close()
    with pytest.raises(TopicUnfit) as unfit:
        await opened(tmp_path / "store", kafka)
    assert unfit.value.setting == "the first offset of partition 1"
    assert unfit.value.value == "3"
