"""The partition's loop: one writer that decides, appends, applies and answers, batch by batch.

All commands that wait are decided one after the other and appended as one batch (group commit). One batch is
in flight at a time. **No answer leaves before its batch has landed where it was decided for**, refusals and
retries included: one decided on a batch that turns out void is thrown away with it and decided again.

What can happen to a batch, and what follows:

- it landed at its position: commit the overlay, answer everyone;
- it landed elsewhere: it is void. Read the gap, decide again, after a random wait that grows, and give up
  after `voids_in_a_row_max` or `give_up_seconds`;
- nobody knows: never decide on a guess. Read to the end; if the batch is not there, append a barrier at
  its position. Once the barrier counts, the lost batch never can.

While reading, the loop may meet a record of a command that it still owes an answer: it gives the answer that was
decided with that record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from engine.batch import Batch
from engine.decide import Elsewhere, Prepared, ReserveRun, decide
from engine.decide.state import Decided
from engine.environment import Environment
from engine.keys.errors import KeysError
from engine.logs.interface import (
    AppendRefused,
    Log,
    LogClosed,
    LogCorrupt,
    LogUnavailable,
    OutcomeUnknown,
)
from engine.opener import Opener
from engine.pending import NOT_TRIED, Outcome, Pending, Queue, QueueLimits, Sequence, command_bytes, unavailable
from engine.projection import Projection
from engine.purges import Purges
from projections.fold import FoldError
from projections.position_rule import CountedCommand, HistoryBroken
from projections.rebuild import Verified, apply
from projections.rocks import ProjectionDamaged
from projections.view import View
from schemas.commands import Command
from schemas.log_record import Kind
from schemas.refusals import Refusal

T = TypeVar("T")
log = logging.getLogger("runstore.partition")

voids_in_a_row_max: Final = 8
give_up_seconds: Final = 2.0
void_wait_seconds_max: Final = 0.25
void_wait_seconds_first: Final = 0.005
read_records_max: Final = 1000
command_id_bytes: Final = 16


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


class Partition:
    """One partition: its projection, its queue and the loop that alone writes to both."""

    def __init__(
        self,
        number: int,
        the_log: Log,
        projection: Projection,
        opener: Opener,
        environment: Environment,
        limits: QueueLimits,
        purges: Purges,
    ) -> None:
        self.number = number
        self.opener = opener
        self._log = the_log
        self._projection = projection
        self._environment = environment
        self._purges = purges
        self._queue = Queue(limits)
        self._reads: list[_Read] = []
        self._wake = asyncio.Event()
        self._turn_lock = asyncio.Lock()
        self._closing = False
        self._unsettled = False
        self._state = State.STARTING
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
            self._set_state(State.RECOVERING)
        self._task = asyncio.create_task(self._run(), name=f"partition {self.number}")

    async def close(self) -> None:
        """Answer what waits, then release the projection."""
        if self._state is State.CLOSED:
            return
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task
        self._set_state(State.CLOSED)
        self._fail_all(unavailable("the store is closing"))
        self._projection.close()

    @property
    def ready(self) -> bool:
        """True once the partition has applied the end it found at start, and serves."""
        return self._state is State.SERVING

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
        applied = self._projection.applied_position
        start = end = applied
        error = self._last_error or self._rebuild_error
        try:
            start, end = await self._log.start(self.number), await self._log.end(self.number)
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
        )

    # -- what callers do

    def submit(
        self,
        command: Command | ReserveRun,
        elsewhere: Elsewhere,
        prepared: Prepared,
        sequence: Sequence | None = None,
    ) -> asyncio.Future[Outcome]:
        """Queue a command whose shape has been checked; the future gets its outcome and never an exception."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        pending = Pending(
            command,
            elsewhere,
            prepared,
            self._environment.random_bytes(command_id_bytes),
            future,
            sequence,
            command_bytes(command),
        )
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
            return self.guarded(function, self.view)
        if self._state is not State.SERVING:
            raise PartitionUnavailable(self._not_serving())
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._reads.append(_Read(function, future))
        self._wake.set()
        return await future

    def guarded(self, function: Callable[[View], T], view: View) -> T:
        """Evaluate a read, and turn damage that it meets into what it means for the partition."""
        try:
            return function(view)
        except LogCorrupt as error:
            self._stop(error)
            raise PartitionUnavailable(self._not_serving()) from error
        except ProjectionDamaged as error:
            self._recover(error)
            raise PartitionUnavailable(self._not_serving()) from error
        except KeysError as error:
            log.error("partition %d: %s", self.number, error)
            raise PartitionUnavailable(unavailable(str(error))) from error
        except LogUnavailable as error:
            raise PartitionUnavailable(unavailable(str(error))) from error

    async def rebuild(self) -> None:
        """Rebuild the projection beside the one that serves, and swap them when the new one has caught up."""
        self._rebuild_error = ""
        try:
            await self._projection.rebuild_beside(self._turn_lock)
        except (LogCorrupt, HistoryBroken, FoldError) as error:
            self._stop(error)
        except (ProjectionDamaged, LogUnavailable, LogClosed, OSError) as error:
            # The projection that serves is untouched.
            self._rebuild_error = f"the rebuild failed: {error}"
            log.error("partition %d: %s", self.number, self._rebuild_error)

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
            else:
                self._wake.clear()
                await self._wake.wait()

    async def _turn(self) -> None:
        """One batch: everything that waits now, until all of it is answered."""
        if self._state is not State.SERVING:
            self._fail_all(self._not_serving())
            return
        waiting, reads = self._queue.take(), self._reads
        self._reads = []
        try:
            await self._commit(waiting)
            for read in reads:
                self._answer_read(read)
        except (LogCorrupt, HistoryBroken, FoldError) as error:
            self._stop(error)
        except ProjectionDamaged as error:
            self._recover(error)
        except (LogUnavailable, LogClosed) as error:
            self._last_error = str(error)
        except Exception as error:
            # A fault of ours must not leave callers hanging, nor a state that nobody has checked.
            log.exception("partition %d: unexpected error in the loop", self.number)
            self._recover(error)
        refusal = unavailable(self._last_error or "the outcome is not known")
        for pending in waiting:
            if not pending.future.done():
                pending.answer(refusal)
        for read in reads:
            if not read.future.done():
                read.future.set_exception(PartitionUnavailable(refusal))

    async def _commit(self, waiting: list[Pending]) -> None:
        """Decide, append, apply and answer; or leave unanswered what must be told `unavailable`."""
        give_up_at = self._environment.monotonic() + give_up_seconds
        owed, voids = waiting, 0
        while True:
            if self._unsettled and not await self._settle(owed, give_up_at):
                return
            owed = [pending for pending in owed if not pending.future.done()]
            batch, outcomes = self._decide(owed)
            if not batch.records:
                if await self._is_fresh(owed):
                    _answer(outcomes)
                    return
                continue
            landed = await self._append(batch)
            if landed == batch.first_position:
                self._apply(batch)
                _answer(outcomes)
                return
            if landed is None and not self._unsettled:
                return
            if landed is not None:
                voids += 1
                await self._read_gap(owed)
            if voids >= voids_in_a_row_max or self._environment.monotonic() >= give_up_at:
                self._last_error = f"other writers defeated {voids} batches in a row"
                return
            if voids:
                await self._wait_after_void(voids)

    def _decide(self, owed: list[Pending]) -> tuple[Batch, list[tuple[Pending, Outcome]]]:
        batch = self._new_batch()
        outcomes: list[tuple[Pending, Outcome]] = []
        for index, pending in enumerate(owed):
            position = batch.next_position
            try:
                outcome = self._decide_one(batch, pending)
            except (LogCorrupt, LogUnavailable, ProjectionDamaged):
                raise
            except Exception:
                # A fault of ours met by one command: the batch may hold half of it, so it is made again without that
                # command.
                log.exception("partition %d: unexpected error while deciding", self.number)
                pending.answer(unavailable("the store failed on this command; it has written nothing"))
                return self._decide(owed[:index] + owed[index + 1 :])
            outcomes.append((pending, outcome))
            if batch.next_position > position:
                pending.decided[position] = outcome
        return batch, outcomes

    def _decide_one(self, batch: Batch, pending: Pending) -> Outcome:
        if pending.sequence is not None and pending.sequence.broken:
            return NOT_TRIED
        position = batch.next_position
        try:
            decided = decide(batch, pending.command, pending.elsewhere, pending.prepared)
            if not isinstance(decided, Decided):
                return decided
            batch.write(decided.drafts, pending.command_id)
        except KeysError as error:
            if batch.next_position != position:
                raise
            # One session is broken; the others go on.
            log.error("partition %d: %s", self.number, error)
            if pending.sequence is not None:
                pending.sequence.broken = True
            return unavailable(str(error))
        return decided.answer

    async def _append(self, batch: Batch) -> int | None:
        """Append; the offset where it landed, or None: refused, or – then `_unsettled` is set – not known."""
        self._environment.failpoint("partition.before_append")
        try:
            landed = await self._log.append(self.number, batch.first_position, batch.data)
        except OutcomeUnknown as error:
            self._last_error = str(error)
            self._unsettled = True
            return None
        except (AppendRefused, LogClosed) as error:
            self._last_error = str(error)
            return None
        self._environment.failpoint("partition.after_append")
        return landed

    def _apply(self, batch: Batch) -> None:
        self._projection.land(batch)
        self._environment.failpoint("partition.after_apply")
        for record in batch.records:
            if record.kind == Kind.SESSION_PURGED:
                self._purges.applied(self.number, record.session_id, record.position)
        if self._last_error and self._state is State.SERVING:
            self._last_error = ""

    async def _read_gap(self, owed: list[Pending]) -> None:
        """Read to the end, fold what counts, and answer what turns out to have been written."""
        by_id = {pending.command_id: pending for pending in owed}
        rule = self._projection.rule
        while entries := await self._log.read(self.number, rule.end, read_records_max):
            commands = rule.feed(entries)
            apply(self._projection.store, rule, commands)
            self._tell(commands, by_id)

    def _tell(self, commands: Iterable[CountedCommand], by_id: dict[bytes, Pending]) -> None:
        for command in commands:
            first = command.records[0]
            if first.kind == Kind.SESSION_PURGED:
                self._purges.applied(self.number, first.session_id, first.position)
            pending = by_id.get(command.command_id)
            if pending is not None and first.position in pending.decided:
                pending.answer(pending.decided[first.position])

    async def _is_fresh(self, owed: list[Pending]) -> bool:
        """True when the applied state reaches the end of the log, asked after every command here came."""
        if self._log.exclusive:
            return True
        if await self._log.end(self.number) == self._projection.rule.end:
            return True
        await self._read_gap(owed)
        return False

    async def _settle(self, owed: list[Pending], give_up_at: float) -> bool:
        """Find out what became of a lost batch; True once it counts or never can."""
        attempt = 0
        while self._environment.monotonic() < give_up_at:
            attempt += 1
            try:
                before = self._projection.rule.end
                await self._read_gap(owed)
                if self._projection.rule.end > before:
                    # Something stands at the lost batch's position: the batch itself, or what made it void.
                    self._unsettled = False
                    return True
                barrier = self._new_batch()
                barrier.barrier(self._environment.random_bytes(command_id_bytes))
                landed = await self._log.append(self.number, barrier.first_position, barrier.data)
            except (OutcomeUnknown, LogUnavailable, AppendRefused) as error:
                self._last_error = str(error)
            else:
                if landed == barrier.first_position:
                    self._apply(barrier)
                    self._unsettled = False
                    return True
            await self._wait_after_void(attempt)
        return False

    async def _wait_after_void(self, attempt: int) -> None:
        bound = min(void_wait_seconds_max, void_wait_seconds_first * 2**attempt)
        await self._environment.sleep(bound * self._environment.random_fraction())

    def _new_batch(self) -> Batch:
        return Batch(
            self.number,
            self._log.partitions,
            self._projection.view,
            self._projection.rule,
            self.opener,
            self._environment.wall_ms(),
        )

    def _answer_read(self, read: _Read) -> None:
        try:
            read.future.set_result(self.guarded(read.function, self.view))
        except PartitionUnavailable as error:
            read.future.set_exception(error)

    # -- when things break

    def _stop(self, error: Exception) -> None:
        """Stop for good: the log is damaged, and nothing may be answered past the damage."""
        self._set_state(State.STOPPED)
        self._last_error = str(error)
        log.critical("partition %d has stopped: %s", self.number, error)

    def _recover(self, error: Exception) -> None:
        """The projection cannot be trusted: throw it away and read the log again."""
        if self._state is not State.SERVING:
            return
        self._set_state(State.RECOVERING)
        self._last_error = str(error)
        log.error("partition %d: the projection is damaged and will be rebuilt: %s", self.number, error)
        self._wake.set()

    async def _reopen(self) -> None:
        try:
            await self._projection.reopen()
            await self._purges.sweep(self.number, self._projection.view)
            self._last_error = ""
            self._set_state(State.SERVING)
        except (LogCorrupt, HistoryBroken, FoldError) as error:
            self._stop(error)
        except (ProjectionDamaged, LogUnavailable, KeysError, OSError) as error:
            self._last_error = str(error)
            self._fail_all(self._not_serving())
            await self._environment.sleep(void_wait_seconds_max)

    def _fail_all(self, refusal: Refusal) -> None:
        self._queue.drain(refusal)
        reads, self._reads = self._reads, []
        for read in reads:
            if not read.future.done():
                read.future.set_exception(PartitionUnavailable(refusal))

    def _not_serving(self) -> Refusal:
        why = f": {self._last_error}" if self._last_error else ""
        return unavailable(f"partition {self.number} is {self._state.value}{why}")

    def _set_state(self, state: State) -> None:
        self._state = state


def _answer(outcomes: list[tuple[Pending, Outcome]]) -> None:
    for pending, outcome in outcomes:
        pending.answer(outcome)
