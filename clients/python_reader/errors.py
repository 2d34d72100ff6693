"""What reading can raise.

::

    ReaderError
    ├── RecordUnreadable    bytes that are no log record, or no sealed content, of a form known here
    ├── HistoryBroken       the topic holds something that no store can have written there
    │   └── LogCut          the log was cut or written again below what was read: start again, from the beginning
    ├── TopicUnreadable     the brokers do not answer, or not with this topic
    └── KeysUnreadable      the master key file, or a data key that does not open under it
"""

from __future__ import annotations


class ReaderError(Exception):
    """The base of what reading raises."""


class RecordUnreadable(ReaderError):
    """These bytes are of no form that is known here."""


class HistoryBroken(ReaderError):
    """The topic holds something that no store can have written there."""

    def __init__(self, partition: int, position: int, why: str) -> None:
        super().__init__(f"partition {partition}, position {position}: {why}")
        self.partition = partition
        self.position = position


class LogCut(HistoryBroken):
    """The log was cut or written again below what was read: whatever was made of it must be made again."""


class TopicUnreadable(ReaderError):
    """The brokers do not answer, or not with this topic."""


class KeysUnreadable(ReaderError):
    """The master key file cannot be used, or a data key does not open under it."""
