"""A store's log in real topics, and readers of it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from clients.python_reader import Bookmark, LogReader, Record
from clients.python_reader.records import LogRecord as ReadRecord
from engine.keys import load_or_create_master_key
from engine.logs.interface import LogEntry
from schemas.log_record import LogRecord
from tests.clients.logs import KEPT, PARTITIONS, MadeLog, Topics, make_log
from tests.contract.builders import place
from tests.packaging.trees import ROOT

HOME = place(KEPT, PARTITIONS)
"""The partition with the sessions, the faults and the hole."""


@dataclass(frozen=True)
class Scene:
    """A store's log, its copy in a topic, and its master key."""

    made: MadeLog
    topics: Topics
    master_key_file: Path

    @property
    def config(self) -> dict[str, str]:
        return {"bootstrap.servers": self.topics.bootstrap}

    def reader(self, bookmarks: dict[int, Bookmark] | None = None, *, follow: bool = False) -> LogReader:
        """A reader that can open what is sealed: of the partitions that have bookmarks, or of all."""
        return LogReader(
            self.config,
            prefix=self.topics.prefix,
            partitions=bookmarks,
            bookmarks=bookmarks,
            master_key_file=self.master_key_file,
            follow=follow,
        )

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `python -m python_reader`."""
        options = ["--bootstrap", self.topics.bootstrap, "--prefix", self.topics.prefix]
        return subprocess.run(
            [sys.executable, "-m", "python_reader", *options, *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT / "clients")},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


def scene(bootstrap: str, folder: Path) -> Scene:
    """A scene of a test's own."""
    made, topics = make_log(), Topics(bootstrap, f"reader-{os.urandom(6).hex()}")
    key_file = folder / "master.key"
    topics.copy(made, load_or_create_master_key(key_file, create=True))
    return Scene(made, topics, key_file)


def rewritten(own: Scene, entries: tuple[LogEntry, ...]) -> None:
    """Make the topic again, with other entries in one partition."""
    own.topics.delete("log")
    own.topics.create("log", PARTITIONS)
    own.topics.copy_entries(1 - HOME, own.made.entries[1 - HOME])
    own.topics.copy_entries(HOME, entries)


def of(records: list[Record], partition: int) -> list[ReadRecord]:
    return [record.log for record in records if record.partition == partition]


def same(found: list[ReadRecord], wanted: list[LogRecord]) -> bool:
    return [dataclasses.asdict(each) for each in found] == [msgspec.structs.asdict(each) for each in wanted]
