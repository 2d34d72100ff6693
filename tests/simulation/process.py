"""A process of the simulated cluster: a whole store on a host that can die or sleep between any two of its steps."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from engine.keys import KeysError
from engine.logs.interface import LogError
from engine.logs.simulated import SimulatedLog, SimulatedLogStorage
from engine.opening import assemble
from engine.pending import QueueLimits
from engine.projection import MemoryFiles
from engine.store import Store
from projections.rows import Applied
from projections.view import MemoryView, Overlay
from schemas.refusals import Refusal, Refused
from service import render
from service.methods import call
from tests.contract.builders import Command
from tests.engine.scene import parsed
from tests.simulation.history import Violation
from tests.simulation.judge import UNKNOWN
from tests.simulation.keys import KeyDisk, KeyFaults, SimulatedKeyStore
from tests.simulation.scenario import Scenario, ScenarioFaults
from tests.simulation.virtual_time import Host, VirtualEnvironment, VirtualLoop

answer_seconds_max: Final = 150.0
"""How long a caller waits at most, where nobody slept; a store that takes longer has stalled.

Where every other read takes up to three seconds, a start in another partition than its ID's may take a minute.
"""

patience_seconds: Final = 6.0
"""How long a caller waits for a process that sleeps."""


class HostDied(BaseException):
    """Raised where a host dies in the middle of a step, so that the step goes no further."""


class ProcessEnvironment(VirtualEnvironment):
    """The environment of one process: its own clock, and failpoints at which it may die."""

    def __init__(self, process: Process, seed: int, failpoint_rate: float) -> None:
        super().__init__(seed)
        self._process = process
        self._source = random.Random(f"failpoints {seed}")
        self.failpoint_rate = failpoint_rate

    def failpoint(self, name: str) -> None:
        if self.failpoint_rate and self._source.random() < self.failpoint_rate:
            self._process.kill(f"at {name}")
            raise HostDied(name)


class WatchedView(MemoryView):
    """A projection in memory that tells of each position that it has applied."""

    def __init__(self, applied: Callable[[int], None]) -> None:
        super().__init__()
        self._tell = applied

    def commit(self, overlay: Overlay, applied: Applied) -> None:
        super().commit(overlay, applied)
        self._tell(applied.position)


class WatchedFiles(MemoryFiles):
    """One partition's projections, each watched."""

    def __init__(self, applied: Callable[[int], None]) -> None:
        super().__init__()
        self._applied = applied

    def make_new(self) -> WatchedView:
        return WatchedView(self._applied)


class Files:
    """A process's projections, on a disk that outlives it; `applied` is told of each partition and position."""

    def __init__(self, applied: Callable[[int, int], None]) -> None:
        self._applied = applied
        self.current: dict[int, MemoryFiles] = {}
        self._older: dict[int, MemoryView] = {}

    def of(self, partition: int) -> MemoryFiles:
        if partition not in self.current:
            self.current[partition] = self._made(partition)
        return self.current[partition]

    def _made(self, partition: int) -> MemoryFiles:
        return WatchedFiles(partial(self._applied, partition))

    def applied_ends(self, partition: int) -> set[int]:
        """Up to where the projection of a partition has applied commands, and the one that a crash may go back to."""
        views = (self.of(partition).open_current(), self._older.get(partition))
        return {view.applied().batch_end for view in views if view is not None}

    def remember(self) -> None:
        """Keep what a crash may go back to: rows that were written and not yet synced can be lost, the newest first."""
        for partition, files in self.current.items():
            view = files.open_current()
            if isinstance(view, MemoryView):
                self._older[partition] = view.copy()

    def crash(self, source: random.Random) -> None:
        """Lose what a crash can lose: nothing, what came after `remember`, or the whole folder."""
        for partition in self.current:
            fate = source.random()
            if fate < 0.15:
                self.current[partition] = self._made(partition)
            elif fate < 0.4 and partition in self._older:
                self.current[partition] = files = self._made(partition)
                files.adopt(self._older[partition].copy())


class Process:
    """One process, from its start to its end. A restart is another process on the same files."""

    def __init__(
        self,
        name: str,
        scenario: Scenario,
        storage: SimulatedLogStorage,
        keys: KeyDisk,
        files: Files,
        seed: int,
        tell: Callable[[str, str], None],
    ) -> None:
        """`tell` is given the name and each fault that the process meets."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.name = name
        self.files = files
        self.host = Host(loop)
        self.environment = ProcessEnvironment(self, seed, scenario.failpoint_rate)
        mine = partial(tell, name)
        self.faults = ScenarioFaults(scenario, random.Random(f"log {seed}"), mine)
        self.key_faults = KeyFaults(
            scenario.key_fault_rate, scenario.purge_fault_rate, scenario.key_delay_seconds_max, mine
        )
        self.keys = SimulatedKeyStore(self.environment, keys, self.key_faults, random.Random(f"keys {seed}"))
        self.log = SimulatedLog(
            storage.partitions, self.environment, self.faults, exclusive=scenario.exclusive, storage=storage
        )
        self.store: Store | None = None
        self.slept = False
        self.end = ""
        self._waiting: dict[asyncio.Future[object], None] = {}
        self._limits = QueueLimits(batch_commands_max=random.Random(f"limits {seed}").choice((1, 3, 512)))
        self._boot = self.host.spawn(self._start())

    @property
    def alive(self) -> bool:
        return not self.host.dead

    @property
    def serves(self) -> bool:
        """True when callers can reach it, asleep or not."""
        return self.alive and self.store is not None

    def applied(self) -> list[int]:
        """The end that it has applied of each partition, if the log is its own."""
        if not self.log.exclusive or self.store is None:
            return []
        return [partition.projection.rule.end for partition in self.store.partitions]

    async def booted(self) -> None:
        """Wait until it has started, or is dead."""
        while self.alive and self.store is None:
            if self._boot.done():
                await self._boot
            await asyncio.sleep(0.05)

    def kill(self, why: str = "") -> None:
        """Die where it stands; who waits for an answer gets none."""
        self.end = why
        self.host.kill()
        for outcome in self._waiting:
            if not outcome.done():
                outcome.set_result(UNKNOWN)
        self._waiting.clear()

    def pause(self) -> None:
        self.slept = True
        self.host.pause()

    async def call(self, command: Command) -> object:
        """What a caller is told: a result, the code of a refusal, or `UNKNOWN` where it is told nothing."""
        return await self.ask(self._do(command))

    async def call_in_order(self, commands: list[Command]) -> list[object]:
        """The same for a batch."""
        found = await self.ask(self._do_in_order(commands))
        return [UNKNOWN] * len(commands) if found == UNKNOWN else list(found)

    async def ask(self, work: Any) -> Any:
        """Let it do something, and wait for what comes of it."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[object] = loop.create_future()
        task = self.host.spawn(work)
        task.add_done_callback(lambda done: _deliver(done, outcome))
        self._waiting[outcome] = None
        seconds = patience_seconds if self.slept else answer_seconds_max
        await asyncio.wait([outcome], timeout=seconds)
        self._waiting.pop(outcome, None)
        if outcome.done():
            return outcome.result()
        if not self.slept and self.alive:
            raise Violation(f"{self.name} has not answered in {answer_seconds_max} seconds")
        return UNKNOWN

    async def _start(self) -> None:
        try:
            self.store = await assemble(
                self.log,
                self.keys,
                self.files.of,
                self.environment,
                self._limits,
                log_kind="simulated",
                release=self.log.close,
            )
        except (KeysError, LogError) as error:
            self.kill(f"it could not start: {error}")

    async def _do(self, command: Command) -> object:
        assert self.store is not None
        try:
            return await call(self.store, command.method, command.args)
        except Refused as refused:
            return refused.refusal.code.value

    async def _do_in_order(self, commands: Sequence[Command]) -> list[object]:
        assert self.store is not None
        done = await self.store.execute_in_order(parsed(*commands))
        return [each.code.value if isinstance(each, Refusal) else render.answer(each) for each in done]


def _deliver(done: asyncio.Task[Any], outcome: asyncio.Future[Any]) -> None:
    if outcome.done():
        return
    error = done.exception()
    if error is None:
        outcome.set_result(done.result())
    elif not isinstance(error, HostDied):
        outcome.set_exception(error)
