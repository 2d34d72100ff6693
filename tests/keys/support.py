"""What the tests of the keys share: an environment with hooks, and the scan for bytes that should be gone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from engine.environment import FAILPOINT_VARIABLE, SystemEnvironment
from engine.keys.master import MasterKey
from engine.keys.store import RocksKeyStore

ROOT = Path(__file__).parents[2]
MASTER = MasterKey(bytes(range(32)), os.urandom)


class HookedEnvironment(SystemEnvironment):
    """Calls `on_failpoint` and `on_sleep`, which a test may set. Its clock runs only while something sleeps."""

    def __init__(self) -> None:
        super().__init__("")
        self.seconds = 0.0
        self.on_failpoint: Callable[[str], None] = lambda _: None
        self.on_sleep: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.on_sleep()
        await super().sleep(min(seconds, 0.02))

    def failpoint(self, name: str) -> None:
        self.on_failpoint(name)


@dataclass(frozen=True)
class Kept:
    """A key that was put, and how it looks in a file."""

    owner: str
    key_id: bytes
    key: bytes
    wrapped: bytes


def new_key(number: int) -> tuple[bytes, bytes]:
    """A key ID and a key that a test can make again in another process."""
    return number.to_bytes(16), number.to_bytes(4) * 8


async def put(store: RocksKeyStore, owner: str) -> Kept:
    key_id, key = os.urandom(16), os.urandom(32)
    await store.put(owner, key_id, key)
    return kept(store, owner, key_id, key)


def kept(store: RocksKeyStore, owner: str, key_id: bytes, key: bytes) -> Kept:
    found = store._database.get_key(key_id)
    assert found is not None
    assert found[0] == owner
    return Kept(owner, key_id, key, found[1])


def files_with(folder: Path, keys: Iterable[Kept]) -> set[str]:
    """Name every file below `folder` that holds any part of a key, raw or wrapped.

    Parts, because a write-ahead log cuts its records at the ends of its blocks.
    """
    needles = [
        part
        for key in keys
        for part in (key.key[:16], key.key[16:], *(key.wrapped[at : at + 20] for at in (0, 20, 40)))
    ]
    found = set()
    for file in folder.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            if any(needle in data for needle in needles):
                found.add(file.name)
    return found


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path there."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def names(folder: Path) -> set[str]:
    """What lies in a folder, if it is one."""
    return {file.name for file in folder.iterdir()} if folder.is_dir() else set()


def newest(folder: Path, pattern: str) -> Path:
    """The file of RocksDB's with the highest number."""
    return max((folder / "rocksdb").glob(pattern), key=lambda file: int(re.sub(r"\D", "", file.name)))


def flip(file: Path, at: int, mask: int = 1) -> None:
    """Change bits of one byte."""
    data = bytearray(file.read_bytes())
    data[at] ^= mask
    file.write_bytes(data)


def run_child(folder: Path, failpoint: str, *steps: str) -> subprocess.CompletedProcess[str]:
    """Run `child.py` with a failpoint armed, and return how it ended."""
    return subprocess.run(
        [sys.executable, "-m", "tests.keys.child", str(folder), *steps],
        cwd=ROOT,
        env={**os.environ, FAILPOINT_VARIABLE: failpoint, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
