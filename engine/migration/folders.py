"""What a move needs of the data folder: what it is locked by, its master key, and its parts put aside or in place."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from engine.data_folder import DataFolder
from engine.durable import sync_folder, write_whole
from engine.environment import Environment
from engine.keys.master import MasterKey, load_or_create_master_key
from engine.migration.errors import MigrationRefused

LOG: Final = "log"
KEYS: Final = "keys"
COPY: Final = "copy"
"""What a store on Kafka keeps of its log."""

TICKET: Final = "moving"
_MOVING: Final = ".moving"


@contextmanager
def locked(data_dir: Path, master_key_file: Path | None, topics: str) -> Iterator[DataFolder]:
    """The folder of a store, whatever its log, which nobody else has open. Raises `OpeningError`, `MigrationRefused`.

    `topics` is the prefix that is asked for; the folder of a store on Kafka must be of these.
    """
    log = _kind_of_log(data_dir)
    folder = DataFolder(
        data_dir,
        None,
        create=False,
        key_file=master_key_file,
        log=log,
        topics=topics if log == "kafka" else "",
    )
    try:
        if not folder.complete:
            raise MigrationRefused(
                f"the store in {data_dir} has never been opened to the end", "start it once, and stop it again"
            )
        yield folder
    finally:
        folder.release()


def _kind_of_log(data_dir: Path) -> str:
    """What the folder says, before it is locked; it is compared under the lock."""
    try:
        return str(json.loads((data_dir / "store.json").read_text(encoding="utf-8")).get("log", "embedded"))
    except (OSError, ValueError, AttributeError):
        return "embedded"


def master_key(folder: Path, file: Path | None) -> MasterKey:
    """The store's master key, which is there. Raises `MasterKeyError`."""
    return load_or_create_master_key(file or folder / "master.key", create=False)


def being_made(folder: Path, name: str) -> Path:
    """Where a part is made that takes its place when it is whole."""
    return folder / (name + _MOVING)


def put_in_place(folder: Path, name: str) -> None:
    """Give a part that was made its name. Safe to repeat."""
    made = being_made(folder, name)
    if made.exists():
        made.rename(folder / name)
        sync_folder(folder)


def take_back(folder: Path, name: str) -> None:
    """Undo `put_in_place`, where the move was broken off right after it. Safe to repeat."""
    if (folder / name).exists():
        destroy(folder, name + _MOVING)
        (folder / name).rename(being_made(folder, name))
        sync_folder(folder)


def ticket(folder: Path) -> str:
    """What tells that a move out of topics is this folder's; empty where none is under way."""
    try:
        return (folder / TICKET).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""


def take_ticket(folder: Path, environment: Environment) -> str:
    """The same, made where there is none; durable."""
    if not ticket(folder):
        write_whole(folder / TICKET, environment.random_bytes(16).hex() + "\n")
    return ticket(folder)


def drop_ticket(folder: Path) -> None:
    """Have no move under way. Safe to repeat."""
    (folder / TICKET).unlink(missing_ok=True)
    sync_folder(folder)


def set_aside(folder: Path, name: str, environment: Environment) -> str:
    """Rename a part that is not used any more; return its new name, empty where there is none. Safe to repeat."""
    if not (folder / name).exists():
        return ""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(environment.wall_ms() / 1000))
    aside, number = f"{name}.migrated-{stamp}", 1
    while (folder / aside).exists():
        aside, number = f"{name}.migrated-{stamp}-{number}", number + 1
    (folder / name).rename(folder / aside)
    sync_folder(folder)
    return aside


def destroy(folder: Path, name: str) -> None:
    """Delete a part and all that is in it. Safe to repeat."""
    path = folder / name
    if path.exists():
        shutil.rmtree(path)
        sync_folder(folder)
