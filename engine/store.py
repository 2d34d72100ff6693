"""The store: every command and read of the contract over its partitions.

`execute` checks a command's shape, finds its home, and lets the home's loop decide it. Where the loop says
that something must be made ready first – a data key, a reservation of the run ID – it is, and the command is decided
again: nothing is written to the log for a command that would be refused.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from engine.consumers import Consumers
from engine.cursors import Cursors
from engine.decide import Needs, Prepared, ReserveRun, check_shape
from engine.decide.sessions import session_not_found
from engine.decide.state import NOTHING_ELSEWHERE, NOTHING_PREPARED, ConsumerState, Reserved
from engine.environment import Environment
from engine.keys import KeysError, KeyStore, Sealer
from engine.memories import Memories
from engine.partition import Partition, PartitionStatus, PartitionUnavailable
from engine.patience import Patience
from engine.pending import NOT_TRIED, CommandSequence, Outcome, unavailable
from engine.purges import Purges
from engine.reads import Reader
from engine.replay import Replay
from engine.router import Router
from engine.session_list import list_sessions
from engine.streams import Streams
from projections import layout
from projections.queries import memory_row
from projections.rebuild import Verified
from projections.rows import MemoryRow
from schemas import limits
from schemas.commands import (
    AppendMemory,
    Command,
    CreateSession,
    PurgeSession,
    RunCommand,
    StartOneShotRun,
)
from schemas.owners import memory_owner, session_owner, tree_owner
from schemas.refusals import Refusal, invalid
from schemas.text import check_id
from schemas.values import (
    Answer,
    Checkpoint,
    Page,
    Purged,
    RunDetail,
    RunMeta,
    Session,
    SessionDetail,
    SessionPage,
    SessionStatus,
)

T = TypeVar("T")

_PREPARATIONS_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """What a store is: the version that serves it, its kind of log, its random ID, and whether it was made just now."""

    version: str
    log: str
    store_id: str
    created: bool


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """How the store stands."""

    version: str
    log: str
    store_id: str
    partitions: tuple[PartitionStatus, ...]


class Store:
    """A store over open partitions; `engine.opening.open_store` makes one from settings."""

    def __init__(
        self,
        identity: StoreIdentity,
        partitions: Sequence[Partition],
        sealer: Sealer,
        keys: KeyStore,
        purges: Purges,
        cursors: Cursors,
        environment: Environment,
        release: Callable[[], Awaitable[None]],
        answer_seconds_max: float | None = None,
    ) -> None:
        """`answer_seconds_max` bounds, by the event loop's clock, how long a caller waits; None: as long as it takes.

        After it the caller is told `unavailable`, and what became of its command stays open.
        """
        self.identity = identity
        self._partitions = partitions
        self._router = Router(partitions)
        self._sealer = sealer
        self._keys = keys
        self._purges = purges
        self._cursors = cursors
        self._environment = environment
        self._release = release
        over = unavailable(f"there was no answer within {answer_seconds_max} s; it may be done or not")
        self._bounded = Patience(answer_seconds_max, lambda: PartitionUnavailable(over)).bounded
        self.replay = Replay(self._router, cursors, environment, self._bounded)
        self.memories = Memories(self._router, lambda: environment.sleep(0), self._bounded)
        self.streams = Streams(partitions, self._router, cursors, environment, self._bounded)
        self.consumers = Consumers(partitions, self._router, cursors, environment, self.streams, self._bounded)
        self._closed = False
        self._keys_in_making: dict[str, asyncio.Future[bytes]] = {}
        self._rebuild: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Take no new commands, answer the waiting ones, release the files. Safe to repeat."""
        if self._closed:
            return
        self._closed = True
        if self._rebuild is not None:
            self._rebuild.cancel()
            await asyncio.gather(self._rebuild, return_exceptions=True)
        try:
            await asyncio.gather(*(partition.close() for partition in self._partitions), return_exceptions=True)
            await self._purges.close()
        finally:
            await self._release()

    # -- commands

    async def execute(self, command: Command, sequence: CommandSequence | None = None) -> Answer | Refusal:
        """Do one command, whole or not at all, and answer once that is durable."""
        refusal = check_shape(command)
        if refusal is not None:
            return refusal
        try:
            async with self._bounded():
                outcome = await self._execute(command, sequence)
        except PartitionUnavailable as error:
            outcome = error.refusal
        if sequence is not None and isinstance(outcome, Refusal) and outcome.temporary:
            sequence.broken = True
        return outcome

    async def _execute(self, command: Command, sequence: CommandSequence | None) -> Answer | Refusal:
        prepared = await self._foresee(command)
        for _ in range(_PREPARATIONS_MAX):
            route = await self._router.route(command)
            outcome = await route.home.submit(command, route.elsewhere, prepared, sequence)
            if isinstance(outcome, Needs):
                ready = await self._prepare(outcome, command, route.home, prepared)
                if isinstance(ready, Refusal):
                    return ready
                prepared = ready
                continue
            if isinstance(outcome, Purged) and outcome.owner:
                ids = {"session_id": command.session_id} if isinstance(command, PurgeSession) else {}
                return await self._finish_purge(outcome.owner, route.home, ids)
            assert not isinstance(outcome, Reserved | ConsumerState), "only the store's own commands are answered so"
            return outcome
        return unavailable("the command could not be prepared; other commands keep changing what it needs")

    async def execute_in_order(self, commands: Sequence[Command]) -> list[Answer | Refusal]:
        """Do commands of one session or sessionless tree in the order given; many share a batch.

        After one is `unavailable` the later ones are not tried; after another refusal they go on.
        """
        sequence = CommandSequence()
        outcomes: list[Answer | Refusal] = []
        queued: list[Refusal | asyncio.Future[Outcome]] = []
        for command in commands:
            if isinstance(command, RunCommand):
                queued.append(await self._submit_in_order(command, sequence))
                continue
            # What a start or a session command does depends on the commands before it.
            outcomes += [await self._outcome_of(each, sequence) for each in queued]
            queued.clear()
            outcomes.append(NOT_TRIED if sequence.broken else await self.execute(command, sequence))
        return outcomes + [await self._outcome_of(each, sequence) for each in queued]

    async def _outcome_of(
        self, queued: Refusal | asyncio.Future[Outcome], sequence: CommandSequence
    ) -> Answer | Refusal:
        """What comes of a command that was queued; none is waited for after one that took too long."""
        if isinstance(queued, Refusal):
            return queued
        if sequence.given_up and not queued.done():
            queued.cancel()
            return NOT_TRIED
        try:
            async with self._bounded():
                # A command whose future is cancelled is left out. So it never is before those after it are told, nor
                # where the caller has gone: they would be done without it.
                outcome = await asyncio.shield(queued)
                assert not isinstance(outcome, (Needs, Reserved, ConsumerState)), (
                    "a command on a run that exists needs nothing"
                )
                return outcome
        except PartitionUnavailable as error:
            sequence.broken = sequence.given_up = True
            queued.cancel()
            return error.refusal

    async def _submit_in_order(
        self, command: RunCommand, sequence: CommandSequence
    ) -> asyncio.Future[Outcome] | Refusal:
        """Queue a command on an existing run; one whose own shape is wrong is refused for that in any case."""
        refusal = check_shape(command)
        if refusal is not None:
            return refusal
        if sequence.broken:
            return NOT_TRIED
        try:
            async with self._bounded():
                route = await self._router.route(command)
        except PartitionUnavailable as error:
            sequence.broken = True
            return error.refusal
        return route.home.submit(command, route.elsewhere, NOTHING_PREPARED, sequence)

    async def _foresee(self, command: Command) -> Prepared:
        """Make a data key ready at once where the loop would certainly ask for one; only saves a round."""
        if isinstance(command, CreateSession):
            view = self._router.home_of(command.session_id).view
            if view.session(command.session_id) is None:
                return await self._with_key(session_owner(command.session_id), NOTHING_PREPARED)
        elif isinstance(command, StartOneShotRun):
            run_id = command.run.run_id
            view = self._router.home_of(run_id).view
            if view.run(run_id) is None and view.get(layout.reserved_key(run_id)) is None:
                return await self._with_key(tree_owner(run_id), NOTHING_PREPARED)
        elif isinstance(command, AppendMemory) and command.events:
            agent_id, run_id = command.agent_id, command.run_id
            row = memory_row(self._router.memory_home(agent_id, run_id).view, agent_id, run_id) or MemoryRow()
            if not row.begun:
                return await self._with_key(memory_owner(agent_id, run_id, row.generation), NOTHING_PREPARED)
        return NOTHING_PREPARED

    async def _prepare(self, needs: Needs, command: Command, home: Partition, prepared: Prepared) -> Prepared | Refusal:
        if needs.data_key_of:
            prepared = await self._with_key(needs.data_key_of, prepared)
        if needs.reservation:
            assert not isinstance(command, RunCommand)
            run = command.run  # type: ignore[union-attr]
            self._environment.failpoint("start.before_reservation")
            reserve = ReserveRun(run.run_id, home.number, run.session_id)
            outcome = await self._router.home_of(run.run_id).submit(reserve, NOTHING_ELSEWHERE, NOTHING_PREPARED)
            if isinstance(outcome, Refusal):
                return outcome
            self._environment.failpoint("start.after_reservation")
            prepared = dataclasses.replace(prepared, reserved=True)
        return prepared

    async def _with_key(self, owner: str, prepared: Prepared) -> Prepared:
        """Have a data key that is safe before anything names it; one that was made for nothing is used later."""
        making = self._keys_in_making.get(owner)
        try:
            if making is None:
                kept = self._keys.keys_of(owner)
                if kept:
                    return Prepared(kept[-1], prepared.reserved, owner)
                making = asyncio.ensure_future(self._make_key(owner))
                self._keys_in_making[owner] = making
                making.add_done_callback(lambda _: self._keys_in_making.pop(owner, None))
            # Others may wait for the same key, so it is made even if this caller goes away.
            return Prepared(await asyncio.shield(making), prepared.reserved, owner)
        except KeysError as error:
            raise PartitionUnavailable(unavailable(f"the key store failed: {error}")) from error

    async def _make_key(self, owner: str) -> bytes:
        key_id, key = self._sealer.new_key()
        await self._keys.put(owner, key_id, key)
        return key_id

    async def _finish_purge(self, owner: str, home: Partition, ids: Mapping[str, str]) -> Answer | Refusal:
        if await self._purges.finished(home.number, owner):
            return Purged()
        return unavailable(f"{owner!r} is purged, but its keys are not deleted yet; repeat the purge", **ids)

    # -- reads

    async def load_session(self, session_id: str) -> Session | Refusal:
        """The session."""
        return await self._at_session(session_id, lambda reader: reader.session(session_id))

    async def load_session_status(self, session_id: str) -> SessionStatus | Refusal:
        """The session's status; that of no session at all, the empty ID, is `session_not_found`."""
        if not session_id:
            return session_not_found(session_id)
        return await self._at_session(session_id, lambda reader: reader.session_status(session_id))

    async def session_detail(self, session_id: str) -> SessionDetail | Refusal:
        """A session, how its runs stand, and when anything last happened in it."""
        return await self._at_session(session_id, lambda reader: reader.session_detail(session_id))

    async def list_runs_by_session(
        self, session_id: str, statuses: Sequence[str] = ()
    ) -> tuple[RunMeta, ...] | Refusal:
        """The session's runs in start order, of these statuses only where any are given."""
        return await self._at_session(session_id, lambda reader: reader.runs_of_session(session_id, statuses))

    async def list_session_records(
        self, session_id: str, cursor: str, limit: int, types: Sequence[str] = ()
    ) -> Page | Refusal:
        """A page of a session's records in commit order, after `cursor` (empty: from the start)."""
        if (refusal := _bad_limit(limit)) is not None:
            return refusal
        return await self._at_session(
            session_id, lambda reader: reader.session_records(session_id, cursor, limit, types)
        )

    async def load_run(self, run_id: str) -> RunMeta | Refusal:
        """The run's metadata."""
        return await self._at_run(run_id, lambda reader: reader.run(run_id))

    async def load_checkpoint(self, run_id: str) -> Checkpoint | Refusal:
        """The checkpoint of a suspended run."""
        return await self._at_run(run_id, lambda reader: reader.checkpoint(run_id))

    async def run_detail(self, run_id: str) -> RunDetail | Refusal:
        """A run with its family and the size of its history."""
        return await self._at_run(run_id, lambda reader: reader.run_detail(run_id))

    async def list_run_records(self, run_id: str, cursor: str, limit: int, types: Sequence[str] = ()) -> Page | Refusal:
        """A page of a run's records in log order, after `cursor` (empty: from the start)."""
        if (refusal := _bad_limit(limit)) is not None:
            return refusal
        return await self._at_run(run_id, lambda reader: reader.run_records(run_id, cursor, limit, types))

    async def list_sessions(self, status: str, cursor: str, limit: int) -> SessionPage | Refusal:
        """Sessions of a status (empty: any), newest `created_at` first, then by ID."""
        if (refusal := _bad_limit(limit)) is not None:
            return refusal
        try:
            async with self._bounded():
                return await list_sessions(self._partitions, self._cursors, status, cursor, limit)
        except PartitionUnavailable as error:
            return error.refusal

    async def _at_session(self, session_id: str, function: Callable[[Reader], T]) -> T | Refusal:
        if (problem := check_id(session_id, "session_id")) is not None:
            return invalid(problem)
        try:
            async with self._bounded():
                return await self._read(self._router.home_of(session_id), function)
        except PartitionUnavailable as error:
            return error.refusal

    async def _at_run(self, run_id: str, function: Callable[[Reader], T]) -> T | Refusal:
        if (problem := check_id(run_id, "run_id")) is not None:
            return invalid(problem)
        try:
            async with self._bounded():
                return await self._read(await self._router.run_home(run_id), function)
        except PartitionUnavailable as error:
            return error.refusal

    async def _read(self, home: Partition, function: Callable[[Reader], T]) -> T:
        return await home.read(lambda view: function(Reader(view, home.opener, self._cursors)))

    # -- operations

    @property
    def partitions(self) -> Sequence[Partition]:
        """Every partition, in order of their numbers, for tools that rebuild or verify them one by one."""
        return self._partitions

    def ready(self) -> bool:
        """True while every partition serves, having applied the end of the log that it found at start.

        A key store that failed takes no new session until the store is started again, so that is not ready either.
        """
        return not self._closed and not self._keys.failed and all(partition.ready for partition in self._partitions)

    async def status(self) -> StoreStatus:
        """How the store and each of its partitions stand."""
        partitions = await asyncio.gather(*(partition.status() for partition in self._partitions))
        identity = self.identity
        return StoreStatus(identity.version, identity.log, identity.store_id, tuple(partitions))

    async def start_rebuild(self) -> Refusal | None:
        """Start to rebuild every projection beside the ones that serve; one partition after the other."""
        if self._closed:
            return unavailable("the store is closing")
        if self._rebuild is None or self._rebuild.done():
            self._rebuild = asyncio.create_task(self._rebuild_all())
        return None

    @property
    def store_id(self) -> str:
        """The random ID that the store got when it was made."""
        return self.identity.store_id

    @property
    def created(self) -> bool:
        """True when this opening made the store."""
        return self.identity.created

    async def rebuilt(self) -> None:
        """Wait for the rebuild that runs, if any."""
        if self._rebuild is not None:
            await self._rebuild

    async def verify(self) -> list[Verified]:
        """Fold the log into fresh projections and compare each with the one that serves."""
        return [await partition.verify() for partition in self._partitions]

    async def _rebuild_all(self) -> None:
        for partition in self._partitions:
            await partition.rebuild()


def _bad_limit(limit: int) -> Refusal | None:
    if 1 <= limit <= limits.page_records_max:
        return None
    return invalid(f"limit must be 1 to {limits.page_records_max}, not {limit}")
