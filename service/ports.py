"""What the service needs of a store, and the place where it finds one once it is open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from schemas.commands import Command
from schemas.consumers import Consumer, Scope, StartAt
from schemas.memories import MemorySnapshot
from schemas.refusals import Code, Refusal, Refused, refuse
from schemas.replays import ExportedRun, ModelInput, Prompts, RunTree, ToolCalls, Transcript
from schemas.streams import Portion
from schemas.values import (
    Answer,
    Checkpoint,
    Done,
    Page,
    Record,
    RunDetail,
    RunMeta,
    Session,
    SessionDetail,
    SessionPage,
    SessionStatus,
)


class PartitionState(Protocol):
    """How one partition stands. Positions are log offsets."""

    @property
    def partition(self) -> int:
        """Its number, from 0."""
        ...

    @property
    def state(self) -> str:
        """What it is doing, in a word."""
        ...

    @property
    def log_start(self) -> int:
        """The first position that the log holds."""
        ...

    @property
    def log_end(self) -> int:
        """The position that the log's next record will get."""
        ...

    @property
    def applied(self) -> int:
        """The position up to which the views are applied."""
        ...

    @property
    def lag(self) -> int:
        """How many records of the log are not applied."""
        ...

    @property
    def void_records(self) -> int:
        """How many records landed elsewhere and do not count."""
        ...

    @property
    def lost_records(self) -> int:
        """How many records the log once held and holds no more; they are kept in the data folder."""
        ...

    @property
    def last_error(self) -> str:
        """What last went wrong; empty where nothing did."""
        ...

    @property
    def rebuild(self) -> float | None:
        """Progress of a rebuild, 0 to 1; None while there is none."""
        ...

    @property
    def queued(self) -> int:
        """How many commands wait."""
        ...


@dataclass(frozen=True, slots=True)
class KafkaPlace:
    """Where a log on Kafka is, as everyone may know it who may ask how the store stands."""

    bootstrap_servers: str
    log_topic: str
    keys_topic: str


class StoreState(Protocol):
    """How a store stands: its version, the kind of its log, its random ID, and its partitions."""

    @property
    def version(self) -> str:
        """The version of the store."""
        ...

    @property
    def log(self) -> str:
        """The kind of its log: `embedded` or `kafka`."""
        ...

    @property
    def store_id(self) -> str:
        """The random ID that it got when it was made."""
        ...

    @property
    def partitions(self) -> Sequence[PartitionState]:
        """Every partition, in order of their numbers."""
        ...


class ExportPort(Protocol):
    """What is exported, handed out a little at a time. Each method raises `Refused` where it cannot go on."""

    @property
    def session(self) -> Session | None:
        """The session, if it is one."""
        ...

    def runs(self) -> AsyncIterator[ExportedRun]:
        """Every run in the order of their starts."""
        ...

    def records(self) -> AsyncIterator[Record]:
        """Every record in log order."""
        ...

    def checkpoints(self) -> AsyncIterator[tuple[str, Checkpoint]]:
        """Every checkpoint, with its run's ID."""
        ...


class StreamPort(Protocol):
    """Records as they come. Whoever opened it closes it."""

    async def take(self) -> Portion | None:
        """The next portion; None where nothing follows yet. Raises `Refused` where nothing ever will."""
        ...

    async def wait(self) -> None:
        """Wait until more may follow."""
        ...

    def wake(self) -> None:
        """End a wait."""
        ...

    async def waiting_bytes(self, bytes_max: int) -> int:
        """About how many bytes of records follow, counted until there are more than so many."""
        ...

    def close(self) -> None:
        """Wait for nothing any more. Safe to repeat."""
        ...


class StreamsPort(Protocol):
    """What can be streamed: from a cursor on (empty: the start), of these types only where any are given."""

    async def run(
        self, run_id: str, cursor: str, types: Sequence[str] = (), *, follow: bool = True
    ) -> StreamPort | Refusal:
        """The records of a run."""
        ...

    async def session(
        self, session_id: str, cursor: str, types: Sequence[str] = (), *, follow: bool = True
    ) -> StreamPort | Refusal:
        """The records of a session."""
        ...

    async def everything(self, cursor: str, types: Sequence[str] = (), *, follow: bool = True) -> StreamPort | Refusal:
        """Every record."""
        ...


class ReplayPort(Protocol):
    """What is read back from a run's records."""

    async def transcript(self, run_id: str, through: str = "") -> Transcript | Refusal:
        """The messages of a run, all or through one of its records."""
        ...

    async def model_input(self, run_id: str, keep_turns: int = 0) -> ModelInput | Refusal:
        """What the next model call of a run would see, the newest turns apart where any are to be kept."""
        ...

    async def prompts(self, run_id: str, *, descendants: bool = True, predecessors: bool = False) -> Prompts | Refusal:
        """The prompts that shaped a run."""
        ...

    async def tree(self, run_id: str) -> RunTree | Refusal:
        """A run's descendants, and the runs before and after it."""
        ...

    async def tool_calls(self, run_id: str) -> ToolCalls | Refusal:
        """A run's tool calls, each with its result."""
        ...

    async def export_run(self, run_id: str) -> ExportPort | Refusal:
        """A run with its descendants, to read elsewhere."""
        ...

    async def export_tree(self, root_run_id: str) -> ExportPort | Refusal:
        """A sessionless tree, to import elsewhere."""
        ...

    async def export_session(self, session_id: str) -> ExportPort | Refusal:
        """A session with all its runs, to import elsewhere."""
        ...


class MemoriesPort(Protocol):
    """Product memory, for reading."""

    async def load(self, agent_id: str, run_id: str) -> MemorySnapshot | Refusal:
        """All that is remembered of a run by an agent."""
        ...


class ConsumersPort(Protocol):
    """Named consumers."""

    async def put(self, name: str, scope: Scope, types: Sequence[str], start_at: StartAt) -> Consumer | Refusal:
        """Make one; the same again is answered as it stands."""
        ...

    async def commit(self, name: str, cursor: str) -> Consumer | Refusal:
        """Note up to where one has dealt with what it reads."""
        ...

    async def delete(self, name: str) -> Done | Refusal:
        """Remove one."""
        ...

    async def list(self) -> tuple[Consumer, ...] | Refusal:
        """Every one, by name."""
        ...

    async def stream(self, name: str, cursor: str = "", *, follow: bool = True) -> StreamPort | Refusal:
        """What one reads, from a cursor of its own, or where there is none from what it has committed."""
        ...


class StorePort(Protocol):
    """A store, as the service asks it. A refusal is an answer; an exception is a bug."""

    @property
    def replay(self) -> ReplayPort:
        """What is read back from a run's records."""
        ...

    @property
    def memories(self) -> MemoriesPort:
        """Product memory, for reading."""
        ...

    @property
    def consumers(self) -> ConsumersPort:
        """Named consumers."""
        ...

    @property
    def streams(self) -> StreamsPort:
        """Records as they come."""
        ...

    async def execute(self, command: Command) -> Answer | Refusal:
        """Do one command, whole or not at all."""
        ...

    async def execute_in_order(self, commands: Sequence[Command]) -> list[Answer | Refusal]:
        """Do commands of one home in the order given; after one is `unavailable` the later ones are not tried."""
        ...

    async def load_session(self, session_id: str) -> Session | Refusal:
        """The session."""
        ...

    async def load_session_status(self, session_id: str) -> SessionStatus | Refusal:
        """The session's status; the empty ID is `session_not_found`."""
        ...

    async def list_runs_by_session(
        self, session_id: str, statuses: Sequence[str] = ()
    ) -> tuple[RunMeta, ...] | Refusal:
        """The session's runs in start order, of these statuses only where any are given."""
        ...

    async def list_run_records(self, run_id: str, cursor: str, limit: int, types: Sequence[str] = ()) -> Page | Refusal:
        """Records of a run after the cursor, of these types only where any are given."""
        ...

    async def list_session_records(
        self, session_id: str, cursor: str, limit: int, types: Sequence[str] = ()
    ) -> Page | Refusal:
        """Records of a session after the cursor, of these types only where any are given."""
        ...

    async def load_run(self, run_id: str) -> RunMeta | Refusal:
        """The run's metadata."""
        ...

    async def load_checkpoint(self, run_id: str) -> Checkpoint | Refusal:
        """The checkpoint of a suspended run."""
        ...

    async def list_sessions(self, status: str, cursor: str, limit: int) -> SessionPage | Refusal:
        """Sessions of a status (empty: any), newest first."""
        ...

    async def session_detail(self, session_id: str) -> SessionDetail | Refusal:
        """A session, how its runs stand, and when anything last happened in it."""
        ...

    async def run_detail(self, run_id: str) -> RunDetail | Refusal:
        """A run with its family and the size of its history."""
        ...

    def ready(self) -> bool:
        """True once every partition is applied to the end it had at start."""
        ...

    async def status(self) -> StoreState:
        """How the store stands."""
        ...

    async def start_rebuild(self) -> Refusal | None:
        """Start to rebuild every projection; answers when it has started."""
        ...

    async def close(self) -> None:
        """Take no new commands, answer the waiting ones, close the files."""
        ...


class StoreHolder:
    """Where the service finds its store, which may not be open yet: until then every answer is `unavailable`."""

    __slots__ = ("_store",)

    def __init__(self, store: StorePort | None = None) -> None:
        self._store = store

    def put(self, store: StorePort) -> None:
        """Hand in the open store; once only."""
        assert self._store is None, "a service has one store"
        self._store = store

    def get(self) -> StorePort | Refusal:
        """The store, or the refusal to answer with while there is none."""
        if self._store is None:
            return refuse(Code.UNAVAILABLE, "the store is still being opened; try again in a moment")
        return self._store

    def require(self) -> StorePort:
        """The store; while there is none, the refusal is raised."""
        store = self.get()
        if isinstance(store, Refusal):
            raise Refused(store)
        return store

    def ready(self) -> bool:
        """True once the store is open and has applied the log it found."""
        return self._store is not None and self._store.ready()
