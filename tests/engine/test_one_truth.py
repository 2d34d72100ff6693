"""One truth: whatever happens to the projections, the log makes the same ones again, and says what it lost."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

from engine.environment import SystemEnvironment
from engine.keys import KeyStoreError, RocksKeyStore
from engine.opening import OpeningError, StoreSettings, open_store
from engine.store import Store
from projections.errors import ProjectionDamaged, ProjectionUnavailable
from projections.rocks import RocksView
from projections.rocks import options as projection_options
from schemas.refusals import Refusal, Refused
from service.methods import call
from tests.contract.builders import Command, Run, create_session, end_session, place, purge_session

S1, S2 = "s-1", "s-2"
ROOT = Run("root", S1, labels={"tenant": "acme"})
CHILD = Run("child", S1, parent="root", labels={"deep": "er"})
NEXT = Run("next", S1, predecessor="root", labels={"tenant": "acme"})
SHOT = Run("shot")
GONE = Run("gone", S2)

STORY = [
    create_session(S1),
    create_session(S2),
    ROOT.start(),
    *(ROOT.append(f"k/{n}", f'{{"n": {n}.0}}') for n in range(20)),
    CHILD.start(),
    CHILD.end(),
    ROOT.cancel(),
    ROOT.suspend(),
    NEXT.start(),
    SHOT.start(),
    SHOT.append(),
    GONE.start(),
    GONE.append(),
    GONE.end(),
    end_session(S2),
    purge_session(S2),
]


async def opened(folder: Path, *, create: bool = True) -> Store:
    return await open_store(StoreSettings(folder, create=create), SystemEnvironment())


async def do(store: Store, command: Command) -> dict[str, Any]:
    return await call(store, command.method, command.args)


async def code_of(store: Store, command: Command) -> Refused:
    with pytest.raises(Refused) as caught:
        await do(store, command)
    return caught.value


async def reads(store: Store) -> list[Any]:
    """Everything a caller can read of the story."""
    found: list[Any] = [await store.list_sessions("", "", 100), await store.session_detail(S1)]
    for run in (ROOT, CHILD, NEXT, SHOT, GONE):
        found += [await store.run_detail(run.run_id), await store.load_checkpoint(run.run_id)]
        found.append(await store.list_run_records(run.run_id, "", 1000))
    found.append(await store.list_session_records(S1, "", 1000))
    found.append(await store.list_session_records(S1, "", 1000, ["note", "run_completed"]))
    found.append(await store.list_runs_by_session(S1))
    return found


async def digests(store: Store) -> list[str]:
    """The digests of all partitions, each checked against a fresh fold of the log."""
    verified = await store.verify()
    assert [str(each.difference) for each in verified if not each.equal] == []
    return [each.live for each in verified]


@pytest.fixture
async def told(tmp_path: Path) -> Path:
    """A folder in which the story was told."""
    store = await opened(tmp_path)
    for command in STORY:
        await do(store, command)
    await store.close()
    return tmp_path


async def test_live_rebuilt_and_deleted_projections_have_one_digest_and_give_the_same_answers(told: Path) -> None:
    store = await opened(told)
    live, before = await digests(store), await reads(store)
    assert await store.start_rebuild() is None
    await store.rebuilt()
    assert (await digests(store), await reads(store)) == (live, before)
    assert (await do(store, ROOT.append("k/3", '{"n": 3.0}')))["inserted"] is False
    await store.close()
    shutil.rmtree(told / "projections")
    store = await opened(told)
    assert (await digests(store), await reads(store)) == (live, before)
    await store.close()


async def test_commands_go_on_while_a_rebuild_runs_and_nothing_is_missed(told: Path) -> None:
    store = await opened(told)
    await store.start_rebuild()
    for n in range(50):
        await do(store, NEXT.append(f"during/{n}"))
    await store.rebuilt()
    await do(store, NEXT.append("after"))
    await digests(store)
    page = await store.list_run_records("next", "", 1000)
    assert len(page.records) == 52  # type: ignore[union-attr]
    await store.close()


async def test_verify_says_where_a_changed_projection_differs(told: Path) -> None:
    current = current_projection(told, S1)
    database = Rdict(str(current), projection_options())
    key = b"R" + b"root"
    row = bytearray(stored(database, key))
    row[row.index(b"agent.chat")] ^= 1
    database[key] = bytes(row)
    database.close()
    store = await opened(told)
    wrong = [each for each in await store.verify() if not each.equal]
    assert [each.partition for each in wrong] == [place(S1)]
    assert wrong[0].difference is not None
    assert wrong[0].difference.key == key
    assert "b'root'" in str(wrong[0].difference)
    assert await store.start_rebuild() is None
    await store.rebuilt()
    await digests(store)
    await store.close()


def current_projection(folder: Path, session_id: str) -> Path:
    partition = folder / "projections" / f"{place(session_id):04d}"
    return partition / (partition / "CURRENT").read_text().strip()


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 0x40
    path.write_bytes(bytes(data))


def stored(database: Rdict, key: bytes) -> bytes:
    value = database[key]
    assert isinstance(value, bytes)
    return value


def flip_all(folder: Path, pattern: str) -> None:
    for path in folder.glob(pattern):
        flip(path, path.stat().st_size // 3)


def remove(paths: Iterable[Path]) -> None:
    for path in list(paths):
        path.unlink()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a byte of a table": lambda folder: flip_all(folder, "*.sst"),
    "a table cut in half": lambda folder: [path.write_bytes(path.read_bytes()[:100]) for path in folder.glob("*.sst")],
    "a table missing": lambda folder: remove(folder.glob("*.sst")),
    "the manifest": lambda folder: flip_all(folder, "MANIFEST-*"),
    "every file but the tables": lambda folder: remove(path for path in folder.iterdir() if path.suffix != ".sst"),
    "everything": lambda folder: remove(folder.iterdir()),
    "the name of the current one": lambda folder: (folder.parent / "CURRENT").write_text("g-999999\n"),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_projection_is_noticed_at_start_and_rebuilt(told: Path, damage: str) -> None:
    store = await opened(told)
    live, before = await digests(store), await reads(store)
    await store.close()
    current = current_projection(told, S1)
    view = RocksView(current)
    view.flush()
    view.close()
    DAMAGES[damage](current)
    store = await opened(told)
    assert (await digests(store), await reads(store)) == (live, before)
    assert store.ready()
    await store.close()


async def test_an_interrupted_rebuild_leaves_nothing_that_is_served(told: Path) -> None:
    store = await opened(told)
    live = await digests(store)
    await store.close()
    current = current_projection(told, S1)
    half = current.parent / "g-000777"
    shutil.copytree(current, half)
    (half / "CURRENT").unlink()
    store = await opened(told)
    assert await digests(store) == live
    assert not half.exists()
    await store.close()


async def test_a_projection_of_another_version_is_rebuilt(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await opened(told)
    before = await reads(store)
    await store.close()
    former = current_projection(told, S1)
    for module in ("projections.layout", "engine.projection", "projections.position_rule"):
        monkeypatch.setattr(f"{module}.VIEW_VERSION", 99)
    store = await opened(told)
    assert current_projection(told, S1) != former
    assert await reads(store) == before
    await store.close()


def log_database(folder: Path) -> Rdict:
    options = Options(raw_mode=True)
    return Rdict(str(folder / "log" / "rocksdb"), options)


def log_key(partition: int, position: int) -> bytes:
    return partition.to_bytes(2, "big") + position.to_bytes(8, "big")


@pytest.mark.parametrize("projections", ["kept", "deleted"])
async def test_a_damaged_log_record_stops_its_partition_by_position_and_is_never_skipped(
    told: Path, projections: str
) -> None:
    partition, position = place(S1), 5
    database = log_database(told)
    value = bytearray(stored(database, log_key(partition, position)))
    value[-3] ^= 1
    database[log_key(partition, position)] = bytes(value)
    database.close()
    if projections == "deleted":
        shutil.rmtree(told / "projections")
    store = await opened(told)
    # With the projection kept, the damage is met by the read that needs the record.
    page = await store.list_run_records("root", "", 1000)
    assert page.code == "unavailable"  # type: ignore[union-attr]
    assert f"position {position}" in page.detail  # type: ignore[union-attr]
    refused = await code_of(store, ROOT.append("late"))
    assert refused.code == "unavailable"
    assert f"partition {partition}" in refused.refusal.detail
    assert f"position {position}" in refused.refusal.detail
    states = {each.partition: each for each in (await store.status()).partitions}
    assert states[partition].state == "stopped"
    assert f"position {position}" in states[partition].last_error
    assert {each.state for each in states.values()} == {"serving", "stopped"}
    assert (await do(store, SHOT.append("still/works")))["inserted"] is True
    assert not store.ready()
    await store.close()


async def test_a_log_cut_below_its_projection_is_said_loudly_and_the_projection_is_rebuilt(
    told: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partition = place(S1)
    database = log_database(told)
    keys = [bytes(key) for key in database.keys()]  # type: ignore[arg-type] # noqa: SIM118 # an Rdict is no dict
    end = max(int.from_bytes(key[2:], "big") for key in keys if key[:2] == partition.to_bytes(2, "big"))
    database.delete(log_key(partition, end))
    database.close()
    with caplog.at_level(logging.CRITICAL):
        store = await opened(told)
    assert "truncated or rewritten" in caplog.text
    assert f"ends at position {end}" in caplog.text
    assert f"up to position {end + 1}" in caplog.text
    await digests(store)
    await store.close()


async def test_a_projection_database_keeps_its_options_when_it_is_opened_again(told: Path) -> None:
    for _ in range(2):
        store = await opened(told)
        await store.close()
    files = sorted(current_projection(told, S1).glob("OPTIONS-*"))
    text = files[-1].read_text()
    assert "write_buffer_size=8388608" in text
    assert "filter_policy=bloomfilter" in text
    assert "paranoid_checks=true" in text


async def test_a_recovery_in_the_middle_of_a_rebuild_disturbs_neither(told: Path) -> None:
    store = await opened(told)
    live = await digests(store)
    partition = store.partitions[place(S1)]
    new = partition.projection._files.make_new()
    await partition.projection.reopen()
    assert new.path.is_dir()  # type: ignore[attr-defined]
    partition.projection._files.discard(new)
    await store.start_rebuild()
    partition._recover(RuntimeError("made up"))
    await store.rebuilt()
    for n in range(100):
        try:
            await do(store, NEXT.append(f"k/{n}"))
            break
        except Refused as refused:
            assert refused.code == "unavailable"  # noqa: PT017 # until it has recovered
            await asyncio.sleep(0.05)
    assert store.ready()
    assert len(await digests(store)) == len(live)
    await store.close()


async def test_a_rebuild_that_meets_a_damaged_log_record_stops_the_partition_by_position(told: Path) -> None:
    store = await opened(told)
    await store.close()
    partition, position = place(S1), 5
    database = log_database(told)
    database[log_key(partition, position)] = b"\x00\x00\x00\x00not a record"
    database.close()
    store = await opened(told)
    assert store.ready()
    await store.start_rebuild()
    await store.rebuilt()
    status = (await store.status()).partitions[partition]
    assert status.state == "stopped"
    assert f"position {position}" in status.last_error
    assert (await do(store, SHOT.append("still/works")))["inserted"] is True
    await store.close()


@pytest.mark.parametrize("kind", [0, 5, 8, 200])
async def test_a_damaged_write_ahead_log_of_a_projection_is_cut_and_read_again_from_the_log(
    told: Path, kind: int
) -> None:
    # A fragment of a type that RocksDB does not know made it loop for ever at opening.
    store = await opened(told)
    for n in range(30):
        await do(store, NEXT.append(f"more/{n}"))
    live, before = await digests(store), await reads(store)
    current = current_projection(told, S1)
    as_when_killed = told / "copy"
    shutil.copytree(current, as_when_killed)
    await store.close()
    shutil.rmtree(current)
    as_when_killed.rename(current)
    wal = max(current.glob("*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(wal.read_bytes())
    assert len(data) > 7
    length = int.from_bytes(data[4:6], "little")
    data[7 + length + 6] = kind
    wal.write_bytes(bytes(data))
    store = await opened(told)
    assert (await digests(store), await reads(store)) == (live, before)
    await store.close()


@pytest.mark.parametrize("lost", ["keys", "log"])
async def test_a_store_that_lost_a_folder_does_not_open_with_a_new_one(told: Path, lost: str) -> None:
    # An empty store served as healthy, and its projections were rebuilt to nothing.
    shutil.rmtree(told / lost)
    before = sorted(path.name for path in told.rglob("*"))
    for _ in range(2):
        with pytest.raises(OpeningError, match=f"lost its folder {lost}"):
            await opened(told)
    assert sorted(path.name for path in told.rglob("*")) == before


async def test_a_store_is_not_made_among_other_files(tmp_path: Path) -> None:
    (tmp_path / "projections").mkdir()
    with pytest.raises(OpeningError, match="'projections'"):
        await opened(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["projections"]


async def test_a_first_start_that_was_interrupted_is_finished_by_the_next(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.close()
    described = json.loads((tmp_path / "store.json").read_text())
    del described["digest"]
    (tmp_path / "store.json").write_text(json.dumps({**described, "complete": False}))
    shutil.rmtree(tmp_path / "log")
    store = await opened(tmp_path)
    assert store.ready()
    assert store.store_id == described["store_id"]
    await store.close()


async def test_a_projection_found_damaged_while_it_serves_is_thrown_away_and_rebuilt(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It was opened again as it was, and every read of the bad block took the partition down anew.
    store = await opened(told)
    live, before = await digests(store), await reads(store)
    generation = current_projection(told, S1)

    def damaged(*_: object, **__: object) -> None:
        raise ProjectionDamaged("Corruption: block checksum mismatch")

    with monkeypatch.context() as patched:
        patched.setattr(RocksView, "scan", damaged)
        assert isinstance(await store.list_run_records("root", "", 10), Refusal)
    for _ in range(200):
        if store.ready():
            break
        await asyncio.sleep(0.02)
    assert (await digests(store), await reads(store)) == (live, before)
    assert current_projection(told, S1) != generation
    assert not generation.exists()
    await store.close()


async def test_a_row_that_cannot_be_read_is_damage(told: Path) -> None:
    database = Rdict(str(current_projection(told, S1)), projection_options())
    database[b"R" + b"root"] = b"\xc1 no row"
    database.close()
    store = await opened(told)
    refusal = await store.load_run("root")
    assert isinstance(refusal, Refusal)
    assert refusal.code == "unavailable"
    for _ in range(200):
        if store.ready():
            break
        await asyncio.sleep(0.02)
    assert not isinstance(await store.load_run("root"), Refusal)
    await digests(store)
    await store.close()


async def test_a_disk_that_takes_nothing_does_not_make_a_projection_be_rebuilt(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(told)
    partition = store.partitions[place(S1)]
    generation = current_projection(told, S1)
    states: list[bool] = []

    def full(*_: object) -> None:
        raise ProjectionUnavailable("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(RocksView, "commit", full)
        assert (await code_of(store, NEXT.append("full/1"))).code == "unavailable"
        await asyncio.sleep(0.3)
        states.append(partition.ready)
    for _ in range(300):
        if partition.ready:
            break
        await asyncio.sleep(0.02)
    assert states == [False], "it cannot serve while nothing can be written"
    assert current_projection(told, S1) == generation
    assert (await do(store, NEXT.append("full/1")))["inserted"] is False
    await digests(store)
    await store.close()


async def test_a_new_projection_that_cannot_be_adopted_leaves_the_old_one_serving(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(told)
    live, generation = await digests(store), current_projection(told, S1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("engine.projection.write_whole", full)
        told_why = await store.partitions[place(S1)].rebuild()
    assert "No space left" in told_why
    assert "No space left" in (await store.status()).partitions[place(S1)].last_error
    assert current_projection(told, S1) == generation
    assert [path.name for path in generation.parent.iterdir() if path.is_dir()] == [generation.name]
    assert await digests(store) == live
    assert (await do(store, NEXT.append("k/new")))["inserted"] is True
    await store.close()


async def test_an_empty_name_of_the_current_projection_does_no_harm(told: Path) -> None:
    current = current_projection(told, S1)
    (current.parent / "CURRENT").write_text("")
    store = await opened(told)
    await digests(store)
    await store.close()
    assert {path.name[:2] for path in current.parent.iterdir()} == {"CU", "g-"}


async def test_refused_starts_and_repeated_ones_make_no_heap_of_keys(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await asyncio.gather(*(do(store, create_session(S1)) for _ in range(20)))
    await asyncio.gather(*(do(store, SHOT.start()) for _ in range(20)))
    assert len(store._keys.keys_of(f"session:{S1}")) == 1
    assert len(store._keys.keys_of("tree:shot")) == 1
    await store.close()


async def test_a_purge_whose_keys_could_not_be_deleted_is_unavailable_until_they_are(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(told)
    await do(store, NEXT.end())
    await do(store, end_session(S1))

    async def failing(_self: object, _owner: str) -> None:
        raise KeyStoreError(None, "the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(RocksKeyStore, "purge", failing)
        for _ in range(2):
            assert (await code_of(store, purge_session(S1))).code == "unavailable"
        assert (await code_of(store, ROOT.append("late"))).code == "session_purged"
    assert await do(store, purge_session(S1)) == {}
    assert store._keys.keys_of(f"session:{S1}") == ()
    await store.close()
    store = await opened(told)
    assert await do(store, purge_session(S1)) == {}
    await store.close()
