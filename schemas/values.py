"""The values of the contract: sessions, runs, records, checkpoints and the answers that carry them.

All frozen. Times are milliseconds since 1970-01-01 UTC; an absent optional ID is the empty string,
so that "no parent" has one form; payload and checkpoint bytes are exactly what the caller sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class SessionStatus(StrEnum):
    """Where a session stands. A purged session is no value that is ever shown."""

    ACTIVE = "active"
    ENDED = "ended"


class RunStatus(StrEnum):
    """Where a run stands: `running`, or one of four terminal states that it never leaves."""

    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def terminal(self) -> bool:
        """True for every status but `running`."""
        return self is not RunStatus.RUNNING


class StartOutcome(StrEnum):
    """What the first start of a run decided, for ever."""

    PROCEED = "proceed"
    STOP = "stop"


class RepairOutcome(StrEnum):
    """What a repair found: it wrote, it had been written, or another record owns the state."""

    STORED = "stored"
    ALREADY_STORED = "already_stored"
    DIFFERENT_TERMINAL = "different_terminal"


RUN_STARTED: Final = "run_started"
CHILD_RUN_LINKED: Final = "child_run_linked"
CANCELLATION_INTENT: Final = "runtime.cancellation_intent"
RUN_SUSPENDED: Final = "run_suspended"
RUN_COMPLETED: Final = "run_completed"

LIFECYCLE_TYPES: Final = frozenset({RUN_STARTED, CHILD_RUN_LINKED, CANCELLATION_INTENT, RUN_SUSPENDED, RUN_COMPLETED})
"""Record types that only lifecycle commands write."""

RESERVED_TYPES: Final = frozenset({"run_stream_end", "session_purged"})
"""Names that streams use for their own events, so no record may have them as its type."""

REASON_SESSION_ENDED: Final = "session_ended"
REASON_ENGINE_CANCELED: Final = "engine_canceled"


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation over time. `ended_at` is None while it is active."""

    id: str
    status: SessionStatus
    created_at: int
    ended_at: int | None = None


@dataclass(frozen=True, slots=True)
class RunStart:
    """The identity of a run, fixed by its first start: everything here must repeat on a retry."""

    agent_id: str
    run_id: str
    started_at: int
    session_id: str = ""
    parent_run_id: str = ""
    predecessor_run_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunMeta:
    """A run as the store knows it. No predecessor, children or prompts: those live in records only."""

    agent_id: str
    run_id: str
    session_id: str
    parent_run_id: str
    status: RunStatus
    start_outcome: StartOutcome
    started_at: int
    updated_at: int
    labels: Mapping[str, str]
    cancellation_reason: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The private bytes that let a suspended run be continued, kept byte for byte."""

    id: str
    data: bytes


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record as a caller sends it, before the store gives it an ID. Two are equal when all fields are."""

    event_key: str
    run_id: str
    agent_id: str
    session_id: str
    turn_id: str
    type: str
    timestamp: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Record:
    """A record as the store keeps it: `id` is what the store assigned, `content` what the caller sent."""

    id: str
    content: NewRecord


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where a record is. `session_status` is the current one, None for a run without a session."""

    id: str
    inserted: bool
    session_status: SessionStatus | None


@dataclass(frozen=True, slots=True)
class StartResult:
    """The original decision of a start, and where its records are. `outcome` is None for one-shot runs."""

    started: AppendResult
    outcome: StartOutcome | None = None
    parent_linked: AppendResult | None = None
    canceled: AppendResult | None = None


@dataclass(frozen=True, slots=True)
class RepairResult:
    """What a repair found, the run's status, and where the record is unless another one owns the state."""

    outcome: RepairOutcome
    status: RunStatus
    append: AppendResult | None = None


@dataclass(frozen=True, slots=True)
class Purged:
    """A session or a memory is gone for good; `owner` is whose data keys go with it, empty where none can be left."""

    owner: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """It is done, and there is nothing to tell."""


Answer = Session | AppendResult | StartResult | RepairResult | Purged | Done
"""What a command that was done answers."""


@dataclass(frozen=True, slots=True)
class Page:
    """Records of one run or session, oldest first; `next_cursor` is empty when nothing follows."""

    records: tuple[Record, ...]
    next_cursor: str


RunCounts = Mapping[RunStatus, int]
"""How many runs of a session are in each status; a status with none may be left out."""


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session and how its runs stand."""

    session: Session
    run_counts: RunCounts


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions, newest `created_at` first, then by ID; `next_cursor` is empty when nothing follows."""

    sessions: tuple[SessionSummary, ...]
    next_cursor: str


@dataclass(frozen=True, slots=True)
class SessionDetail:
    """A session, how its runs stand, and when its newest log entry was appended (ms)."""

    session: Session
    run_counts: RunCounts
    last_activity_at: int


@dataclass(frozen=True, slots=True)
class ChildLink:
    """A child run and the tool call of its parent that asked for it, as the link record tells it."""

    run_id: str
    agent_id: str
    tool_name: str
    tool_call_id: str


@dataclass(frozen=True, slots=True)
class RunDetail:
    """A run with its family, in order of the log, and the size of its history."""

    run: RunMeta
    children: tuple[ChildLink, ...]
    predecessor: str
    successors: tuple[str, ...]
    record_count: int
    has_checkpoint: bool
