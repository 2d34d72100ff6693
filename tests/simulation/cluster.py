"""The cluster of one simulation: its processes, its log and its judge, and how a command is sent and the story told."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from engine.logs.simulated import SimulatedLogStorage
from schemas.log_record import decode
from tests.contract.builders import Command
from tests.simulation import story
from tests.simulation.commands import Commands
from tests.simulation.history import Violation
from tests.simulation.judge import UNKNOWN, Call, Judge
from tests.simulation.keys import KeyDisk
from tests.simulation.process import Files, Process
from tests.simulation.scenario import Scenario
from tests.simulation.virtual_time import START_MS

CLOCK_LATE_MS_MAX: Final = 30_000
"""How long a batch may travel before it lands."""


class SimulatedCluster:
    """Processes over one log and one disk of keys, all that was asked of them, and what came of it."""

    def __init__(self, scenario: Scenario, tell: Callable[[str], None] | None) -> None:
        self.scenario = scenario
        self.random = random.Random(f"simulation {scenario.seed}")
        self._tell = tell
        self._hash = hashlib.sha256()
        self._keys = KeyDisk()
        self.judge = Judge(scenario.partitions, self._keys)
        self.storage = SimulatedLogStorage(scenario.partitions)
        self.storage.on_land = self._landed
        self._positions = judge_positions(self.judge)
        self.commands = Commands(scenario, self.judge, random.Random(f"commands {scenario.seed}"))
        self.slots: list[Process] = []
        self._started = 0
        self.left = scenario.commands
        """How many commands callers still send."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self.held = False
        """True while callers send nothing."""
        self.over = False
        """True once nothing goes wrong any more."""
        self.was_cut = False
        self.ghost: tuple[int, list[bytes]] = (0, [])
        """Where the log was cut, and what it lost there and may get again."""
        self._problem: BaseException | None = None
        self.reads = self.writes = 0
        self.jumps = {0}
        """By how much any clock was ever ahead, milliseconds."""

    def take(self, count: int) -> None:
        """Count commands that a caller is about to send."""
        self.left -= count
        sent = self.scenario.commands - self.left
        self.judge.last_commands = self.left < self.scenario.commands // 8
        for moment, future in self._waiting:
            if moment <= sent and not future.done():
                future.set_result(None)
        self._waiting = [(moment, future) for moment, future in self._waiting if moment > sent]

    async def until_sent(self, moment: int) -> None:
        """Wait until so many commands have been sent."""
        if self.scenario.commands - self.left < moment:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((moment, future))
            await future

    async def boot(self) -> None:
        """Start the processes, one after the other: a store is made by the first of them."""
        self.note("scenario", self.scenario, shown=story.of_scenario(self.scenario))
        for number in range(self.scenario.processes):
            self.slots.append(self.start(f"p{number}", Files(self._positions)))
            await self.slots[-1].booted()

    def _applied_ends(self) -> set[int]:
        """Up to where any process has applied commands of the first partition, or will have after a crash."""
        return {end for process in self.slots for end in process.files.applied_ends(0)}

    def reachable(self, source: random.Random) -> Process | None:
        serving = [process for process in self.slots if process.serves]
        return source.choice(serving) if serving else None

    async def send(self, process: Process, command: Command) -> object:
        call = self.judge.begin(command, applied=process.applied())
        self.note("call", call.number, process.name, *command, shown=_call(call, process))
        answer = await process.call(command)
        self._answered(call, answer)
        return answer

    async def send_in_order(self, process: Process, commands: Sequence[Command]) -> None:
        calls: list[Call] = []
        for command in commands:
            calls.append(self.judge.begin(command, calls[-1] if calls else None, process.applied()))
            self.note("call", calls[-1].number, process.name, *command, shown=f"{_call(calls[-1], process)} (in order)")
        answers = await process.call_in_order(list(commands))
        broken = False
        for call, answer in zip(calls, answers, strict=True):
            self._answered(call, answer)
            if broken and answer not in (UNKNOWN, "invalid_command"):
                raise Violation(f"{call} was answered {answer} after one of its batch was unavailable")
            broken = broken or answer == UNKNOWN

    def _answered(self, call: Call, answer: object) -> None:
        self.note("answer", call.number, answer, shown=f"{call.number}: {story.of_answer(answer)}")
        if call.content is None:
            self.reads += 1
        else:
            self.writes += 1
        self.raise_problem()
        self.judge.end(call, answer)
        self.commands.note(call, answer)
        if answer == UNKNOWN and self.scenario.calm:
            raise Violation(f"{call} was unavailable, and nothing went wrong")

    def _landed(self, partition: int, offset: int, batch: Sequence[bytes]) -> None:
        self._check_clocks(batch)
        taken = "?"
        try:
            taken = self.judge.landed(partition, offset, batch)
        except Exception as error:  # noqa: BLE001 # not the store's to catch: it is told where the story is told
            self._problem = self._problem or error
        last = offset + len(batch) - 1
        where = f"partition {partition} at {offset}" + (f" to {last}" if last > offset else "")
        bytes_landed = hashlib.sha256(b"".join(batch)).hexdigest()
        self.note("landed", partition, offset, bytes_landed, shown=f"{where}: {taken}")
        self._haunt()

    def _check_clocks(self, batch: Sequence[bytes]) -> None:
        """A record was appended at a time that some process's clock told not long ago."""
        if self.was_cut:
            return
        now = START_MS + int(asyncio.get_running_loop().time() * 1000)
        for at in sorted({decode(data).appended_at for data in batch}):
            if not now + min(self.jumps) - CLOCK_LATE_MS_MAX <= at <= now + max(self.jumps):
                self._problem = self._problem or Violation(f"appended_at is {at}, and no clock says so at {now}")

    def _haunt(self) -> None:
        """A batch that was cut away comes again, by a leader that was deposed, where its own offset is the next."""
        cut, lost = self.ghost
        for start in range(1, len(lost)):
            record = decode(lost[start])
            if record.prev and record.position == self.storage.end(0) and self.storage.end(0) > cut:
                end = start + 1
                while end < len(lost) and not decode(lost[end]).prev:
                    end += 1
                if record.position + end - start in self._applied_ends():
                    # Who has applied exactly up to it takes it for the one that it applied, until the next batch.
                    continue
                self.ghost = (0, [])
                self.note("ghost", record.position)
                self.storage.land(0, lost[start:end])
                return

    async def restart(self, slot: int) -> None:
        old = self.slots[slot]
        if old.alive:
            return
        if self.scenario.exclusive:
            self.storage.drop_travelling()
            await self.storage.settle()
        old.files.crash(self.random)
        self.slots[slot] = process = self.start(old.name, old.files)
        self.note("start", process.name, old.end)
        await process.booted()

    def start(self, name: str, files: Files) -> Process:
        self._started += 1
        seed = self.scenario.seed * 1000 + self._started
        process = Process(name, self.scenario, self.storage, self._keys, files, seed, partial(self.note, "fault"))
        if self.over:
            quiet(process)
        return process

    def raise_problem(self) -> None:
        problem = self._problem or self.judge.problem
        if problem is not None:
            raise problem

    def note(self, what: str, *details: object, shown: str | None = None) -> None:
        """Add to the trace; `shown` is what a person is told in place of the details."""
        at = f"{asyncio.get_running_loop().time():10.4f} {what}"
        self._hash.update(f"{at} {' '.join(map(str, details))}\n".encode())
        if self._tell is not None:
            self._tell(f"{at} {' '.join(map(str, details)) if shown is None else shown}")

    @property
    def trace(self) -> str:
        """The SHA-256 of the trace so far."""
        return self._hash.hexdigest()


def _call(call: Call, process: Process) -> str:
    return f"{call.number} to {process.name}: {story.of_command(call.command)}"


def judge_positions(judge: Judge) -> Callable[[int, int], None]:
    """What a projection tells of each position that it has applied: never one inside a command."""

    def applied(partition: int, position: int) -> None:
        if judge.is_inside_command(partition, position):
            judge.problem = Violation(f"partition {partition}: half a command is applied, up to {position}")

    return applied


def quiet(process: Process) -> None:
    """Let nothing go wrong in a process from now on."""
    process.faults.over = True
    process.faults.down = False
    process.key_faults.rate = process.key_faults.purge_rate = 0.0
    process.environment.failpoint_rate = 0.0
