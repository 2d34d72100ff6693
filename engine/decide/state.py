"""What a decision is made from, and what it is: the state it may read, the drafts it writes, the answer.

`decide` reads the partition through `State`. What it must know of other partitions was looked up before
and comes in `Elsewhere`; random bytes that it may need come in `Prepared`. It never waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from projections.rows import ConsumerRow, MemoryRow, RunRow, SessionRow
from schemas.log_record import NO_HOME, Kind, SealedContent
from schemas.values import Answer, NewRecord


class Opened(msgspec.Struct, frozen=True):
    """A stored record with what was sealed in it."""

    record: NewRecord
    private: SealedContent


class State(Protocol):
    """One partition as far as decided: the projection with the undelivered changes of this batch on top."""

    @property
    def partition(self) -> int:
        """Which partition this is."""
        ...

    @property
    def next_position(self) -> int:
        """The position that the next draft will get."""
        ...

    def session(self, session_id: str) -> SessionRow | None:
        """The row of a session whose home this is."""
        ...

    def run(self, run_id: str) -> RunRow | None:
        """The row of a run that lives here, also when its session was purged."""
        ...

    def reserved_home(self, run_id: str) -> int | None:
        """The home for which a run ID is reserved in this partition's part of the run directory."""
        ...

    def directory_of(self, run_id: str) -> int:
        """The partition that holds the directory entry of a run ID."""
        ...

    def event_position(self, run: RunRow, event_key: str) -> int | None:
        """The position of the run's record with this event key."""
        ...

    def memory(self, agent_id: str, run_id: str) -> MemoryRow | None:
        """The row of a memory whose home this is."""
        ...

    def memory_appends(self, memory: MemoryRow, appearance: str) -> Sequence[int]:
        """The positions of a memory's appends that look like this."""
        ...

    def consumer(self, name: str) -> ConsumerRow | None:
        """The row of a consumer whose home this is; also of one that was deleted."""
        ...

    def opened(self, position: int) -> Opened:
        """The record at a position, opened with its data key."""
        ...


@dataclass(frozen=True, slots=True)
class RunElsewhere:
    """A run that lives in another partition, as far as a refusal needs it. Purged ones count as missing."""

    session_id: str
    purged: bool


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What other partitions know of the runs and sessions that a command names.

    `own_id_taken`: the started run's ID belongs to another partition. `session_purged`: the session that the
    command names has another home and is purged.
    """

    own_id_taken: bool = False
    parent: RunElsewhere | None = None
    predecessor: RunElsewhere | None = None
    session_purged: bool = False


NOTHING_ELSEWHERE = Elsewhere()


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was made ready before deciding: a data key of an owner that is already safe, a run ID for this home."""

    key_id: bytes = b""
    reserved: bool = False
    key_owner: str = ""


NOTHING_PREPARED = Prepared()


@dataclass(frozen=True, slots=True)
class Needs:
    """The command would be accepted, once this is made ready. Nothing was written."""

    data_key_of: str = ""
    reservation: bool = False


@dataclass(frozen=True, slots=True)
class Reserved:
    """The answer to the store's own command that a run ID is now bound to its home."""


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """The answer to the store's own commands on consumers: how one stands."""

    name: str
    row: ConsumerRow


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A log record that a decision wants, before it has a position, a time and a seal.

    A struct, as are the others of which one is made for each record that is written; see `LogRecord`.
    """

    kind: Kind
    content: NewRecord | None = None
    session_id: str = ""
    run_id: str = ""
    timestamp: int = 0
    parent_run_id: str = ""
    predecessor_run_id: str = ""
    child_run_id: str = ""
    start_outcome: str = "none"
    terminal_status: str = "none"
    home: int = NO_HOME
    key_id: bytes = b""
    private: SealedContent | None = None
    consumer: str = ""
    place: bytes = b""


class Decided(msgspec.Struct, frozen=True):
    """An answer and what it writes, in order; nothing for a retry."""

    answer: Answer | Reserved | ConsumerState
    drafts: tuple[Draft, ...] = ()
