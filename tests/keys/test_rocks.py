"""What the key store in a folder does beyond every key store: opening, damage, durability."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import threading
from pathlib import Path

import pytest

from engine.keys import KeyStoreError, MasterKey, MasterKeyError, RocksKeyStore
from tests.keys.conftest import OpenRocks
from tests.keys.support import (
    MASTER,
    HookedEnvironment,
    contents,
    files_with,
    flip,
    names,
    new_key,
    newest,
    put,
    run_child,
)

OTHER = MasterKey(b"another master key of 32 bytes..", os.urandom)
HEADER_BYTES = 7
"""Of a record in RocksDB's write-ahead log: checksum (4), length (2), type (1)."""


def killed_with(folder: Path, keys: int, *, unanswered: int = 0) -> None:
    """Leave a folder whose keys, numbered from 1, are in the write-ahead log only, the last ones never synced."""
    answered = [f"put:session:{n}" for n in range(1, keys + 1)]
    written = [f"write:session:{n}" for n in range(keys + 1, keys + unanswered + 1)]
    ended = run_child(folder, f"keys.before_put:{keys + 1}", *answered, *written, "put:session:0")
    assert ended.returncode == -9, ended.stderr


def record_starts(log: Path) -> list[int]:
    """Where records begin in a write-ahead log of less than one block."""
    data, at, starts = log.read_bytes(), 0, []
    while at < len(data):
        starts.append(at)
        at += HEADER_BYTES + int.from_bytes(data[at + 4 : at + 6], "little")
    return starts


async def refused(folder: Path, environment: HookedEnvironment, why: str) -> None:
    """Opening names the folder and changes nothing."""
    before = contents(folder.parent)
    with pytest.raises(KeyStoreError, match=f"{re.escape(str(folder))}: {why}"):
        await RocksKeyStore.open(folder, MASTER, environment)
    after = contents(folder.parent)
    # RocksDB tells its tale in files that begin so.
    assert {name: data for name, data in after.items() if not name.startswith("keys/rocksdb/LOG")} == {
        name: data for name, data in before.items() if not name.startswith("keys/rocksdb/LOG")
    }


@pytest.mark.asyncio
async def test_wrong_master_key_is_refused_and_nothing_written(
    folder: Path, tmp_path: Path, environment: HookedEnvironment
) -> None:
    killed_with(folder, 3, unanswered=1)
    log = newest(folder, "*.log")
    flip(log, log.stat().st_size - 1)
    before = contents(tmp_path)
    for create in (True, False):
        with pytest.raises(MasterKeyError, match=rf"{re.escape(str(folder))}.*master_key_file"):
            await RocksKeyStore.open(folder, OTHER, environment, create=create)
        assert contents(tmp_path) == before
    store = await RocksKeyStore.open(folder, MASTER, environment)
    key_id, key = new_key(3)
    assert store.get(key_id) == key
    await store.close()


@pytest.mark.asyncio
async def test_missing_folder_is_made_only_when_asked(folder: Path, environment: HookedEnvironment) -> None:
    with pytest.raises(KeyStoreError, match=f"{re.escape(str(folder))}: missing"):
        await RocksKeyStore.open(folder, MASTER, environment, create=False)
    assert names(folder.parent) == set()
    store = await RocksKeyStore.open(folder, MASTER, environment)
    await store.close()
    store = await RocksKeyStore.open(folder, MASTER, environment, create=False)
    await store.close()


@pytest.fixture
def half_made(folder: Path) -> None:
    """An empty folder, and what a crash left of making one."""
    (folder.with_name("keys.new") / "rocksdb").mkdir(parents=True)
    (folder.with_name("keys.new") / "rocksdb" / "CURRENT").write_text("half")
    folder.mkdir()


@pytest.mark.usefixtures("half_made")
@pytest.mark.asyncio
async def test_half_made_folder_is_made_anew(folder: Path, environment: HookedEnvironment) -> None:
    store = await RocksKeyStore.open(folder, MASTER, environment)
    kept = await put(store, "session:1")
    await store.close()
    assert names(folder.parent) == {"keys"}
    store = await RocksKeyStore.open(folder, MASTER, environment)
    assert store.get(kept.key_id) == kept.key
    await store.close()


@pytest.mark.asyncio
async def test_folder_in_use_is_refused(folder: Path, rocks: RocksKeyStore, environment: HookedEnvironment) -> None:
    with pytest.raises(KeyStoreError, match=f"{re.escape(str(folder))}: in use"):
        await RocksKeyStore.open(folder, MASTER, environment)
    await put(rocks, "session:1")
    ended = run_child(folder, "", "put:session:1")
    assert ended.returncode == 1
    assert "in use" in ended.stderr


@pytest.mark.parametrize("victim", ["check", "rocksdb", "CURRENT", "MANIFEST-*", "*.sst", "*.log"])
@pytest.mark.asyncio
async def test_folder_without_one_of_its_files_is_refused(
    folder: Path, open_rocks: OpenRocks, environment: HookedEnvironment, victim: str
) -> None:
    store = await open_rocks()
    await put(store, "session:1")
    await store.close()
    killed_with(folder, 3)
    match victim:
        case "check":
            (folder / "check").unlink()
        case "rocksdb":
            shutil.rmtree(folder / "rocksdb")
        case "CURRENT":
            (folder / "rocksdb" / "CURRENT").unlink()
        case pattern:
            newest(folder, pattern).unlink()
    await refused(folder, environment, "damaged")


@pytest.fixture
def no_folder(folder: Path) -> None:
    folder.write_text("no folder")


@pytest.mark.usefixtures("no_folder")
@pytest.mark.asyncio
async def test_file_in_place_of_the_folder_is_refused(folder: Path, environment: HookedEnvironment) -> None:
    await refused(folder, environment, "cannot be read: Not a directory")


@pytest.mark.asyncio
async def test_flipped_bit_in_a_table_never_gives_a_wrong_key(
    folder: Path, open_rocks: OpenRocks, environment: HookedEnvironment
) -> None:
    store = await open_rocks()
    kept = await put(store, "session:1")
    await store.close()
    (name,) = files_with(folder, [kept])
    flip(folder / "rocksdb" / name, contents(folder)[f"rocksdb/{name}"].index(kept.wrapped) + 30)
    with pytest.raises(KeyStoreError, match=f"{re.escape(str(folder))}: damaged"):
        await RocksKeyStore.open(folder, MASTER, environment)


@pytest.mark.asyncio
async def test_flipped_bit_in_the_index_hides_no_key_from_a_purge(folder: Path, open_rocks: OpenRocks) -> None:
    store = await open_rocks()
    await asyncio.gather(*(put(store, "session:1") for _ in range(1000)))
    await store.close()
    (index, rows) = max(
        (
            (folder / name, [found.start() for found in re.finditer(rb"osession:1", data)])
            for name, data in contents(folder).items()
        ),
        key=lambda each: len(each[1]),
    )
    flip(index, rows[len(rows) // 2])
    store = await open_rocks()
    with pytest.raises(KeyStoreError, match=f"{re.escape(str(folder))}: damaged"):
        store.keys_of("session:1")
    with pytest.raises(KeyStoreError, match=f"{re.escape(str(folder))}: damaged"):
        await store.purge("session:1")


@pytest.mark.asyncio
async def test_key_under_another_id_or_owner_does_not_open(rocks: RocksKeyStore, folder: Path) -> None:
    kept, other = await put(rocks, "session:1"), await put(rocks, "session:2")
    rocks._database._keys.put((1).to_bytes(8), kept.wrapped)
    with pytest.raises(KeyStoreError, match=f"{re.escape(str(folder))}: damaged: data key {other.key_id.hex()}"):
        rocks.get(other.key_id)
    rocks._database._default.put(b"i" + kept.key_id, bytes(8) + b"session:2")
    with pytest.raises(KeyStoreError, match="damaged"):
        rocks.get(kept.key_id)
    rocks._database._keys.delete(bytes(8))
    with pytest.raises(KeyStoreError, match=r"damaged: .* listed and not there"):
        rocks.get(kept.key_id)


@pytest.mark.asyncio
async def test_named_value_is_bound_to_its_name_and_not_readable_in_a_file(rocks: RocksKeyStore, folder: Path) -> None:
    await rocks.put_value("a", b"cursor MAC key, in the clear?")
    assert not any(b"cursor MAC key" in data for data in contents(folder).values())
    wrapped = rocks._database.get_value("a")
    assert wrapped is not None
    rocks._database.put_value("b", wrapped)
    with pytest.raises(KeyStoreError, match="damaged: value 'b'"):
        rocks.get_value("b")


@pytest.mark.parametrize("record", [0, 1, 20])
@pytest.mark.parametrize(
    ("at", "mask"),
    [(0, 1), (4, 64), (5, 64), (6, 1), (6, 4), (6, 8), (HEADER_BYTES, 1), (HEADER_BYTES + 40, 1)],
    ids=["checksum", "length", "long length", "type 0", "type 5", "type 9", "sequence", "content"],
)
@pytest.mark.asyncio
async def test_flipped_bit_in_the_log_drops_nothing_silently(
    folder: Path, environment: HookedEnvironment, whole: dict[str, bytes], record: int, at: int, mask: int
) -> None:
    for name, data in whole.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    log = newest(folder, "*.log")
    flip(log, record_starts(log)[record] + at, mask)
    # RocksDB alone opens without a word where a record seems to be of type 5 or longer than the log, or never returns.
    with pytest.raises(KeyStoreError, match=f"{re.escape(str(folder))}: damaged"):
        await RocksKeyStore.open(folder, MASTER, environment)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A folder with 40 keys in its log."""
    folder = tmp_path_factory.mktemp("whole") / "keys"
    killed_with(folder, 40)
    return contents(folder)


@pytest.mark.parametrize(
    "tear", ["cut", "zeros at the end", "half in zeros", "flipped", "garbage behind", "zeros behind"]
)
@pytest.mark.asyncio
async def test_torn_tail_that_nobody_was_told_of_is_cut_off(
    folder: Path, environment: HookedEnvironment, tear: str, caplog: pytest.LogCaptureFixture
) -> None:
    killed_with(folder, 8, unanswered=2)
    log = newest(folder, "*.log")
    data, lost = log.read_bytes(), 1
    match tear:
        case "cut":
            data = data[:-5]
        case "zeros at the end":
            data = data[:-20] + bytes(20)
        case "half in zeros":
            data, lost = data[: record_starts(log)[8] + 30] + bytes(5000), 2
        case "flipped":
            data = data[:-1] + bytes([data[-1] ^ 1])
        case "garbage behind":
            # Of a type that RocksDB alone reads again and again, for ever.
            data, lost = data + bytes([1, 2, 3, 4, 5, 6, 7]) * 30, 0
        case "zeros behind":
            data, lost = data + bytes(5000), 0
    log.write_bytes(data)
    store = await RocksKeyStore.open(folder, MASTER, environment)
    for number in range(1, 11):
        key_id, key = new_key(number)
        assert store.get(key_id) == (key if number <= 10 - lost else None)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert str(log) in warning
    assert "cut off" in warning
    await store.close()


@pytest.mark.asyncio
async def test_options_of_both_families_hold_after_reopening(folder: Path, open_rocks: OpenRocks) -> None:
    for _ in range(2):
        store = await open_rocks()
        text = newest(folder, "OPTIONS-*").read_text()
        default, keys = (text.split(f'[CFOptions "{name}"]')[1].split("[CFOptions")[0] for name in ("default", "keys"))
        assert "target_file_size_base=524288" in keys
        assert "max_bytes_for_level_base=8388608" in default
        assert "compression=kNoCompression" in keys
        assert all("filter_policy=bloomfilter" in family for family in (default, keys))
        assert "wal_recovery_mode=kTolerateCorruptedTailRecords" in text
        assert "recycle_log_file_num=0" in text
        await store.close()


@pytest.mark.asyncio
async def test_put_is_answered_by_a_sync_that_began_after_it(
    rocks: RocksKeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    began: asyncio.Queue[threading.Event] = asyncio.Queue()
    sync = rocks._database.sync

    def gated() -> None:
        go_on = threading.Event()
        loop.call_soon_threadsafe(began.put_nowait, go_on)
        assert go_on.wait(20)
        sync()

    monkeypatch.setattr(rocks._database, "sync", gated)
    first = [asyncio.create_task(rocks.put("session:1", *new_key(n))) for n in range(3)]
    first_sync = await began.get()
    later = [asyncio.create_task(rocks.put("session:2", *new_key(n))) for n in range(10, 13)]
    later.append(asyncio.create_task(rocks.put_value("name", b"")))
    await asyncio.sleep(0)
    assert rocks.get(new_key(12)[0]) is not None
    assert not any(task.done() for task in (*first, *later))
    first_sync.set()
    second_sync = await began.get()
    await asyncio.gather(*first)
    assert not any(task.done() for task in later)
    second_sync.set()
    await asyncio.gather(*later)
    assert began.empty()


@pytest.mark.asyncio
async def test_sync_syncs_the_log(rocks: RocksKeyStore) -> None:
    default, syncs = rocks._database._default, list[bool]()

    class Noting:
        """The database, but that it notes each sync."""

        def flush_wal(self, *, sync: bool) -> None:
            syncs.append(sync)
            default.flush_wal(sync)

        def __getattr__(self, name: str) -> object:
            return getattr(default, name)

    rocks._database._default = Noting()  # type: ignore[assignment]
    for number in range(1, 4):
        await rocks.put("session:1", *new_key(number))
        assert syncs == [True] * number


@pytest.mark.asyncio
async def test_caller_that_is_cancelled_leaves_the_others_their_answer(rocks: RocksKeyStore) -> None:
    puts = [asyncio.create_task(rocks.put("session:1", *new_key(n))) for n in range(3)]
    await asyncio.sleep(0)
    puts[1].cancel()
    ended = await asyncio.gather(*puts, return_exceptions=True)
    assert [type(one) for one in ended] == [type(None), asyncio.CancelledError, type(None)]
    await rocks.put("session:1", *new_key(4))


@pytest.mark.asyncio
async def test_failed_sync_is_told_to_all_and_final(
    rocks: RocksKeyStore, open_rocks: OpenRocks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rocks.put("session:1", *new_key(1))

    def fail() -> None:
        raise KeyStoreError(folder, "IO error")

    with monkeypatch.context() as patch:
        patch.setattr(rocks._database, "sync", fail)
        ended = await asyncio.gather(
            *(rocks.put("session:1", *new_key(n)) for n in range(2, 5)), return_exceptions=True
        )
    assert [str(one) for one in ended] == [f"key store {folder}: IO error"] * 3
    for attempt in (rocks.put("session:1", *new_key(9)), rocks.purge("session:1"), rocks.put_value("name", b"")):
        with pytest.raises(KeyStoreError, match="failed sync; open it again"):
            await attempt
    # It named a key whose sync had failed as one that is kept, and a session was created under it.
    with pytest.raises(KeyStoreError, match="failed sync; open it again"):
        rocks.keys_of("session:1")
    assert rocks.get(new_key(1)[0]) == new_key(1)[1]
    await rocks.close()
    store = await open_rocks()
    await store.put("session:1", *new_key(9))


@pytest.mark.asyncio
async def test_close_waits_for_what_runs(folder: Path, open_rocks: OpenRocks) -> None:
    store = await open_rocks()
    gone = await put(store, "session:1")
    running = [
        asyncio.create_task(store.purge("session:1")),
        *(asyncio.create_task(store.put("session:2", *new_key(n))) for n in range(5)),
    ]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*running)
    assert files_with(folder, [gone]) == set()
    with pytest.raises(KeyStoreError, match="closed"):
        store.get(gone.key_id)
    store = await open_rocks()
    assert len(store.keys_of("session:2")) == 5
