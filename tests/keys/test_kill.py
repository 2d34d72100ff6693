"""What a killed process leaves: each test kills one with SIGKILL at a failpoint, and opens the folder again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.keys.conftest import OpenRocks
from tests.keys.support import Kept, files_with, kept, new_key, run_child


async def keys_in(open_rocks: OpenRocks, owner: str, *numbers: int) -> list[Kept]:
    """How these keys look in a file; closes the store again."""
    store = await open_rocks()
    keys = [kept(store, owner, *new_key(number)) for number in numbers]
    await store.close()
    return keys


@pytest.mark.parametrize(
    ("failpoint", "said", "there"),
    [
        ("keys.before_put:3", ["put:session:1", "put:session:2"], [1, 2]),
        ("keys.after_put:3", ["put:session:1", "put:session:2"], [1, 2, 3]),
    ],
)
@pytest.mark.asyncio
async def test_every_answered_put_is_there(
    folder: Path, open_rocks: OpenRocks, failpoint: str, said: list[str], there: list[int]
) -> None:
    ended = run_child(folder, failpoint, *(f"put:session:{number}" for number in range(1, 6)))
    assert ended.returncode == -9, ended.stderr
    assert ended.stdout.split() == said
    store = await open_rocks()
    assert store.keys_of("session") == tuple(new_key(number)[0] for number in there)
    for number in range(1, 6):
        key_id, key = new_key(number)
        assert store.get(key_id) == (key if number in there else None)


@pytest.mark.asyncio
async def test_grouped_puts_are_there_once_any_is_answered(folder: Path, open_rocks: OpenRocks) -> None:
    ended = run_child(folder, "keys.after_put:1", "puts:session:0:500")
    assert ended.returncode == -9, ended.stderr
    store = await open_rocks()
    assert [store.get(new_key(number)[0]) for number in range(500)] == [new_key(number)[1] for number in range(500)]


@pytest.mark.asyncio
async def test_purge_that_had_not_begun_leaves_the_key(folder: Path, open_rocks: OpenRocks) -> None:
    ended = run_child(folder, "keys.before_purge", "put:a:1", "purge:a")
    assert ended.returncode == -9, ended.stderr
    store = await open_rocks()
    assert store.get(new_key(1)[0]) == new_key(1)[1]
    (key,) = [kept(store, "a", *new_key(1))]
    await store.purge("a")
    assert files_with(folder, [key]) == set()


@pytest.mark.parametrize("failpoint", ["keys.purge_deleted", "keys.purge_compacted", "keys.after_purge"])
@pytest.mark.asyncio
async def test_purge_that_had_begun_is_finished_by_opening(folder: Path, open_rocks: OpenRocks, failpoint: str) -> None:
    assert run_child(folder, "", "puts:a:1:3", "puts:b:3:1000", "puts:a:1000:1001").returncode == 0
    gone = await keys_in(open_rocks, "a", 1, 2, 1000)
    ended = run_child(folder, failpoint, "purge:a")
    assert ended.returncode == -9, ended.stderr
    assert ended.stdout == ""
    # Deleted is not gone: this is why it has to be finished.
    assert bool(files_with(folder, gone)) == (failpoint == "keys.purge_deleted")
    store = await open_rocks()
    assert files_with(folder, gone) == set()
    assert store._database.pending() == frozenset()
    assert store.keys_of("a") == ()
    assert all(store.get(key.key_id) is None for key in gone)
    assert all(store.get(new_key(number)[0]) == new_key(number)[1] for number in range(3, 1000))


@pytest.mark.asyncio
async def test_opening_that_was_killed_while_finishing_a_purge_is_finished_by_the_next(
    folder: Path, open_rocks: OpenRocks
) -> None:
    assert run_child(folder, "", "put:a:1", "puts:b:2:50").returncode == 0
    gone = await keys_in(open_rocks, "a", 1)
    for failpoint in ("keys.purge_deleted", "keys.purge_deleted", "keys.purge_compacted"):
        assert run_child(folder, failpoint, "purge:a").returncode == -9
    store = await open_rocks()
    assert files_with(folder, gone) == set()
    assert store._database.pending() == frozenset()
    await store.put("c", *new_key(60))
    assert store.get(new_key(60)[0]) == new_key(60)[1]


@pytest.mark.asyncio
async def test_newest_key_purged_and_killed_does_not_take_a_later_one_with_it(
    folder: Path, open_rocks: OpenRocks
) -> None:
    ended = run_child(folder, "keys.purge_deleted", "put:a:1", "put:b:2", "purge:b")
    assert ended.returncode == -9, ended.stderr
    assert run_child(folder, "keys.after_put", "put:c:3").returncode == -9
    store = await open_rocks()
    assert store.keys_of("c") == (new_key(3)[0],)
    assert store.get(new_key(3)[0]) == new_key(3)[1]
    assert store.get(new_key(1)[0]) == new_key(1)[1]
    assert store.get(new_key(2)[0]) is None
