"""Reads a store's log from Kafka, without the store: the records that count, in order, opened with the master key.

::

    from python_reader import read

    for record in read("127.0.0.1:9092", master_key_file=Path("master.key")):
        print(record.id, record.log.kind, record.log.run_id, record.content)

`LogReader` is the same with bookmarks, to go on later and to notice a log that was cut meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from .errors import HistoryBroken, KeysUnreadable, LogCut, ReaderError, RecordUnreadable, TopicUnreadable
from .reader import KEY_GONE, NO_MASTER_KEY, LogReader, Record
from .records import Content, LogRecord
from .rule import Bookmark
from .topic import Config

__all__ = [
    "KEY_GONE",
    "NO_MASTER_KEY",
    "Bookmark",
    "Config",
    "Content",
    "HistoryBroken",
    "KeysUnreadable",
    "LogCut",
    "LogReader",
    "LogRecord",
    "ReaderError",
    "Record",
    "RecordUnreadable",
    "TopicUnreadable",
    "read",
]


def read(
    bootstrap_servers: str,
    *,
    prefix: str = "runstore",
    partitions: Iterable[int] | None = None,
    master_key_file: Path | None = None,
    follow: bool = False,
    config: Config | None = None,
) -> Iterator[Record]:
    """Yield the records of a log that count, from its beginning. See `LogReader`."""
    settings = {**(config or {}), "bootstrap.servers": bootstrap_servers}
    with LogReader(
        settings, prefix=prefix, partitions=partitions, master_key_file=master_key_file, follow=follow
    ) as reader:
        yield from reader
