"""Reading a store's log: the records that count, in order, opened where that is possible."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from .errors import LogCut
from .keys import KeyRing, KeysTopic, load_master_key
from .records import Content, LogRecord, record_id
from .rule import Bookmark, Rule
from .topic import Config, OutOfRange, Patience, Topic

log = logging.getLogger("python_reader")

NO_MASTER_KEY: Final = "no master key was given"
KEY_GONE: Final = "its data key is gone, as after a purge"


@dataclass(frozen=True, slots=True)
class Record:
    """A record that counts.

    `log` has what is plain. `content` is what was sealed in it: None where nothing was, or where it stays
    sealed; then `sealed_because` says why.
    """

    partition: int
    log: LogRecord
    content: Content | None
    sealed_because: str = ""

    @property
    def id(self) -> str:
        """The ID by which the store's interface knows this record."""
        return record_id(self.partition, self.log.position)


class LogReader:
    """Iterates over the records of a log that count: in order within a partition, whole commands, each once.

    `partitions` None: all. `bookmarks`: where to go on, from an earlier reader's `bookmarks()`. `follow` False: up to
    the end that the log has now. What is skipped for following another history is said in the logger `python_reader`.
    Raises `LogCut` where the log was cut or written again below what was read, and other `ReaderError`s.
    """

    def __init__(
        self,
        config: Config,
        *,
        prefix: str = "runstore",
        partitions: Iterable[int] | None = None,
        bookmarks: Mapping[int, Bookmark] | None = None,
        master_key_file: Path | None = None,
        follow: bool = False,
    ) -> None:
        self._config = config
        self._name = f"{prefix}.log"
        self._follow = follow
        self._keys: KeysTopic | None = None
        self.void_records = 0
        """How many messages were skipped because they do not count."""
        master_key = None if master_key_file is None else load_master_key(master_key_file)
        self._topic = Topic(config, self._name)
        try:
            chosen = self._topic.partitions() if partitions is None else sorted(set(partitions))
            self._bookmarks = {partition: (bookmarks or {}).get(partition, Bookmark()) for partition in chosen}
            if master_key is not None:
                self._keys = KeysTopic(Topic(config, f"{prefix}.keys"), KeyRing(master_key))
        except BaseException:
            self.close()
            raise

    def bookmarks(self) -> dict[int, Bookmark]:
        """How far each partition was read: up to the last command whose last record was handed out."""
        return dict(self._bookmarks)

    def __iter__(self) -> Iterator[Record]:
        """Read on from the bookmarks."""
        rules = {partition: Rule(partition, bookmark) for partition, bookmark in self._bookmarks.items()}
        ends = {partition: self._end(rule) for partition, rule in rules.items()}
        if not self._follow:
            rules = {partition: rule for partition, rule in rules.items() if rule.end < ends[partition]}
        self._topic.start({partition: rule.end for partition, rule in rules.items()})
        patience = Patience(self._name)
        while rules:
            try:
                for partition, offset, message in self._topic.poll():
                    patience.answered()
                    rule = rules.get(partition)
                    if rule is None:
                        continue
                    if message is not None:
                        yield from self._take(rule, offset, message.value())
                    if message is None or (not self._follow and rule.end >= ends[partition]):
                        rule.at_end()
                        if not self._follow:
                            self._topic.stop(partition)
                            del rules[partition]
            except OutOfRange as error:
                raise self._cut(rules[error.partition], "the log does not reach to here any more") from error
            if not self._follow:
                patience.check()

    def close(self) -> None:
        """Let go of the brokers."""
        self._topic.close()
        if self._keys is not None:
            self._keys.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _end(self, rule: Rule) -> int:
        first, end = self._topic.range(rule.partition)
        if first > rule.begin:
            raise self._cut(rule, f"the log begins at {first}: what stood before was deleted")
        if end < rule.bookmark.batch_end:
            raise self._cut(rule, f"the log ends at {end}, and was read up to {rule.bookmark.batch_end}")
        return end

    def _take(self, rule: Rule, offset: int, value: bytes | None) -> Iterator[Record]:
        voids, foreign_at = rule.void_records, rule.foreign_at
        command = rule.take(offset, value)
        self.void_records += rule.void_records - voids
        if rule.foreign_at != foreign_at:
            self._compare(rule)
            log.error(
                "partition %d, position %d: a batch that follows another history, skipped: the log was rewritten",
                rule.partition,
                offset,
            )
        for record in command:
            if record.last:
                self._bookmarks[rule.partition] = rule.bookmark
            yield self._opened(rule.partition, record)

    def _compare(self, rule: Rule) -> None:
        """Read the last batch again: does it still stand there? Raises `LogCut`."""
        again = Rule(rule.partition, rule.bookmark)
        if not rule.bookmark.digest:
            return
        topic = Topic(self._config, self._name)
        try:
            first, end = topic.range(rule.partition)
            if first > again.begin or end < rule.bookmark.batch_end:
                raise self._cut(rule, f"the log now reaches from {first} to {end} only")
            topic.start({rule.partition: again.begin})
            patience = Patience(self._name)
            while again.end < rule.bookmark.batch_end:
                for _, offset, message in topic.poll():
                    if message is None:
                        again.at_end()
                    elif offset < rule.bookmark.batch_end or not again.compared:
                        again.take(offset, message.value())
                patience.check()
        except OutOfRange as error:
            raise self._cut(rule, "the log was cut while it was read") from error
        finally:
            topic.close()

    def _opened(self, partition: int, record: LogRecord) -> Record:
        if self._keys is not None and record.kind == "session_purged":
            self._keys.forget(f"session:{record.session_id}")
        if self._keys is not None and record.kind == "memory_purged":
            self._keys.forget_key(record.key_id)
        if not record.sealed:
            return Record(partition, record, None)
        if self._keys is None:
            return Record(partition, record, None, NO_MASTER_KEY)
        content = self._keys.open(record)
        return Record(partition, record, content, "" if content is not None else KEY_GONE)

    def _cut(self, rule: Rule, why: str) -> LogCut:
        return LogCut(rule.partition, rule.end, why)
