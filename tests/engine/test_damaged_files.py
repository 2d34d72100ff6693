"""Files that lose a bit or their end: small files and manifests are checked before they are believed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.data_folder import DataFolder, OpeningError
from engine.environment import SystemEnvironment
from engine.keys import KeyStoreError, MasterKeyError
from engine.keys.database import Database
from engine.logs.blocks import records
from engine.logs.files import LogFiles
from engine.logs.interface import LogCorrupt
from engine.logs.manifest import read_manifest
from engine.logs.wal import wal_files
from engine.opening import StoreSettings, open_store
from engine.store import Store
from service.methods import call
from tests.contract.builders import Run, create_session

HEADER_BYTES = 7


async def told(store: Store, first: int, last: int) -> None:
    for n in range(first, last):
        run = Run(f"run-{n}", f"session-{n}")
        for command in (create_session(f"session-{n}"), run.start(), run.append(), run.end()):
            await call(store, command.method, command.args)


def manifest_of(database: Path) -> Path:
    return database / (database / "CURRENT").read_text().strip()


def ends_of_records(manifest: Path) -> Iterator[int]:
    """Where each record of a manifest of less than one block ends, but the last."""
    for record in list(records(manifest.read_bytes(), 0))[:-1]:
        yield record.end


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but those in which RocksDB tells its tale."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith("LOG")
    }


def test_no_flipped_bit_of_store_json_is_believed(tmp_path: Path) -> None:
    # "partitions": 4 became 5 by one bit: the store opened, looked for everything in other partitions, and answered
    # `session_not_found` for sessions that were there.
    folder = DataFolder(tmp_path, 4, create=True, key_file=None)
    folder.finish()
    folder.release()
    description = tmp_path / "store.json"
    whole = description.read_bytes()
    refused = []
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        description.write_bytes(flipped)
        try:
            opened = DataFolder(tmp_path, None, create=False, key_file=None)
        except OpeningError as error:
            refused.append(str(error))
            continue
        opened.release()
        assert (opened.partitions, opened.store_id, opened.complete) == (4, folder.store_id, True), flipped
    assert len(refused) > 7 * len(whole)
    # A flipped format number was told as "use a version of Runstore that reads it".
    assert all(f"{description} cannot be read" in text for text in refused)


def test_a_description_without_a_digest_is_read(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text('{"format": 1, "partitions": 3, "store_id": "x", "complete": true}')
    opened = DataFolder(tmp_path, None, create=False, key_file=None)
    assert (opened.partitions, opened.store_id, opened.complete) == (3, "x", True)
    opened.release()


def test_the_manifest_tells_how_far_the_tables_go(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None
    for writes in (5, 7):
        log = LogFiles(tmp_path, 1)
        begin = log.ends_at_opening[0]
        for position in range(begin, begin + writes):
            log.write([(0, position, [b"record %d" % position])])
        log.sync()
        log.close()
        manifest = read_manifest(tmp_path / "rocksdb")
        assert manifest is not None
        assert manifest.last_sequence == begin + writes
        assert manifest.logs_from == wal_files(tmp_path / "rocksdb")[0][0]


def killed_log(folder: Path) -> Path:
    """A log as a killed process leaves it: five records in a table, three after them in the write-ahead log."""
    running = folder / "running"
    log = LogFiles(running, 1)
    log.acknowledge(log.write([(0, n, [b"record %d" % n]) for n in range(5)]))
    log.sync()
    log.close()
    log = LogFiles(running, 1)
    written = log.write([(0, n, [b"record %d" % n]) for n in range(5, 8)])
    log.sync()
    log.acknowledge(written)
    shutil.copytree(running, folder / "killed")
    log.close()
    return folder / "killed"


def test_a_log_whose_manifest_has_lost_its_end_is_refused_and_nothing_changed(tmp_path: Path) -> None:
    # RocksDB took the manifest for whole, removed the table that it no longer named, and opened without the records
    # 0 to 4; the sequence number reached what was acknowledged, since that was in the write-ahead log.
    killed = killed_log(tmp_path)
    manifest = manifest_of(killed / "rocksdb")
    gaps = []
    for end in ends_of_records(manifest):
        damaged = tmp_path / f"damaged-{end}"
        shutil.copytree(killed, damaged)
        (damaged / "rocksdb" / manifest.name).write_bytes(manifest.read_bytes()[:end])
        before = contents(damaged)
        try:
            log = LogFiles(damaged, 1)
        except LogCorrupt as error:
            gaps.append(str(error))
            unchanged = contents(damaged) == before
            assert unchanged
            continue
        assert [entry.data for entry in log.read(0, 0, 8, 100)] == [b"record %d" % n for n in range(8)]
        log.close()
    assert all(str(tmp_path / "damaged") in text for text in gaps)
    assert any("the MANIFEST has lost its end" in text for text in gaps)


def test_a_log_that_ends_before_what_was_acknowledged_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    # The same, with nothing in the write-ahead log: RocksDB had removed the table by the time the loss was noticed.
    log = LogFiles(tmp_path / "whole", 1)
    log.acknowledge(log.write([(0, 0, [b"record"])]))
    log.sync()
    log.close()
    manifest = manifest_of(tmp_path / "whole" / "rocksdb")
    said = []
    for end in ends_of_records(manifest):
        damaged = tmp_path / f"damaged-{end}"
        shutil.copytree(tmp_path / "whole", damaged)
        (damaged / "rocksdb" / manifest.name).write_bytes(manifest.read_bytes()[:end])
        for _number, path in wal_files(damaged / "rocksdb"):
            path.write_bytes(b"")
        before = contents(damaged)
        try:
            LogFiles(damaged, 1).close()
        except LogCorrupt as error:
            said.append(str(error))
            unchanged = contents(damaged) == before
            assert unchanged
    assert any("1 was acknowledged" in text for text in said)


@pytest.mark.parametrize("cut", ["MANIFEST", "*.log"])
async def test_a_projection_that_has_lost_writes_in_the_middle_is_made_whole(tmp_path: Path, cut: str) -> None:
    # RocksDB opened it without the rows of the lost table and with the rows and the position of the write-ahead log
    # after it: `verify` found a run "missing on the left", and it was answered `run_not_found`.
    store = await open_store(StoreSettings(tmp_path / "running", partitions=1), SystemEnvironment())
    await told(store, 0, 4)
    await store.start_rebuild()
    await store.rebuilt()
    await told(store, 4, 8)
    shutil.copytree(tmp_path / "running", tmp_path / "killed")
    await store.close()
    name = (tmp_path / "killed" / "projections" / "0000" / "CURRENT").read_text().strip()
    database = tmp_path / "killed" / "projections" / "0000" / name
    manifest = manifest_of(database)
    whole = manifest.read_bytes()
    lengths = list(ends_of_records(manifest)) if cut == "MANIFEST" else [len(whole)]
    for length in lengths:
        shutil.copytree(tmp_path / "killed", tmp_path / "damaged")
        damaged = tmp_path / "damaged" / manifest.relative_to(tmp_path / "killed")
        damaged.write_bytes(whole[:length])
        if cut == "*.log":
            # Two logs, the first of which has lost its end: at the end of a record, so that nothing looks damaged.
            (number, first), *_ = wal_files(damaged.parent)
            data = first.read_bytes()
            half = HEADER_BYTES + int.from_bytes(data[4:6], "little")
            rest = half + HEADER_BYTES + int.from_bytes(data[half + 4 : half + 6], "little")
            first.write_bytes(data[:half])
            first.with_name(f"{number + 1:06}.log").write_bytes(data[rest:])
        store = await open_store(StoreSettings(tmp_path / "damaged"), SystemEnvironment())
        assert store.ready()
        assert [verified.difference for verified in await store.verify()] == [None]
        for n in range(8):
            assert (await call(store, "load_run", {"run_id": f"run-{n}"}))["run"]["status"] == "completed"
        await store.close()
        shutil.rmtree(tmp_path / "damaged")


async def test_a_key_store_that_has_lost_the_cursor_key_is_refused(tmp_path: Path) -> None:
    # Another one was made without a word, and every cursor that callers held was refused as `invalid_cursor`.
    store = await open_store(StoreSettings(tmp_path), SystemEnvironment())
    await store.close()
    database = Database(tmp_path / "keys")
    database._default.delete(b"vcursor mac key")
    database.close()
    with pytest.raises(KeyStoreError, match=r"keys.*lost its cursor mac key"):
        await open_store(StoreSettings(tmp_path), SystemEnvironment())


async def test_damage_that_is_met_again_while_closing_is_told_as_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A bare `Exception` of RocksDB came out of opening, in place of the error that named the folder of keys.
    store = await open_store(StoreSettings(tmp_path), SystemEnvironment())
    await store.close()

    def damaged(_: Database) -> frozenset[int]:
        raise KeyStoreError(tmp_path / "keys", "damaged: a block")

    close_keys = Database._close_keys

    def closes_badly(database: Database) -> None:
        close_keys(database)
        raise Exception("Corruption: a block")  # noqa: TRY002 # as rocksdict does

    with monkeypatch.context() as patched:
        patched.setattr(Database, "pending", damaged)
        patched.setattr(Database, "_close_keys", closes_badly)
        with pytest.raises(KeyStoreError, match="keys: damaged: Corruption"):
            await open_store(StoreSettings(tmp_path), SystemEnvironment())
    with monkeypatch.context() as patched:
        patched.setattr(Database, "_close_keys", closes_badly)
        store = await open_store(StoreSettings(tmp_path), SystemEnvironment())
        with pytest.raises(KeyStoreError):
            await store.close()
    # The folder's lock was kept when the keys had not closed well: the store was "in use by another process".
    await (await open_store(StoreSettings(tmp_path), SystemEnvironment())).close()


async def test_a_damaged_master_key_is_named(tmp_path: Path) -> None:
    # The error named the folder of keys alone, which was sound.
    store = await open_store(StoreSettings(tmp_path), SystemEnvironment())
    await store.close()
    path = tmp_path / "master.key"
    text = path.read_bytes()
    last = text.rstrip().rsplit(b"\n", 1)[-1]
    path.write_bytes(text.replace(last, (b"B" if last[:1] == b"A" else b"A") + last[1:]))
    with pytest.raises(MasterKeyError, match=r"master\.key is the wrong one, or damaged"):
        await open_store(StoreSettings(tmp_path), SystemEnvironment())
