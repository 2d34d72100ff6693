"""Small files that are there whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

RESTORE: Final = (
    "Restore the whole data folder from a backup, never keys/ or log/ alone; what was acknowledged since the backup is "
    "lost."
)
"""What to do about damage. Older keys beside a newer log lack the keys of newer sessions, which nothing brings back."""


def write_whole(path: Path, text: str) -> None:
    """Replace a file in one step, durable when this returns. Raises `OSError`, and leaves the former file then."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, where they are missing, and their names durable."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def sync_names_above(path: Path) -> None:
    """Make durable the names that lead to a folder on its file system: a process before this may have died too early.

    A folder that may not be read is passed over.
    """
    for folder in path.resolve().parents:
        with contextlib.suppress(PermissionError):
            sync_folder(folder)
        if folder.is_mount():
            return
