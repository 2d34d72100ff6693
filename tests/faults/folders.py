"""Where stores are damaged and looked at: in memory where there is room, since each is opened once and thrown away."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108 # only the place; the folder is new
_FREE_BYTES_MIN: Final = 512 * 1024 * 1024


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A new folder that is removed in the end."""
    usable = _IN_MEMORY.is_dir() and os.access(_IN_MEMORY, os.W_OK)
    roomy = usable and shutil.disk_usage(_IN_MEMORY).free >= _FREE_BYTES_MIN
    return tempfile.TemporaryDirectory(dir=_IN_MEMORY if roomy else None, prefix="runstore-")
