"""A store that answers what a test tells it to, and keeps what it was asked."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.commands import AppendMemory, Command, CreateSession, EndSession, PurgeMemory, PurgeSession
from schemas.consumers import Consumer, Scope, StartAt
from schemas.memories import MemorySnapshot
from schemas.refusals import Code, Refusal, refuse
from schemas.replays import ModelInput, Prompts, RunTree, ToolCalls, Transcript
from schemas.values import (
    Answer,
    AppendResult,
    Checkpoint,
    Done,
    NewRecord,
    Page,
    Purged,
    Record,
    RunDetail,
    RunMeta,
    RunStatus,
    Session,
    SessionDetail,
    SessionPage,
    SessionStatus,
    StartOutcome,
)
from service.ports import ExportPort, StreamPort

NOON = 1_796_050_606_812
NOON_TEXT = "2026-11-30T14:56:46.812Z"


def record(**changes: Any) -> NewRecord:
    """A record of a run with a session."""
    fields: dict[str, Any] = {
        "event_key": "run-1/2",
        "run_id": "run-1",
        "agent_id": "demo.chat",
        "session_id": "sess-1",
        "turn_id": "turn-1",
        "type": "usage",
        "timestamp": NOON,
        "payload": b"{}",
    }
    return NewRecord(**(fields | changes))


def run_meta(run_id: str = "run-1", **changes: Any) -> RunMeta:
    """A running run with a session."""
    fields: dict[str, Any] = {
        "agent_id": "demo.chat",
        "run_id": run_id,
        "session_id": "sess-1",
        "parent_run_id": "",
        "status": RunStatus.RUNNING,
        "start_outcome": StartOutcome.PROCEED,
        "started_at": NOON,
        "updated_at": NOON + 5,
        "labels": {},
        "cancellation_reason": "",
    }
    return RunMeta(**(fields | changes))


@dataclass(frozen=True)
class FakePartition:
    """A partition that stands still."""

    partition: int = 0
    state: str = "serving"
    log_start: int = 0
    log_end: int = 12
    applied: int = 10
    lag: int = 2
    void_records: int = 3
    lost_records: int = 1
    last_error: str = ""
    rebuild: float | None = None
    queued: int = 4


@dataclass(frozen=True)
class FakeState:
    """A store of one partition."""

    version: str = "9.9"
    log: str = "embedded"
    store_id: str = "c0ffee"
    partitions: tuple[FakePartition, ...] = (FakePartition(),)


Decide = Callable[[Command], Answer | Refusal | Awaitable[Answer | Refusal]]


def done(command: Command) -> Answer:
    """What a store without opinions answers."""
    match command:
        case CreateSession(session_id, created_at):
            return Session(session_id, SessionStatus.ACTIVE, created_at)
        case EndSession(session_id, ended_at):
            return Session(session_id, SessionStatus.ENDED, ended_at, ended_at)
        case PurgeSession() | PurgeMemory():
            return Purged()
        case AppendMemory():
            return Done()
        case _:
            return AppendResult("0001", inserted=True, session_status=SessionStatus.ACTIVE)


class FakeReplay:
    """What is read back of the same store."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read = read

    async def transcript(self, run_id: str, through: str = "") -> Transcript | Refusal:
        found: Transcript | Refusal = self._read("run transcript", run_id, through)
        return found

    async def model_input(self, run_id: str, keep_turns: int = 0) -> ModelInput | Refusal:
        found: ModelInput | Refusal = self._read("run model input", run_id, keep_turns)
        return found

    async def prompts(self, run_id: str, *, descendants: bool = True, predecessors: bool = False) -> Prompts | Refusal:
        found: Prompts | Refusal = self._read("run prompts", run_id, descendants, predecessors)
        return found

    async def tree(self, run_id: str) -> RunTree | Refusal:
        found: RunTree | Refusal = self._read("run tree", run_id)
        return found

    async def tool_calls(self, run_id: str) -> ToolCalls | Refusal:
        found: ToolCalls | Refusal = self._read("run tool calls", run_id)
        return found

    async def export_run(self, run_id: str) -> ExportPort | Refusal:
        found: ExportPort | Refusal = self._read("run export", run_id)
        return found

    async def export_tree(self, root_run_id: str) -> ExportPort | Refusal:
        found: ExportPort | Refusal = self._read("run tree export", root_run_id)
        return found

    async def export_session(self, session_id: str) -> ExportPort | Refusal:
        found: ExportPort | Refusal = self._read("session export", session_id)
        return found


class FakeMemories:
    """What is remembered in the same store."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read = read

    async def load(self, agent_id: str, run_id: str) -> MemorySnapshot | Refusal:
        found: MemorySnapshot | Refusal = self._read("memory", agent_id, run_id)
        return found


class FakeConsumers:
    """The consumers of the same store."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read = read

    async def put(self, name: str, scope: Scope, types: Sequence[str], start_at: StartAt) -> Consumer | Refusal:
        found: Consumer | Refusal = self._read("put consumer", name, scope, tuple(types), start_at)
        return found

    async def commit(self, name: str, cursor: str) -> Consumer | Refusal:
        found: Consumer | Refusal = self._read("commit consumer", name, cursor)
        return found

    async def delete(self, name: str) -> Done | Refusal:
        found: Done | Refusal = self._read("delete consumer", name)
        return found

    async def list(self) -> tuple[Consumer, ...] | Refusal:
        found: tuple[Consumer, ...] | Refusal = self._read("list consumers")
        return found

    async def stream(self, name: str, cursor: str = "", *, follow: bool = True) -> StreamPort | Refusal:
        found: StreamPort | Refusal = self._read("consumer stream", name, cursor, follow)
        return found


class FakeStreams:
    """Streams of the same store: `values` holds what their opening answers."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read = read

    async def run(
        self, run_id: str, cursor: str, types: Sequence[str] = (), *, follow: bool = True
    ) -> StreamPort | Refusal:
        found: StreamPort | Refusal = self._read("run stream", run_id, cursor, tuple(types), follow)
        return found

    async def session(
        self, session_id: str, cursor: str, types: Sequence[str] = (), *, follow: bool = True
    ) -> StreamPort | Refusal:
        found: StreamPort | Refusal = self._read("session stream", session_id, cursor, tuple(types), follow)
        return found

    async def everything(self, cursor: str, types: Sequence[str] = (), *, follow: bool = True) -> StreamPort | Refusal:
        found: StreamPort | Refusal = self._read("stream", cursor, tuple(types), follow)
        return found


class FakeStore:
    """`decide` answers commands; `values` answers reads, by the method's name or by the ID asked for."""

    def __init__(self) -> None:
        self.decide: Decide = done
        self.commands: list[Command] = []
        self.reads: list[tuple[Any, ...]] = []
        self.values: dict[str, Any] = {}
        self.replay = FakeReplay(self._read)
        self.consumers = FakeConsumers(self._read)
        self.memories = FakeMemories(self._read)
        self.streams = FakeStreams(self._read)
        self.is_ready = True
        self.state = FakeState()
        self.closed = 0
        self.rebuilds = 0

    async def execute(self, command: Command) -> Answer | Refusal:
        self.commands.append(command)
        answer = self.decide(command)
        return await answer if inspect.isawaitable(answer) else answer

    async def execute_in_order(self, commands: Sequence[Command]) -> list[Answer | Refusal]:
        answers: list[Answer | Refusal] = []
        for command in commands:
            if any(isinstance(answer, Refusal) and answer.temporary for answer in answers):
                answers.append(refuse(Code.UNAVAILABLE, "not tried"))
            else:
                answers.append(await self.execute(command))
        return answers

    def _read(self, name: str, *asked: Any) -> Any:
        self.reads.append((name, *asked))
        if asked and asked[0] in self.values:
            return self.values[asked[0]]
        missing = Code.RUN_NOT_FOUND if "run" in name or "checkpoint" in name else Code.SESSION_NOT_FOUND
        return self.values.get(name, refuse(missing, f"nothing called {asked[0]!r}" if asked else "nothing"))

    async def load_session(self, session_id: str) -> Session | Refusal:
        found: Session | Refusal = self._read("load_session", session_id)
        return found

    async def load_session_status(self, session_id: str) -> SessionStatus | Refusal:
        found: SessionStatus | Refusal = self._read("load_session_status", session_id)
        return found

    async def list_runs_by_session(
        self, session_id: str, statuses: Sequence[str] = ()
    ) -> tuple[RunMeta, ...] | Refusal:
        found: tuple[RunMeta, ...] | Refusal = self._read("list_runs_by_session", session_id, tuple(statuses))
        return found

    async def list_run_records(self, run_id: str, cursor: str, limit: int, types: Sequence[str] = ()) -> Page | Refusal:
        found: Page | Refusal = self._read("list_run_records", run_id, cursor, limit, tuple(types))
        return found

    async def list_session_records(
        self, session_id: str, cursor: str, limit: int, types: Sequence[str] = ()
    ) -> Page | Refusal:
        found: Page | Refusal = self._read("list_session_records", session_id, cursor, limit, tuple(types))
        return found

    async def load_run(self, run_id: str) -> RunMeta | Refusal:
        found: RunMeta | Refusal = self._read("load_run", run_id)
        return found

    async def load_checkpoint(self, run_id: str) -> Checkpoint | Refusal:
        found: Checkpoint | Refusal = self._read("load_checkpoint", run_id)
        return found

    async def list_sessions(self, status: str, cursor: str, limit: int) -> SessionPage | Refusal:
        found: SessionPage | Refusal = self._read("list_sessions", status, cursor, limit)
        return found

    async def session_detail(self, session_id: str) -> SessionDetail | Refusal:
        found: SessionDetail | Refusal = self._read("session_detail", session_id)
        return found

    async def run_detail(self, run_id: str) -> RunDetail | Refusal:
        found: RunDetail | Refusal = self._read("run_detail", run_id)
        return found

    def ready(self) -> bool:
        return self.is_ready

    async def status(self) -> FakeState:
        return self.state

    async def start_rebuild(self) -> Refusal | None:
        self.rebuilds += 1
        return None

    async def close(self) -> None:
        self.closed += 1


def page(*payloads: bytes, next_cursor: str = "") -> Page:
    """A page with one record for each payload."""
    records = [Record(f"{index:04}", record(payload=payload)) for index, payload in enumerate(payloads, 1)]
    return Page(tuple(records), next_cursor)
