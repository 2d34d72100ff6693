"""The commands of the contract: every change that a caller can ask for, as frozen values.

A command is what a caller sends and nothing more: no clock, no randomness, no state. Reads are not commands.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.memories import MemoryEvent
from schemas.values import Checkpoint, NewRecord, RunStart, RunStatus


@dataclass(frozen=True, slots=True)
class CreateSession:
    """Open a session; an active one is answered as it is."""

    session_id: str
    created_at: int


@dataclass(frozen=True, slots=True)
class EndSession:
    """End a session; once answered, no later start in it may proceed."""

    session_id: str
    ended_at: int


@dataclass(frozen=True, slots=True)
class PurgeSession:
    """Remove an ended session with all its runs for good, and seal its ID."""

    session_id: str


@dataclass(frozen=True, slots=True)
class StartRootRun:
    """Start a run at the top of a session; `canceled` is written too when the session has ended."""

    run: RunStart
    started: NewRecord
    canceled: NewRecord


@dataclass(frozen=True, slots=True)
class StartChildRun:
    """Start a run that a tool call of its parent asked for, in the parent's session."""

    run: RunStart
    parent_linked: NewRecord
    started: NewRecord
    canceled: NewRecord


@dataclass(frozen=True, slots=True)
class StartOneShotRun:
    """Start a run that has no session, parent or predecessor."""

    run: RunStart
    started: NewRecord


@dataclass(frozen=True, slots=True)
class StartOneShotChildRun:
    """Start a sessionless child of a sessionless run."""

    run: RunStart
    parent_linked: NewRecord
    started: NewRecord


@dataclass(frozen=True, slots=True)
class AppendRecord:
    """Add one ordinary record to a run's history."""

    record: NewRecord


@dataclass(frozen=True, slots=True)
class RecordCancellation:
    """Store the first request to cancel a run, with its reason; the run stays running."""

    run_id: str
    reason: str
    record: NewRecord


@dataclass(frozen=True, slots=True)
class RecordSuspension:
    """Suspend a run, with the checkpoint that lets it be continued."""

    run_id: str
    checkpoint: Checkpoint
    record: NewRecord


@dataclass(frozen=True, slots=True)
class RecordTerminal:
    """Complete, fail or cancel a run."""

    run_id: str
    status: RunStatus
    record: NewRecord


@dataclass(frozen=True, slots=True)
class RepairSuspension:
    """Suspend a run if it is still running; otherwise tell which record owns its state."""

    run_id: str
    checkpoint: Checkpoint
    record: NewRecord


@dataclass(frozen=True, slots=True)
class RepairTerminal:
    """End a run if it is still running; otherwise tell which record owns its state."""

    run_id: str
    status: RunStatus
    record: NewRecord


@dataclass(frozen=True, slots=True)
class AppendMemory:
    """Add events to what is remembered of a run by an agent, all of them or none."""

    agent_id: str
    run_id: str
    events: tuple[MemoryEvent, ...]


@dataclass(frozen=True, slots=True)
class PurgeMemory:
    """Remove what is remembered of a run by an agent for good; it may be begun again."""

    agent_id: str
    run_id: str


Start = StartRootRun | StartChildRun | StartOneShotRun | StartOneShotChildRun
RunCommand = AppendRecord | RecordCancellation | RecordSuspension | RecordTerminal | RepairSuspension | RepairTerminal
SessionCommand = CreateSession | EndSession | PurgeSession
MemoryCommand = AppendMemory | PurgeMemory
Command = SessionCommand | Start | RunCommand | MemoryCommand
