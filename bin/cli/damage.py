"""Damage that reading a log or a projection can meet, and where it is."""

from __future__ import annotations

import re
from typing import Final

from bin.cli.settings import Settings
from engine.logs.interface import LogCorrupt, LogUnavailable
from projections import layout
from projections.digest import Difference
from projections.errors import ProjectionError
from projections.fold import FoldError
from projections.position_rule import HistoryBroken

DAMAGE: Final = (LogCorrupt, LogUnavailable, HistoryBroken, FoldError, ProjectionError)
"""What reading a damaged log or projection raises."""

_NAMED: Final = {layout.SESSION: "session", layout.RUN: "run", layout.RESERVED: "reserved run ID"}
_TABLES: Final = {
    layout.APPLIED: "how far the log is applied",
    layout.PURGE: "purges",
    layout.SESSION_LIST: "list of sessions",
    layout.RUN_RECORDS: "records of runs",
    layout.RUN_TYPES: "records of runs by type",
    layout.SESSION_RECORDS: "records of sessions",
    layout.SESSION_TYPES: "records of sessions by type",
    layout.EVENT_KEYS: "event keys",
    layout.SESSION_RUNS: "runs of sessions",
    layout.SUCCESSORS: "continuations",
}


def told(error: BaseException) -> str:
    """The error in a line; its message has the partition and the position, or has them from here."""
    position = getattr(error, "position", None)
    message = str(error)
    return message if position is None or str(position) in message else f"position {position}: {message}"


def damaged_log(settings: Settings) -> str:
    """What to do about a log with damage in it."""
    if settings.log == "kafka":
        return "docs/kafka.md, “When a partition has stopped”, says what to do about a damaged log"
    return "a damaged log is restored from a backup, the whole data folder, never log/ alone"


def without_place(partition: int, message: str) -> str:
    """A message without the words that only repeat which partition it is of, for where that has been said."""
    return re.sub(rf"^(?:partition {partition}(?: is [a-z]+)?: )+", "", message)


def table_of(difference: Difference) -> str:
    """What the table of a difference holds."""
    letter = difference.key[:1]
    return _NAMED[letter] + "s" if letter in _NAMED else _TABLES.get(letter, f"unknown table {letter!r}")


def key_of(difference: Difference) -> str:
    """The key of a difference: an ID, or the bytes in hex."""
    letter, rest = difference.key[:1], difference.key[1:]
    return rest.decode(errors="backslashreplace") if letter in _NAMED else rest.hex()


def kind_of(difference: Difference) -> str:
    """How the projection that serves differs from the log at that key."""
    if difference.left is None:
        return "missing in the projection"
    return "not in the log" if difference.right is None else "another value than the log's"
