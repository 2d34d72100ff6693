"""One flipped bit in the log's tables: no partition looks shorter than it is, and nothing wrong is answered."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.environment import SystemEnvironment
from engine.logs.interface import LogError
from engine.opening import StoreSettings, open_store
from engine.store import Store
from schemas.refusals import Refusal
from service.methods import call
from tests.contract.builders import Run, create_session

SESSIONS = 40
RECORDS = 12
FLIPS = 24


async def written(folder: Path, partitions: int | None = None) -> Store:
    store = await open_store(StoreSettings(folder, partitions=partitions), SystemEnvironment())
    for n in range(SESSIONS):
        run = Run(f"run-{n}", f"session-{n}", labels={"n": str(n)})
        commands = [create_session(f"session-{n}"), run.start()]
        commands += [run.append(f"k/{k}", f'{{"text": "{n * 7919 + k:0400d}"}}') for k in range(RECORDS)]
        for command in commands:
            await call(store, command.method, command.args)
    return store


async def everything(store: Store) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for n in range(SESSIONS):
        found[f"session-{n}"] = await store.load_session(f"session-{n}")
        found[f"run-{n}"] = await store.list_run_records(f"run-{n}", "", 1000)
    return found


@pytest.mark.timeout(280)
@pytest.mark.parametrize("projections", ["kept", "deleted"])
async def test_a_flipped_bit_in_a_table_hides_no_record(tmp_path: Path, projections: str) -> None:
    # A damaged block looked like the end of the log: the neighbour's partition served as empty, took new records at
    # positions that were taken, and `verify` found all well.
    whole = tmp_path / "whole"
    store = await written(whole)
    expected = await everything(store)
    await store.close()
    # Closed and opened once more, so that the records lie in tables and the write-ahead log is empty.
    table = max((whole / "log" / "rocksdb").glob("*.sst"), key=lambda path: path.stat().st_size)
    size = table.stat().st_size
    noticed = 0
    for number in range(FLIPS):
        folder = tmp_path / f"flip-{number}"
        shutil.copytree(whole, folder)
        if projections == "deleted":
            shutil.rmtree(folder / "projections")
        data = bytearray(table.read_bytes())
        data[size * (2 * number + 1) // (2 * FLIPS)] ^= 0x10
        (folder / "log" / "rocksdb" / table.name).write_bytes(bytes(data))
        try:
            store = await open_store(StoreSettings(folder), SystemEnvironment())
        except LogError:
            noticed += 1
            continue
        for name, answer in (await everything(store)).items():
            if isinstance(answer, Refusal):
                assert answer.code == "unavailable", (number, name, answer)
            else:
                assert answer == expected[name], (number, name)
        states = {each.state for each in (await store.status()).partitions}
        noticed += "stopped" in states
        for partition, status in zip(store.partitions, (await store.status()).partitions, strict=True):
            if status.state == "stopped":
                assert f"partition {partition.number}" in status.last_error
                assert "position" in status.last_error
        await store.close()
        shutil.rmtree(folder)
    assert noticed > FLIPS // 2


async def test_the_damage_has_one_position_whoever_meets_it(tmp_path: Path) -> None:
    # A damaged block holds many records. `status` named the one that a caller had asked for, `verify` the first.
    store = await written(tmp_path, partitions=1)
    await store.close()
    table = max((tmp_path / "log" / "rocksdb").glob("*.sst"), key=lambda path: path.stat().st_size)
    data = bytearray(table.read_bytes())
    data[len(data) // 3] ^= 0x10
    table.write_bytes(data)

    async def errors(*, read: bool) -> list[str]:
        store = await open_store(StoreSettings(tmp_path), SystemEnvironment())
        if read:
            for n in reversed(range(SESSIONS)):
                await store.list_run_records(f"run-{n}", "", 1000)
        found = [each.last_error for each in (await store.status()).partitions if each.state == "stopped"]
        await store.close()
        return found

    (met_by_a_caller,) = await errors(read=True)
    shutil.rmtree(tmp_path / "projections")
    (met_by_folding,) = await errors(read=False)
    assert met_by_a_caller == met_by_folding
    assert " at position 0," not in met_by_folding
