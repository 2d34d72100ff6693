"""The names that lead to a store's files are synced before anything that needs them is answered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.data_folder import DataFolder
from engine.environment import SystemEnvironment
from engine.keys import load_or_create_master_key
from engine.opening import StoreSettings, open_store


class Synced:
    """The folders that were fsynced, and what was in them then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: dict[Path, set[str]] = {}
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, file: int) -> None:
        self._fsync(file)
        path = Path(f"/proc/self/fd/{file}").readlink()
        if path.is_dir():
            self.names.setdefault(path, set()).update(os.listdir(path))  # noqa: PTH208 # names alone


async def test_a_new_store_can_be_found_after_a_loss_of_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The data folder's own name was never synced: after a loss of power the whole store could be missing, and the next
    # start made an empty one that answered `session_not_found`.
    synced = Synced(monkeypatch)
    data = tmp_path / "some" / "data"
    store = await open_store(StoreSettings(data, partitions=1), SystemEnvironment())
    await store.close()
    assert "some" in synced.names[tmp_path]
    assert "data" in synced.names[tmp_path / "some"]
    # A lost marker makes a torn tail look acknowledged: the key store was refused as damaged after a loss of power.
    assert {"acknowledged", "rocksdb"} <= synced.names[data / "keys"]
    assert {"acknowledged", "rocksdb"} <= synced.names[data / "log"]
    # A projection whose folder's name was lost was rebuilt from the first record on.
    assert "0000" in synced.names[data / "projections"]
    assert {"keys", "log", "projections", "store.json", "master.key"} <= synced.names[data]


def test_names_that_a_killed_process_left_unsynced_are_synced_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "some" / "data"
    DataFolder(data, 1, create=True, key_file=None).release()  # It never came to `finish`.
    synced = Synced(monkeypatch)
    folder = DataFolder(data, None, create=True, key_file=None)
    folder.finish()
    folder.release()
    assert "some" in synced.names[tmp_path]
    assert "data" in synced.names[tmp_path / "some"]


def test_the_name_of_a_master_key_that_is_there_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Made by a process that was killed before the sync, it could vanish with everything wrapped under it.
    load_or_create_master_key(tmp_path / "master.key", create=True)
    synced = Synced(monkeypatch)
    load_or_create_master_key(tmp_path / "master.key", create=True)
    assert "master.key" in synced.names[tmp_path]
