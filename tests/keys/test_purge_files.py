"""After a purge no file of the folder holds the key, wrapped or not. Each test first finds it in one."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.keys import KeyStoreError, RocksKeyStore
from engine.keys.database import passes, passes_max
from engine.keys.rocks import table_bytes
from engine.keys.store import removal_seconds_max
from tests.keys.conftest import OpenRocks
from tests.keys.support import HookedEnvironment, Kept, files_with, put

near = table_bytes // 80


async def fill(store: RocksKeyStore, count: int) -> list[Kept]:
    return list(await asyncio.gather(*(put(store, f"session:{os.urandom(8).hex()}") for _ in range(count))))


def settle_tables(store: RocksKeyStore) -> None:
    """Bring what was put so far into tables, as time does."""
    store._database._keys.flush()
    store._database._default.flush()


@pytest.mark.asyncio
async def test_key_put_just_before_in_the_same_log(rocks: RocksKeyStore, folder: Path) -> None:
    stays, gone = await put(rocks, "session:1"), await put(rocks, "session:2")
    assert {Path(name).suffix for name in files_with(folder, [gone])} == {".log"}
    await rocks.purge("session:2")
    assert files_with(folder, [gone]) == set()
    assert files_with(folder, [stays])
    assert rocks.get(stays.key_id) == stays.key


@pytest.mark.asyncio
async def test_key_in_a_table_among_thousands(rocks: RocksKeyStore, folder: Path) -> None:
    keys = await fill(rocks, 10_000)
    settle_tables(rocks)
    gone = [keys[number] for number in (0, 7_777, 9_999)]
    for key in gone:
        assert {Path(name).suffix for name in files_with(folder, [key])} == {".sst"}
        await rocks.purge(key.owner)
        assert files_with(folder, [key]) == set()
    assert files_with(folder, gone) == set()
    assert all(rocks.get(key.key_id) == (None if key in gone else key.key) for key in keys)


@pytest.mark.asyncio
async def test_keys_of_one_owner_in_log_and_tables_and_levels(rocks: RocksKeyStore, folder: Path) -> None:
    gone: list[Kept] = []
    for _ in range(4):
        gone.append(await put(rocks, "session:1"))
        await fill(rocks, 300)
        settle_tables(rocks)
    rocks._database.compact([0, 400])
    gone.append(await put(rocks, "session:1"))
    settle_tables(rocks)
    gone.append(await put(rocks, "session:1"))
    stays = await fill(rocks, 300)
    assert {Path(name).suffix for name in files_with(folder, gone)} == {".sst", ".log"}
    await rocks.purge("session:1")
    assert files_with(folder, gone) == set()
    assert all(rocks.get(key.key_id) == key.key for key in stays)


@pytest.mark.asyncio
async def test_random_puts_and_purges_side_by_side_and_reopenings(open_rocks: OpenRocks, folder: Path) -> None:
    rng = random.Random(5)
    store, stays, gone = await open_rocks(), list[Kept](), list[Kept]()
    for _ in range(12):
        more = asyncio.create_task(fill(store, rng.randrange(1, 200)))
        if rng.random() < 0.3:
            settle_tables(store)
        rng.shuffle(stays)
        doomed = [stays.pop() for _ in range(min(len(stays), rng.randrange(1, 15)))]
        await asyncio.gather(*(store.purge(key.owner) for key in doomed))
        gone += doomed
        assert files_with(folder, gone) == set()
        stays += await more
        if rng.random() < 0.3:
            await store.close()
            store = await open_rocks()
    assert len(gone) > 50
    assert all(store.get(key.key_id) == key.key for key in stays)
    assert all(store.get(key.key_id) is None for key in gone)


@pytest.mark.asyncio
async def test_purges_that_arrive_together_share_one_compaction(
    rocks: RocksKeyStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = await fill(rocks, 200)
    compacted: list[list[int]] = []
    compact = rocks._database.compact

    def compact_and_note(sequences: Sequence[int]) -> None:
        compacted.append(list(sequences))
        compact(sequences)

    monkeypatch.setattr(rocks._database, "compact", compact_and_note)
    await asyncio.gather(*(rocks.purge(key.owner) for key in keys[50:90]))
    assert [len(those) for those in compacted] == [40]
    assert files_with(folder, keys[50:90]) == set()
    await asyncio.gather(*(rocks.purge(key.owner) for key in (*keys[50:90], *keys[50:90])))
    assert len(compacted) == 1


@pytest.mark.asyncio
async def test_second_purge_of_an_owner_waits_for_the_first(rocks: RocksKeyStore, folder: Path) -> None:
    gone = await put(rocks, "session:1")
    first = asyncio.create_task(rocks.purge("session:1"))
    await asyncio.sleep(0)
    assert files_with(folder, [gone])
    await rocks.purge("session:1")
    assert files_with(folder, [gone]) == set()
    await first


@pytest.mark.asyncio
async def test_purge_waits_for_a_table_that_is_removed_late(
    rocks: RocksKeyStore, folder: Path, environment: HookedEnvironment
) -> None:
    gone = await put(rocks, "session:1")
    await put(rocks, "session:2")
    settle_tables(rocks)
    # An open iterator keeps the tables it began with.
    holding = [rocks._database._keys.iter()]
    holding[0].seek_to_first()
    seen: list[set[str]] = []

    def look() -> None:
        seen.append(files_with(folder, [gone]))
        if len(seen) == 3:
            holding.clear()

    environment.on_sleep = look
    await rocks.purge("session:1")
    assert files_with(folder, [gone]) == set()
    assert len(seen) >= 3
    assert all(seen[:3])


@pytest.mark.asyncio
async def test_table_that_readers_were_reading_from_is_removed_all_the_same(
    rocks: RocksKeyStore, folder: Path, environment: HookedEnvironment
) -> None:
    keys = await fill(rocks, 300)
    done, polls = threading.Event(), list[float]()
    environment.on_sleep = lambda: polls.append(environment.seconds)

    def read() -> None:
        while not done.is_set():
            for key in keys[200:]:
                assert rocks.get(key.key_id) == key.key

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        # Mostly the first is enough. RocksDB by itself would leave the table in most of them.
        for key in keys[:20]:
            await rocks.purge(key.owner)
            assert files_with(folder, [key]) == set()
            if polls:
                break
    finally:
        done.set()
        for reader in readers:
            reader.join()


@pytest.mark.asyncio
async def test_purge_that_cannot_remove_a_table_says_so_and_can_be_repeated(
    rocks: RocksKeyStore, folder: Path, environment: HookedEnvironment
) -> None:
    gone = await put(rocks, "session:1")
    settle_tables(rocks)
    holding = [rocks._database._keys.iter()]
    holding[0].seek_to_first()
    with pytest.raises(KeyStoreError, match=r"purged bytes may remain in \d+\.sst"):
        await rocks.purge("session:1")
    assert environment.seconds > removal_seconds_max
    assert files_with(folder, [gone])
    assert rocks.get(gone.key_id) is None
    holding.clear()
    await rocks.purge("session:1")
    assert files_with(folder, [gone]) == set()
    assert rocks._database.pending() == frozenset()


@pytest.mark.parametrize("failing", ["delete", "compact", "settle"])
@pytest.mark.asyncio
async def test_erasure_that_failed_is_done_by_the_next_purge_or_opening(
    open_rocks: OpenRocks, folder: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    for reopen in (False, True):
        store = await open_rocks()
        gone, stays = await put(store, "session:1"), await put(store, "session:2")

        def fail(*_: object) -> None:
            raise KeyStoreError(folder, "no space left")

        with monkeypatch.context() as patch:
            patch.setattr(store._database, failing, fail)
            with pytest.raises(KeyStoreError, match="no space left"):
                await store.purge("session:1")
        assert store.get(gone.key_id) is None
        assert store.keys_of("session:1") == ()
        if reopen:
            await store.close()
            store = await open_rocks()
        # Nothing that was not deleted is known after a reopening: the log is, and its reader purges again.
        await store.purge("session:1")
        assert files_with(folder, [gone]) == set()
        assert store._database.pending() == frozenset()
        assert store.get(stays.key_id) == stays.key
        await store.purge("session:2")
        await store.close()


@pytest.mark.parametrize(
    ("sequences", "expected"),
    [
        ([], []),
        ([5], [[5]]),
        ([0, near, 2 * near], [[0, near, 2 * near]]),
        ([0, near + 1], [[0], [near + 1]]),
        ([1, 2, 10**6, 10**6 + 1], [[1, 2], [10**6, 10**6 + 1]]),
        ([n * 10**6 for n in range(passes_max)], [[n * 10**6] for n in range(passes_max)]),
        ([n * 10**6 for n in range(passes_max + 1)], [[n * 10**6 for n in range(passes_max + 1)]]),
    ],
)
def test_passes_split_what_lies_far_apart(sequences: list[int], expected: list[list[int]]) -> None:
    assert passes(sequences) == expected


@pytest.mark.asyncio
async def test_purge_rewrites_one_table_of_many(rocks: RocksKeyStore) -> None:
    owners = [f"session:{number}" for number in range(30_000)]
    for number, owner in enumerate(owners):
        rocks._database.put_key(owner, number.to_bytes(16), bytes(60))
    rocks._database.compact([0, 30_000])

    def tables() -> set[str]:
        return {str(table["name"]) for table in rocks._database._default.live_files() if table["start_key"][0] == 0}

    before = tables()
    assert len(before) >= 5
    await fill(rocks, 10)
    await rocks.purge(owners[15_000])
    assert len(before - tables()) == 1
