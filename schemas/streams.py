"""Values of the streams: a portion of records with their cursors, and how a stream ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from schemas.values import Record


class Ending(StrEnum):
    """Why a stream is over. `caught_up`: it was to go to the end it found at start, and has."""

    RUN_ENDED = "run_stream_end"
    PURGED = "session_purged"
    CAUGHT_UP = "caught_up"


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The end of a stream; what is named is the run or session that was streamed, and a run's terminal status."""

    ending: Ending
    run_id: str = ""
    session_id: str = ""
    status: str = ""


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """A record, and the cursor from which a reader that has it goes on."""

    cursor: str
    record: Record


@dataclass(frozen=True, slots=True, eq=False)
class Portion:
    """The next records of a stream, in order, and its end where it ends with them. Readers at one place share it."""

    records: tuple[StreamRecord, ...]
    end: StreamEnd | None = None
    _made: dict[str, bytes] = field(default_factory=dict)

    def once(self, form: str, make: Callable[[Portion], bytes]) -> bytes:
        """What is made of the portion in a form, which is made for its first reader only."""
        made = self._made.get(form)
        if made is None:
            made = self._made[form] = make(self)
        return made

    @property
    def size(self) -> int:
        """About how many bytes it takes as events."""
        return sum(len(each.record.content.payload) + record_overhead_bytes for each in self.records)


record_overhead_bytes = 400
"""About what the fields of a record but its payload take."""
