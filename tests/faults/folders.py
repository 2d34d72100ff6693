"""Where stores are damaged and looked at, and where the processes are started that write them."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108 # only the place; the folder is new
_FREE_BYTES_MIN: Final = 512 * 1024 * 1024


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A new folder that is removed in the end; in memory where there is room, since each store in it is opened once."""
    usable = _IN_MEMORY.is_dir() and os.access(_IN_MEMORY, os.W_OK)
    roomy = usable and shutil.disk_usage(_IN_MEMORY).free >= _FREE_BYTES_MIN
    return tempfile.TemporaryDirectory(dir=_IN_MEMORY if roomy else None, prefix="runstore-")


def module_environment(**more: str) -> dict[str, str]:
    """The environment of a child that runs a module of the tree."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}
