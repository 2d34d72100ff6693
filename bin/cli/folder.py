"""The data folder as anyone may look at it, without opening the store in it."""

from __future__ import annotations

import json

from bin.cli.errors import UsageError
from bin.cli.program import on_folder
from bin.cli.settings import Settings


def check_folder(settings: Settings, *, create: bool) -> None:
    """Refuse what cannot be the folder of a store, or, without `create`, holds none. Raises `UsageError`."""
    folder = settings.data_dir
    try:
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is a file, not a folder", "choose another --data-dir")
        if (folder / "store.json").exists():
            return
        if settings.log == "embedded" and ((folder / "log").exists() or (folder / "keys").exists()):
            raise UsageError(
                f"{folder} holds a store's log or keys but no store.json, without which they cannot be used",
                "put that file back, or choose another --data-dir",
            )
    except OSError as error:
        raise UsageError(f"the data folder {folder} cannot be read: {error.strerror}") from None
    if not create:
        raise UsageError(
            f"there is no store in {folder}",
            f"name the folder of one with --data-dir; `{on_folder(settings, 'serve')}` makes one",
        )


def store_id(settings: Settings) -> str:
    """The ID of the store in the folder; empty where there is none to read."""
    try:
        return str(json.loads((settings.data_dir / "store.json").read_text(encoding="utf-8"))["store_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
