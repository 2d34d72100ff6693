"""The mark in the keys topic: these topics are being filled from a folder, or were left for one.

It is a named value, so every store that opens the topics sees it, wherever it runs. While a mark of the store's own ID
is there, the topics are no store that can be opened. A mark of another ID says nothing: somebody made a store there
first.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from engine.migration.errors import MigrationRefused

_shown_bytes_max: Final = 100

MARK_NAME: Final = "moving"
"""The named value that holds the mark; empty, or not there, where there is none."""


STORE_ID_NAME: Final = "store id"
"""What the store's ID, 16 bytes, is agreed on as."""


class Moving(StrEnum):
    """What is going on."""

    ARRIVING = "arriving"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Mark:
    """Which store is moving.

    `made_log`: the log's topic was made for it, so that it may be made anew. `ticket`: what the folder holds that the
    store leaves for; another folder of the same store must not take it for its own.
    """

    moving: Moving
    store_id: str
    made_log: bool = False
    ticket: str = ""

    def encode(self) -> bytes:
        """The mark as the named value holds it."""
        return json.dumps(asdict(self)).encode()


def read_mark(value: bytes | None) -> Mark | None:
    """The mark that a named value holds. Raises `MigrationRefused` for anything else."""
    if not value:
        return None
    try:
        told = json.loads(value)
        return Mark(Moving(told["moving"]), str(told["store_id"]), bool(told["made_log"]), str(told["ticket"]))
    except (ValueError, KeyError, TypeError) as error:
        raise MigrationRefused(
            f"the mark of a move in the keys topic cannot be read: {value[:_shown_bytes_max]!r}",
            "a later version may have written it; use that one",
        ) from error


def why_not_to_be_opened(value: bytes | None, store_id: bytes | None) -> str:
    """Why a store of this ID (None: none is agreed on yet) must not be opened on the topics; empty where it may be."""
    try:
        mark = read_mark(value)
    except MigrationRefused as error:
        return f"{error}; {error.advice}"
    if mark is None or (store_id is not None and mark.store_id != store_id.hex()):
        return ""
    if mark.moving is Moving.ARRIVING:
        return (
            "a store is being moved there and has not arrived; repeat `runstore migrate --to kafka` with the data "
            "folder that it comes from, to the end"
        )
    return (
        "the store that was there has been moved into a data folder, and these topics are what it left; open it there, "
        "or choose another kafka.topic_prefix for a new one"
    )
