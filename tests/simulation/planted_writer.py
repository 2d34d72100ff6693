"""Faults in the partition's loop: how batches are decided, appended, settled and answered."""

from __future__ import annotations

from typing import Final

from tests.simulation.planting import Planted

_COMMIT: Final = "engine.writer:Writer.commit"
_APPEND: Final = "engine.writer:Writer._append"
_TELL: Final = "engine.writer:Writer._tell"
_READ_GAP: Final = "engine.writer:Writer._read_gap"
_SETTLE: Final = "engine.writer:Writer._settle"
_DECIDE_ONE: Final = "engine.writer:Writer._decide_one"

BATCHES: Final = (
    Planted(
        "answers-before-the-append-has-landed",
        "no answer leaves before its batch has landed where it was decided for",
        _COMMIT,
        "        landed = await self._append(batch)\n",
        "        _answer(outcomes)\n        landed = await self._append(batch)\n",
    ),
    Planted(
        "void-batch-applied",
        "a batch that landed elsewhere than it was decided for is void: its overlay is dropped",
        _COMMIT,
        "if landed == batch.first_position:",
        "if landed is not None:",
    ),
    Planted(
        "gap-not-read",
        "after a void batch the writer reads the gap before it decides again",
        _COMMIT,
        "            self._lost_at = batch.first_position\n",
        "            voids = voids\n",
    ),
    Planted(
        "gap-not-folded",
        "what counts in a gap is folded before anything is decided again",
        _READ_GAP,
        "apply(self._projection.store, rule, commands)",
        "apply(self._projection.store, rule, ())",
    ),
    Planted(
        "gap-answers-nobody",
        "a writer that meets a record of a command that it owes gives the answer decided with that record",
        _TELL,
        "_answer(self._tried.get((last.position, last.command_id), []))",
        "_answer([])",
    ),
    Planted(
        "answer-keeps-the-first-position",
        "an answer is the one decided with the batch that counts",
        _COMMIT,
        "        self._tried[last.position, last.command_id] = outcomes\n",
        "        outcomes = next(iter(self._tried.values()), outcomes)\n"
        "        self._tried[last.position, last.command_id] = outcomes\n",
    ),
    Planted(
        "new-command-id-at-each-decision",
        "a command's random ID is kept over re-decisions, so that its record is known again",
        _DECIDE_ONE,
        "batch.write(decided.drafts, pending.command_id)",
        "batch.write(decided.drafts, self._environment.random_bytes(command_id_bytes))",
        (
            (
                _COMMIT,
                "self._tried[last.position, last.command_id] = outcomes",
                "self._tried[last.position, outcomes[-1][0].command_id] = outcomes",
            ),
        ),
    ),
    Planted(
        "event-keys-of-the-same-batch-unseen",
        "the next command in the same batch sees what the one before it wrote",
        "engine.batch:Batch.event_position",
        "self.overlay.get(",
        "self.overlay._base.get(",
    ),
    Planted(
        "sessions-of-the-same-batch-unseen",
        "the next command in the same batch sees what the one before it wrote",
        "engine.batch:Batch.session",
        "self.overlay.session(",
        "self.overlay._base.session(",
    ),
    Planted(
        "runs-of-the-same-batch-unseen",
        "the next command in the same batch sees what the one before it wrote",
        "engine.batch:Batch.run",
        "self.overlay.run(",
        "self.overlay._base.run(",
    ),
    Planted(
        "every-record-ends-its-command",
        "`last` marks a command's last record alone",
        "engine.batch:Batch.write",
        "last=index == last",
        "last=True",
    ),
    Planted(
        "appended-at-runs-backwards",
        "appended_at is never earlier than the one before it in the partition",
        "engine.batch:Batch.__init__",
        "max(rule.appended_at, wall_ms)",
        "wall_ms",
    ),
    Planted(
        "queue-taken-newest-first",
        "commands of one caller take effect in the order given",
        "engine.pending:Queue.take",
        "pending = self._waiting.popleft()",
        "pending = self._waiting.pop()",
    ),
    Planted(
        "tried-after-an-unavailable-one",
        "after one command of a sequence is unavailable, the later ones are not tried",
        "engine.pending:Pending.answer",
        "    if self.sequence is not None and isinstance(outcome, Refusal) and outcome.temporary:\n"
        "        self.sequence.broken = True\n",
        "",
        (
            (
                "engine.store:Store.execute",
                (
                    "    if sequence is not None and isinstance(outcome, Refusal) and outcome.temporary:\n"
                    "        sequence.broken = True\n"
                ),
                "",
            ),
        ),
    ),
    Planted(
        "not-tried-after-any-refusal",
        "after a refusal that is not unavailable, the later commands of a sequence go on",
        "engine.pending:Pending.answer",
        " and outcome.temporary:",
        ":",
    ),
)

OUTCOMES: Final = (
    Planted(
        "unknown-outcome-taken-as-landed",
        "an unknown outcome is never guessed at",
        _APPEND,
        "        self._lost_at = batch.first_position\n        return None\n",
        "        return batch.first_position\n",
    ),
    Planted(
        "unknown-outcome-taken-as-lost",
        "an unknown outcome is never guessed at",
        _APPEND,
        "        self._lost_at = batch.first_position\n",
        "",
    ),
    Planted(
        "no-barrier-after-an-unknown-outcome",
        "a lost batch that is not in the log is made void by a barrier at its position",
        _SETTLE,
        "            barrier = self._new_batch()\n",
        "            self._lost_at = None\n            return True\n            barrier = self._new_batch()\n",
    ),
    Planted(
        "barrier-elsewhere-taken-for-settled",
        "a lost batch is void once the barrier counts, which it does at its own position alone",
        _SETTLE,
        "if landed == barrier.first_position:",
        "if landed is not None:",
    ),
    Planted(
        "lost-batch-settled-only-by-the-next-command",
        "a lost batch is settled while nothing waits, so that a purge in it takes effect",
        "engine.partition:Partition._run",
        "elif self._writer.unsettled and self._state is State.SERVING:",
        "elif self._writer.unsettled and self._state is State.STARTING:",
    ),
    Planted(
        "refused-append-answered",
        "a batch that is not in the log is answered unavailable",
        _APPEND,
        "    except (AppendRefused, LogClosed) as error:\n        self.last_error = str(error)\n        return None\n",
        "    except (AppendRefused, LogClosed) as error:\n"
        "        self.last_error = str(error)\n"
        "        return batch.first_position\n",
    ),
)

FRESHNESS: Final = (
    Planted(
        "zombie-answers-without-asking-the-end",
        "an answer that writes nothing leaves once the applied position is the end asked after the command came",
        _COMMIT,
        "self._projection.rule.end if self._log.exclusive else await self._end()",
        "self._projection.rule.end",
    ),
    Planted(
        "end-asked-and-not-waited-for",
        "an answer that writes nothing leaves once the applied position is the end asked after the command came",
        _COMMIT,
        "if self._projection.rule.end >= end_asked:",
        "if self._projection.rule.end >= end_asked - 1:",
    ),
    Planted(
        "reads-answered-without-proof",
        "a read is evaluated on a state at least as new as its call",
        "engine.partition:Partition.read",
        "if self._log.exclusive:",
        "if self._log.exclusive or self._state is State.SERVING:",
    ),
    Planted(
        "reads-answered-after-a-failed-turn",
        "no read is answered by a process that is cut off from the log",
        "engine.partition:Partition._turn",
        "if await self._guarded(self._writer.commit(waiting)):",
        "if await self._guarded(self._writer.commit(waiting)) or self._state is State.SERVING:",
    ),
    Planted(
        "serving-before-caught-up",
        "a partition answers no command before it has applied the end that it found at start",
        "engine.projection:Projection.reopen",
        "            await catch_up(self._log, self._partition, self.store, rule, pause=self._pause)\n",
        "",
        (
            (
                "engine.projection:Projection._rebuild_now",
                "await catch_up(self._log, self._partition, new, rule, progress=progress, pause=self._pause)",
                "del progress",
            ),
        ),
    ),
    Planted(
        "cut-log-not-noticed",
        "a log that was cut below what was applied is noticed at the start of each gap read",
        _READ_GAP,
        "    await self._end()\n    await self._projection.check_log()\n",
        "",
        (("engine.writer:Writer._end", "if end < self._projection.rule.end:", "if end < 0:"),),
    ),
)
