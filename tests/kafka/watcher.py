"""Waits until nobody uses a cluster, and ends it: `python -m tests.kafka.watcher FOLDER LOCK`."""

from __future__ import annotations

import shutil
import signal
import sys
from fcntl import LOCK_EX, flock
from pathlib import Path

from bin.broker import cluster as clusters
from bin.broker import commands


def main(folder: Path, users: Path) -> None:
    """Wait for the lock that each user shares, kill the brokers and remove the folder."""
    with users.open("a") as lock:
        flock(lock, LOCK_EX)
        # Another user's watcher may have been here before.
        if clusters.exists(folder):
            commands.kill(folder, None, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
