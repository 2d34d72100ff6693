"""A process that tells a story to a real store, and says each answer with one system call. To be traced.

Usage: python -m tests.faults.story_child JSON. The object has `folder`, `seed`, `sessions`, `small`, and `begin`, which
says for each worker how many commands of its story have been answered before.

Half-way the store is closed and opened again, and its projections are rebuilt beside the ones that serve. In the end it
is closed, or, with `killed`, killed by SIGKILL. With `small`, RocksDB's buffers are a few hundred times smaller than in
service, so that logs roll, tables are flushed and compacted, and the marker is synced often; all else is the same. With
`broken`, one step is left out.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import projections.rocks
from engine import data_folder
from engine.environment import SystemEnvironment
from engine.keys.database import Database
from engine.logs import files, rocks
from engine.opening import StoreSettings, open_store
from engine.store import Store
from schemas.owners import session_owner
from service.methods import call
from tests.contract.builders import Command
from tests.faults.stories import PARTITIONS, story


def make_small() -> None:
    """Smaller numbers, where the modules keep them."""
    patch.object(rocks, "write_buffer_bytes", 64 * 1024).start()
    patch.object(rocks, "wal_bytes_max", 256 * 1024).start()
    patch.object(files, "marker_lag_bytes_max", 64 * 1024).start()
    patch.object(projections.rocks, "_WRITE_BUFFER_BYTES", 64 * 1024).start()


def make_broken(how: str) -> None:
    """Leave a step out, so that whoever looks for faults can be seen to find one."""
    match how:
        case "the log is not synced":
            patch.object(files.LogFiles, "sync", lambda _: None).start()
        case "keys are not synced":
            patch.object(Database, "sync", lambda _: None).start()
        case "names are not synced":
            patch.object(data_folder, "sync_names_above", lambda _: None).start()
            patch.object(data_folder, "make_folder", lambda path: path.mkdir(parents=True, exist_ok=True)).start()
        case _:
            assert how == "", how


def say(value: object) -> None:
    """One line, one system call."""
    os.write(1, json.dumps(value).encode() + b"\n")


async def tell(store: Store, worker: int, begin: int, commands: list[Command]) -> None:
    """Do commands one after another."""
    for number, command in enumerate(commands, begin):
        if command.method == "purge_session":
            owner = session_owner(command.args["session_id"])
            found = [store._keys._database.get_key(key_id) for key_id in store._keys.keys_of(owner)]  # type: ignore[attr-defined]
            say({"worker": worker, "wrapped": [each[1].hex() for each in found if each is not None]})
        say({"worker": worker, "number": number, "answer": await call(store, command.method, command.args)})


async def main(asked: dict[str, Any]) -> None:
    """Tell the story from where each worker begins."""
    if asked["small"]:
        make_small()
    make_broken(asked.get("broken", ""))
    stories = [story(asked["seed"], worker, asked["sessions"]) for worker in range(len(asked["begin"]))]
    halves = [(len(all_of_it) + begin) // 2 for all_of_it, begin in zip(stories, asked["begin"], strict=True)]
    settings = StoreSettings(Path(asked["folder"]), partitions=PARTITIONS)
    store = await open_store(settings, SystemEnvironment(""))
    parts = zip(stories, asked["begin"], halves, strict=True)
    await asyncio.gather(
        *(tell(store, n, begin, all_of_it[begin:half]) for n, (all_of_it, begin, half) in enumerate(parts))
    )
    await store.close()
    store = await open_store(settings, SystemEnvironment(""))
    await store.start_rebuild()
    rest = zip(stories, halves, strict=True)
    await asyncio.gather(*(tell(store, n, half, all_of_it[half:]) for n, (all_of_it, half) in enumerate(rest)))
    await store.rebuilt()
    if asked.get("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
