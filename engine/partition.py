"""A partition: its queue, its reads, and the loop that lets its writer take turns; what happens when things break.

All commands that wait when a turn begins go into one batch (group commit), and one batch is in flight at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from engine.decide import Elsewhere, OwnCommand, Prepared
from engine.environment import Environment
from engine.keys.errors import KeysError
from engine.logs.interface import Log, LogClosed, LogCorrupt, LogUnavailable
from engine.opener import Opener
from engine.pending import CommandSequence, Outcome, Pending, Queue, QueueLimits, command_bytes, unavailable
from engine.projection import LogRewritten, Projection
from engine.purges import Purges
from engine.watchers import Watchers
from engine.writer import Writer, command_id_bytes
from projections.errors import ProjectionDamaged, ProjectionError
from projections.fold import FoldError
from projections.position_rule import HistoryBroken
from projections.rebuild import Verified
from projections.view import View
from schemas.commands import Command
from schemas.refusals import Refusal

T = TypeVar("T")
log = logging.getLogger("runstore.partition")

recovery_wait_seconds_first: Final = 0.1
recovery_wait_seconds_max: Final = 5.0
reads_waiting_max: Final = 10_000
follow_seconds: Final = 0.05
"""How often a log that others write to is asked for its end while anyone watches and nothing else is to be done."""

_DAMAGED_LOG = (LogCorrupt, HistoryBroken, FoldError)


class State(StrEnum):
    """What a partition is doing."""

    STARTING = "starting"
    SERVING = "serving"
    RECOVERING = "recovering"
    STOPPED = "stopped"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """How a partition stands, for operators.

    `lag` counts entries of the log not applied; `rebuild` goes from 0 to 1, and is None when none runs.
    `lost_records` counts what the log once held and holds no more.
    """

    partition: int
    state: str
    log_start: int
    log_end: int
    applied: int
    lag: int
    void_records: int
    last_error: str
    rebuild: float | None
    queued: int
    lost_records: int = 0


class PartitionUnavailable(Exception):
    """A partition cannot answer a read now; `refusal` is what the caller is told."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.detail)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class _Read:
    """A read that waits for proof that the applied state is not old."""

    function: Callable[[View], Any]
    future: asyncio.Future[Any]

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Partition:
    """One partition, from opening to closing. Only its own loop writes to its log and its projection."""

    def __init__(
        self,
        number: int,
        the_log: Log,
        projection: Projection,
        opener: Opener,
        environment: Environment,
        limits: QueueLimits,
        purges: Purges,
        *,
        strict_reads: bool = False,
    ) -> None:
        self.number = number
        self.opener = opener
        self._log = the_log
        self._projection = projection
        self._environment = environment
        self._purges = purges
        self._wake = asyncio.Event()
        self.watchers = Watchers(self._wake.set)
        """Who is told when what is applied here moves on."""
        self._writer = Writer(
            number, the_log, projection, opener, environment, purges, self.watchers, strict_reads=strict_reads
        )
        self._queue = Queue(limits)
        self._reads: list[_Read] = []
        self._turn_lock = asyncio.Lock()
        self._closing = False
        self._state = State.STARTING
        self._rebuild_next = False
        self._recovery_wait = recovery_wait_seconds_first
        self._last_error = self._rebuild_error = ""
        self._task: asyncio.Task[None] | None = None

    # -- opening and closing

    async def open(self) -> None:
        """Apply the log to the end that it has now, then serve.

        A damaged log stops the partition and says where. What may pass – the log or the keys cannot be reached – is
        tried again until it works; until then every command is answered `unavailable`.
        """
        await self._reopen()
        if self._state is State.STARTING:
            self._state = State.RECOVERING
        self._task = asyncio.create_task(self._run(), name=f"partition {self.number}")

    async def close(self) -> None:
        """Answer what waits, then release the projection. Safe to repeat."""
        if self._state is State.CLOSED:
            return
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task
        self._state = State.CLOSED
        self.watchers.reset()
        self._fail_all(unavailable("the store is closing"))
        self._projection.close()

    @property
    def ready(self) -> bool:
        """True while the partition serves: it has applied the end that the log had when it was opened."""
        return self._state is State.SERVING

    @property
    def over(self) -> bool:
        """True once the partition will not serve again."""
        return self._closing or self._state in (State.STOPPED, State.CLOSED)

    @property
    def view(self) -> View:
        """The applied state, for reads that need no proof of freshness. Raises `PartitionUnavailable`."""
        if self._state is not State.SERVING:
            raise PartitionUnavailable(self._not_serving())
        return self._projection.view

    @property
    def projection(self) -> Projection:
        """The projection with its way of being rebuilt."""
        return self._projection

    async def status(self) -> PartitionStatus:
        """How the partition stands."""
        applied = self._projection.rule.end
        start, end = 0, applied
        error = self._last_error or self._writer.last_error or self._rebuild_error
        try:
            start, end = await asyncio.gather(self._log.start(self.number), self._log.end(self.number))
        except (LogUnavailable, LogClosed, LogCorrupt) as unreachable:
            error = error or str(unreachable)
        return PartitionStatus(
            partition=self.number,
            state=self._state.value,
            log_start=start,
            log_end=end,
            applied=applied,
            lag=max(0, end - applied),
            void_records=self._projection.void_records,
            last_error=error,
            rebuild=self._projection.rebuild_progress,
            queued=len(self._queue),
            lost_records=self._log.lost(self.number),
        )

    # -- what callers do

    def submit(
        self,
        command: Command | OwnCommand,
        elsewhere: Elsewhere,
        prepared: Prepared,
        sequence: CommandSequence | None = None,
    ) -> asyncio.Future[Outcome]:
        """Queue a command whose shape has been checked; the future gets its outcome and never an exception."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        command_id = self._environment.random_bytes(command_id_bytes)
        pending = Pending(command, elsewhere, prepared, command_id, future, sequence, command_bytes(command))
        if self._state is not State.SERVING or self._closing:
            pending.answer(self._not_serving())
        elif not self._queue.offer(pending):
            pending.answer(unavailable(f"partition {self.number} is overloaded: its queue is full"))
        else:
            self._wake.set()
        return future

    async def read(self, function: Callable[[View], T]) -> T:
        """Evaluate a read on a state at least as new as this call. Raises `PartitionUnavailable`."""
        if self._log.exclusive:
            return self._evaluate(function)
        if self._state is not State.SERVING:
            raise PartitionUnavailable(self._not_serving())
        if len(self._reads) >= reads_waiting_max:
            raise PartitionUnavailable(unavailable(f"partition {self.number} is overloaded: too many reads wait"))
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._reads.append(_Read(function, future))
        self._wake.set()
        return await future

    def look(self, function: Callable[[View], T]) -> T:
        """Evaluate a read at once, on a state that may be older than this call. Raises `PartitionUnavailable`."""
        return self._evaluate(function)

    async def rebuild(self) -> str:
        """Rebuild the projection beside the one that serves, and swap them when the new one has caught up.

        Returns why that failed, empty when it did not. A damaged log stops the partition, one that was cut is read
        again; after any other failure the projection that serves goes on.
        """
        if self._state is not State.SERVING:
            return self._not_serving().detail
        self._rebuild_error = ""
        try:
            await self._projection.rebuild_beside(self._turn_lock)
        except _DAMAGED_LOG as error:
            self._damaged(error)
            return str(error)
        except LogRewritten as error:
            self._recover(error)
            return str(error)
        except (ProjectionError, LogUnavailable, LogClosed, OSError) as error:
            self._rebuild_error = f"the rebuild failed: {error}"
            log.error("partition %d: %s", self.number, self._rebuild_error)
        return self._rebuild_error

    async def verify(self) -> Verified:
        """Compare the projection with one folded afresh from the log; commands wait meanwhile."""
        return await self._projection.verify(self._turn_lock)

    # -- the loop

    async def _run(self) -> None:
        while True:
            if self._state is State.RECOVERING and not self._closing:
                async with self._turn_lock:
                    await self._reopen()
            elif len(self._queue) or self._reads:
                async with self._turn_lock:
                    await self._turn()
            elif self._closing:
                return
            elif self._writer.unsettled and self._state is State.SERVING:
                async with self._turn_lock:
                    await self._guarded(self._writer.settle())
            else:
                self._wake.clear()
                await self._rest()

    async def _rest(self) -> None:
        """Wait until something is to be done; while anyone watches a log that others write to, look at it."""
        if self._log.exclusive or not self.watchers or self._state is not State.SERVING:
            await self._wake.wait()
            return
        try:
            async with asyncio.timeout(follow_seconds):
                await self._wake.wait()
        except TimeoutError:
            async with self._turn_lock:
                if self._state is State.SERVING:
                    await self._guarded(self._writer.follow())

    async def _turn(self) -> None:
        """One batch: everything that waits now, until all of it is answered."""
        if self._state is not State.SERVING:
            self._fail_all(self._not_serving())
            return
        waiting, reads = self._queue.take(), self._reads
        self._reads = []
        if await self._guarded(self._writer.commit(waiting)):
            if not self._writer.last_error:
                self._last_error = ""
            for read in reads:
                self._answer_read(read)
        refusal = unavailable(self._last_error or self._writer.last_error or "the outcome is not known")
        for pending in waiting:
            if not pending.future.done():
                pending.answer(refusal)
        for read in reads:
            read.fail(PartitionUnavailable(refusal))

    async def _guarded(self, turn: Any) -> bool:
        """Let the writer work, and turn what it meets into what that means for the partition."""
        try:
            return bool(await turn)
        except _DAMAGED_LOG as error:
            self._damaged(error)
        except (ProjectionError, LogRewritten) as error:
            self._recover(error)
        except (LogUnavailable, LogClosed, KeysError) as error:
            self._last_error = str(error)
        except Exception as error:
            # A fault of ours must not leave callers hanging, nor a state that nobody has checked.
            log.exception("partition %d: unexpected error in the loop", self.number)
            self._recover(error)
        return False

    def _answer_read(self, read: _Read) -> None:
        if read.future.done():
            return
        try:
            read.future.set_result(self._evaluate(read.function))
        except Exception as error:  # noqa: BLE001 # it goes to its caller
            # Also one that nobody expects: it is this caller's, as it is where a read is evaluated at once.
            read.fail(error)

    def _evaluate(self, function: Callable[[View], T]) -> T:
        """Evaluate a read on the applied state, and turn damage that it meets into what that means."""
        view = self.view
        try:
            return function(view)
        except LogCorrupt as error:
            self._damaged(error)
            raise PartitionUnavailable(self._not_serving()) from error
        except ProjectionError as error:
            self._recover(error)
            raise PartitionUnavailable(self._not_serving()) from error
        except KeysError as error:
            log.error("partition %d: %s", self.number, error)
            raise PartitionUnavailable(unavailable(str(error))) from error
        except LogUnavailable as error:
            raise PartitionUnavailable(unavailable(str(error))) from error

    # -- when things break

    def _damaged(self, error: Exception) -> None:
        """Something in the log does not follow what was applied: stop, or, where others may have cut it, read it anew.

        Damage that is there when it is read from its start stops the partition for good.
        """
        if self._log.exclusive:
            self._stop(error)
        else:
            self._recover(error)

    def _stop(self, error: Exception) -> None:
        """Stop for good: the log is damaged, and nothing may be answered past the damage."""
        self._state = State.STOPPED
        self._last_error = str(error)
        self.watchers.reset()
        log.critical("partition %d has stopped: %s", self.number, error)

    def _recover(self, error: Exception) -> None:
        """Serve no more until the projection has been opened again; a damaged one is rebuilt from the log."""
        if self._state is not State.SERVING:
            return
        self._state = State.RECOVERING
        self._rebuild_next = isinstance(error, (ProjectionDamaged, LogRewritten, *_DAMAGED_LOG))
        known = isinstance(error, (ProjectionError, LogRewritten, *_DAMAGED_LOG))
        self._last_error = str(error) if known else f"unexpected error: {type(error).__name__}"
        log.error("partition %d: the projection is opened again: %s", self.number, self._last_error)
        self._wake.set()

    async def _reopen(self) -> None:
        """Open the projection, rebuilding it where it was found damaged; the state tells what came of it."""
        try:
            await self._projection.reopen(rebuild=self._rebuild_next)
            await self.opener.refresh()
            await self._purges.sweep(self.number, self._projection.view)
        except _DAMAGED_LOG as error:
            if self._log.exclusive or self._rebuild_next:
                self._stop(error)
            else:
                # It may not follow what this projection has applied, and be sound when it is read from its start.
                self._rebuild_next = True
        except (ProjectionError, LogUnavailable, LogClosed, KeysError, OSError) as error:
            self._last_error = str(error)
            await self._wait_before_reopening()
        except Exception as error:
            log.exception("partition %d: unexpected error while opening", self.number)
            self._stop(RuntimeError(f"unexpected error while opening: {type(error).__name__}"))
        else:
            if self._state in (State.STARTING, State.RECOVERING):
                self._state = State.SERVING
                self._rebuild_next = False
                self._recovery_wait = recovery_wait_seconds_first
                self._last_error = ""
                self.watchers.reset()

    async def _wait_before_reopening(self) -> None:
        log.error("partition %d cannot serve yet: %s", self.number, self._last_error)
        self._fail_all(self._not_serving())
        wait, self._recovery_wait = self._recovery_wait, min(2 * self._recovery_wait, recovery_wait_seconds_max)
        await self._environment.sleep(wait)

    def _fail_all(self, refusal: Refusal) -> None:
        self._queue.drain(refusal)
        reads, self._reads = self._reads, []
        for read in reads:
            read.fail(PartitionUnavailable(refusal))

    def _not_serving(self) -> Refusal:
        if self._closing:
            return unavailable("the store is closing")
        why = f": {self._last_error}" if self._last_error else ""
        return unavailable(f"partition {self.number} is {self._state.value}{why}")
