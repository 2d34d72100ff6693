"""The partition's writer: decides what waits, appends it as one batch, applies it and answers.

**No answer leaves before its batch has landed where it was decided for**, refusals and retries included: one decided
on a batch that turns out void is thrown away with it and decided again. What can happen to a batch:

- it landed at its position: commit the overlay, answer everyone;
- it landed elsewhere: it is void. Read the gap, decide again, after a random wait that grows, and give up
  after `voids_in_a_row_max` or `give_up_seconds`;
- nobody knows: never decide on a guess. Read to the end; if the batch is not there, append a barrier at
  its position. Once the barrier counts, the lost batch never can.

While reading, the writer may meet a record of a command that it still owes an answer: it gives the answer that was
decided with that record. Before each read, and in a turn after `compare_seconds`, it compares the last batch applied
with the log's: a log that was cut or written again since is `LogRewritten`. Its length alone does not tell: one that
was written on by another to just where it ended takes a batch at the expected offset, and the batch is void.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from engine.batch import Batch
from engine.decide import decide
from engine.decide.state import Decided
from engine.environment import Environment
from engine.keys.errors import KeysError
from engine.logs.interface import (
    AppendRefused,
    Log,
    LogClosed,
    LogCorrupt,
    LogUnavailable,
    LogUnreachable,
    OutcomeUnknown,
)
from engine.opener import Opener
from engine.pending import NOT_TRIED, CommandSequence, Outcome, Pending, unavailable
from engine.projection import LogRewritten, Projection
from engine.purges import Purges
from engine.watchers import Watchers
from projections.errors import ProjectionError
from projections.position_rule import CountedCommand
from projections.rebuild import apply
from schemas.log_record import LogRecord
from schemas.owners import purged_owner
from schemas.refusals import Refusal

log = logging.getLogger("runstore.partition")

voids_in_a_row_max: Final = 8
give_up_seconds: Final = 2.0
wait_seconds_first: Final = 0.005
wait_seconds_max: Final = 0.25
read_records_max: Final = 1000
compare_seconds: Final = 1.0
command_id_bytes: Final = 16

Outcomes = list[tuple[Pending, Outcome]]

_FAILED: Final = unavailable("the store failed on this command; it has written nothing")


class Writer:
    """The one who appends to a partition and changes its projection."""

    def __init__(
        self,
        number: int,
        the_log: Log,
        projection: Projection,
        opener: Opener,
        environment: Environment,
        purges: Purges,
        watchers: Watchers,
        *,
        strict_reads: bool = False,
    ) -> None:
        """`strict_reads`: what writes nothing is proved by a landed barrier, not by the end that the log tells."""
        self._number = number
        self._log = the_log
        self._projection = projection
        self._opener = opener
        self._environment = environment
        self._purges = purges
        self._watchers = watchers
        self._news: list[LogRecord] = []
        """What was read and applied, and its watchers have not been told of yet."""
        self._strict_reads = strict_reads
        self._keys_behind = False
        """True while others may have made keys that are not known here and sealed what has been applied."""
        self._lost_at: int | None = None
        """Where a batch was decided for whose outcome is unknown: nothing may be decided before it is settled."""
        self.last_error = ""
        self._compared_at = environment.monotonic()
        self._tried: dict[tuple[int, bytes], Outcomes] = {}
        """The answers decided with each batch of this turn, by the position and the command of its last record."""

    @property
    def unsettled(self) -> bool:
        """True while the outcome of a batch is unknown."""
        return self._lost_at is not None

    async def commit(self, waiting: list[Pending]) -> bool:
        """Decide, append, apply and answer; what is left without an answer must be told `unavailable`.

        True when the applied state is now at least as new as this call, so that reads may be answered from it.
        """
        give_up_at = self._environment.monotonic() + give_up_seconds
        self._tried.clear()
        owed, voids = waiting, 0
        end_asked: int | None = None
        await self._learn_keys()
        await self._compare_when_due()
        while True:
            if self.unsettled and not await self._settle(give_up_at):
                return False
            owed = [pending for pending in owed if not pending.future.done()]
            batch, outcomes = self._decide_turn(owed)
            if not batch.records:
                # Nothing to write: the answers are good once the applied state reaches the end that the log has now.
                if end_asked is None:
                    end_asked = self._projection.rule.end if self._log.exclusive else await self._end()
                if self._projection.rule.end >= end_asked:
                    _answer(outcomes)
                    return True
                await self._read_gap()
                if self._environment.monotonic() >= give_up_at:
                    return False
                continue
            last = batch.records[-1]
            self._tried[last.position, last.command_id] = outcomes
            landed = await self._append(batch)
            if landed == batch.first_position:
                self._apply(batch)
                _answer(outcomes)
                self._watchers.tell(batch.records)
                return True
            if landed is None and not self.unsettled:
                return False
            if landed is not None:
                voids += 1
                # Told another offset, the batch may count all the same, as one of several copies: it is as open as one
                # that nobody was told of.
                self._lost_at = batch.first_position
            if voids >= voids_in_a_row_max or self._environment.monotonic() >= give_up_at:
                self.last_error = f"other writers defeated {voids} batches in a row"
                return False
            if voids:
                await self._wait(voids)

    async def settle(self) -> None:
        """Settle a lost batch while nothing waits, so that what it holds – a purge, perhaps – takes effect."""
        give_up_at = self._environment.monotonic() + give_up_seconds
        if not await self._settle(give_up_at):
            await self._environment.sleep(wait_seconds_max)

    async def follow(self) -> bool:
        """Apply what others have appended, if anything, while nothing waits."""
        await self._learn_keys()
        if await self._end() > self._projection.rule.end:
            await self._read_gap()
        return True

    def _decide_turn(self, owed: list[Pending]) -> tuple[Batch, Outcomes]:
        """Decide in order; where that writes nothing and reads are strict, a barrier will prove that it is not old."""
        batch, outcomes = self._decide(owed)
        if self._strict_reads and not batch.records:
            batch.barrier(self._environment.random_bytes(command_id_bytes))
        return batch, outcomes

    def _decide(self, owed: list[Pending], failed: frozenset[Pending] = frozenset()) -> tuple[Batch, Outcomes]:
        """Decide in order; `failed` met a fault of ours before, and is not tried again."""
        batch = self._new_batch()
        outcomes: Outcomes = []
        broken: set[CommandSequence] = set()
        for pending in owed:
            sequence = pending.sequence
            if sequence is not None and (sequence.broken or sequence in broken):
                outcomes.append((pending, NOT_TRIED))
                continue
            try:
                outcome = _FAILED if pending in failed else self._decide_one(batch, pending)
            except (LogCorrupt, LogUnavailable, ProjectionError):
                raise
            except Exception:
                # A fault of ours met by one command: the batch may hold half of it, so it is made again without it.
                log.exception("partition %d: unexpected error while deciding", self._number)
                return self._decide(owed, failed | {pending})
            if sequence is not None and isinstance(outcome, Refusal) and outcome.temporary:
                # Only for the ones after it, and only in this batch: one that is void is decided anew.
                broken.add(sequence)
            outcomes.append((pending, outcome))
        return batch, outcomes

    def _decide_one(self, batch: Batch, pending: Pending) -> Outcome:
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
            log.error("partition %d: %s", self._number, error)
            return unavailable(str(error))
        return decided.answer

    async def _append(self, batch: Batch) -> int | None:
        """Append; the offset where it landed, or None: refused, or – then `unsettled` is set – not known."""
        self._environment.failpoint("partition.before_append")
        try:
            landed = await self._log.append(self._number, batch.first_position, batch.data, batch.run_ids)
        except OutcomeUnknown as error:
            self.last_error = str(error)
            self._lost_at = batch.first_position
            return None
        except (AppendRefused, LogClosed) as error:
            self.last_error = str(error)
            return None
        self._environment.failpoint("partition.after_append")
        return landed

    def _apply(self, batch: Batch) -> None:
        self._projection.land(batch)
        self._environment.failpoint("partition.after_apply")
        for record in batch.records:
            if owner := purged_owner(record):
                self._purges.applied(self._number, owner, record.position)
        self.last_error = ""

    async def _end(self) -> int:
        """The log's end. Raises `LogRewritten` where that lies before what was applied."""
        end = await self._log.end(self._number)
        if end < self._projection.rule.end:
            raise LogRewritten(self._number, end, self._projection.rule.end)
        self.last_error = ""  # The log answers.
        return end

    async def _compare_when_due(self) -> None:
        if not self._log.exclusive and self._environment.monotonic() >= self._compared_at + compare_seconds:
            await self._read_gap()

    async def _read_gap(self) -> None:
        """Read to the end, fold what counts, and answer what turns out to have been written."""
        await self._end()
        await self._projection.check_log()
        self._compared_at = self._environment.monotonic()
        rule = self._projection.rule
        while entries := await self._log.read(self._number, rule.end, read_records_max):
            rewrites = rule.rewrites_seen
            commands = rule.feed(entries)
            if rule.rewrites_seen > rewrites:
                # Which of the two histories counts is for the log to say, read from its start.
                raise LogRewritten(self._number, entries[0].offset, rule.applied().position)
            apply(self._projection.store, rule, commands)
            self._keys_behind = self._keys_behind or bool(commands)
            self._tell(commands)
        await self._learn_keys()

    async def _learn_keys(self) -> None:
        """Learn the keys that others have made before anything is opened: each was kept before a record named it."""
        if self._keys_behind:
            await self._opener.refresh()
            self._keys_behind = False
        # Not before: what they will read could not be opened.
        news, self._news = self._news, []
        self._watchers.tell(news)

    def _tell(self, commands: Iterable[CountedCommand]) -> None:
        """Give the answers that were decided with a batch of ours that counts, once all of it has been applied."""
        for command in commands:
            if self._watchers:
                self._news += command.records
            first, last = command.records[0], command.records[-1]
            if owner := purged_owner(first):
                self._purges.applied(self._number, owner, first.position)
            _answer(self._tried.get((last.position, last.command_id), []))

    async def _settle(self, give_up_at: float) -> bool:
        """Find out what became of a lost batch; True once it counts or never can."""
        attempt = 0
        while self._environment.monotonic() < give_up_at:
            attempt += 1
            try:
                await self._read_gap()
                if self._lost_at is None or self._projection.rule.end > self._lost_at:
                    # Something stands at the lost batch's position: the batch itself, or what made it void.
                    self._lost_at = None
                    return True
                barrier = self._new_batch()
                barrier.barrier(self._environment.random_bytes(command_id_bytes))
                landed = await self._log.append(self._number, barrier.first_position, barrier.data)
            except LogUnreachable as error:
                self.last_error = str(error)
                return False
            except (OutcomeUnknown, LogUnavailable, AppendRefused, KeysError) as error:
                self.last_error = str(error)
            else:
                if landed == barrier.first_position:
                    self._apply(barrier)
                    self._lost_at = None
                    return True
            await self._wait(attempt)
        return False

    async def _wait(self, attempt: int) -> None:
        bound = min(wait_seconds_max, wait_seconds_first * 2**attempt)
        await self._environment.sleep(bound * self._environment.random_fraction())

    def _new_batch(self) -> Batch:
        return Batch(
            self._number,
            self._log.partitions,
            self._projection.view,
            self._projection.rule,
            self._opener,
            self._environment.wall_ms(),
        )


def _answer(outcomes: Outcomes) -> None:
    for pending, outcome in outcomes:
        pending.answer(outcome)
