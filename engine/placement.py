"""Which partition a session, a sessionless tree, or a directory entry of a run ID belongs to."""

from __future__ import annotations

import hashlib
from functools import lru_cache


@lru_cache(maxsize=65_536)
def place(name: str, partitions: int) -> int:
    """The first eight bytes of the name's SHA-256, big-endian, modulo the number of partitions."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % partitions
