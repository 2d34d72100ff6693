"""One seed's bad day: processes, callers and weather over one log, judged from the first command to the last."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.logs.simulated import SimulatedLogStorage
from schemas.log_record import decode
from projections.digest import digest
from projections.rebuild import verify
from projections.view import MemoryView
from schemas.refusals import Refusal
from service import render
from tests.contract.builders import Command
from tests.model.reference import counts
from tests.simulation.commands import Commands
from tests.simulation.history import Violation
from tests.simulation.judge import UNKNOWN, Call, Judge
from tests.simulation.keys import KeyDisk
from tests.simulation.process import Files, Process
from tests.simulation.scenario import Scenario, scenario_of
from tests.simulation.virtual_time import VirtualLoop

calm_seconds_max: Final = 60.0
"""How long, once nothing goes wrong any more, the cluster may take until every partition serves, and each command is answered."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a seed. `trace` is the SHA-256 of everything that happened; `failure` is empty if all was well."""

    seed: int
    commands: int
    reads: int
    trace: str
    failure: str


class Simulation:
    """One seed."""

    def __init__(self, scenario: Scenario, tell: Callable[[str], None] | None) -> None:
        self.scenario = scenario
        self._tell = tell
        self._hash = hashlib.sha256()
        self._random = random.Random(f"simulation {scenario.seed}")
        self._keys = KeyDisk()
        self.judge = Judge(scenario.partitions, self._keys)
        self._storage = SimulatedLogStorage(scenario.partitions)
        self._storage.on_land = self._landed
        self._commands = Commands(scenario, self.judge, random.Random(f"commands {scenario.seed}"))
        self._slots: list[Process] = []
        self._started = 0
        self._left = scenario.commands
        self._held = False
        self._over = False
        self._problem: BaseException | None = None
        self._was_cut = False
        self._ghost: tuple[int, list[bytes]] = (0, [])
        self.reads = self.writes = 0

    # -- the story

    async def run(self) -> None:
        """Let everything happen, then let it calm down, then look at everything."""
        scenario = self.scenario
        self.note("scenario", scenario)
        for number in range(scenario.processes):
            self._slots.append(self._start(f"p{number}", Files()))
            # One after the other: a store is made by the first of its processes.
            await self._slots[-1].booted()
        work = [self._caller(number) for number in range(scenario.clients)]
        weather = [self._weather(change, times) for change, times in self._changes() if times]
        await self._all(work, weather)
        await self._calm()
        await self._look()
        self.judge.finish()

    async def _all(self, work: Sequence[Coroutine[Any, Any, None]], weather: Sequence[Coroutine[Any, Any, None]]) -> None:
        tasks = [asyncio.ensure_future(each) for each in work]
        others = [asyncio.ensure_future(each) for each in weather]
        try:
            while any(not task.done() for task in tasks):
                done, _ = await asyncio.wait(
                    [task for task in [*tasks, *others] if not task.done()], return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    task.result()
                self._raise()
        finally:
            self._over = True
            for task in [*tasks, *others]:
                task.cancel()
            await asyncio.gather(*tasks, *others, return_exceptions=True)
        self._raise()

    def _raise(self) -> None:
        problem = self._problem or self.judge.problem
        if problem is not None:
            raise problem

    # -- callers

    async def _caller(self, number: int) -> None:
        source = random.Random(f"caller {self.scenario.seed} {number}")
        while self._left > 0:
            await asyncio.sleep(source.random() * self.scenario.think_seconds_max)
            while self._held:
                await asyncio.sleep(0.05)
            process = self._reachable(source)
            if process is None:
                await asyncio.sleep(0.1)
                continue
            if self.scenario.batches and source.random() < 0.1:
                commands = self._commands.batch()
                self._left -= len(commands)
                await self._send_in_order(process, commands)
            else:
                self._left -= 1
                await self._send(process, self._commands.next())

    def _reachable(self, source: random.Random) -> Process | None:
        serving = [process for process in self._slots if process.serves]
        return source.choice(serving) if serving else None

    async def _send(self, process: Process, command: Command) -> object:
        call = self.judge.begin(command, applied=process.applied())
        self.note("call", call.number, process.name, *command)
        answer = await process.call(command)
        self._answered(call, answer)
        return answer

    async def _send_in_order(self, process: Process, commands: Sequence[Command]) -> None:
        calls: list[Call] = []
        for command in commands:
            calls.append(self.judge.begin(command, calls[-1] if calls else None, process.applied()))
            self.note("call", calls[-1].number, process.name, "in order", *command)
        answers = await process.call_in_order(list(commands))
        broken = False
        for call, answer in zip(calls, answers, strict=True):
            self._answered(call, answer)
            if broken and answer not in (UNKNOWN, "invalid_command"):
                raise Violation(f"{call} was answered {answer} after one of its batch was unavailable")
            broken = broken or answer == UNKNOWN

    def _answered(self, call: Call, answer: object) -> None:
        self.note("answer", call.number, answer)
        if call.content is None:
            self.reads += 1
        else:
            self.writes += 1
        self._raise()
        self.judge.end(call, answer)
        self._commands.note(call, answer)
        if answer == UNKNOWN and self.scenario.calm:
            raise Violation(f"{call} was unavailable, and nothing went wrong")

    # -- the log

    def _landed(self, partition: int, offset: int, batch: Sequence[bytes]) -> None:
        self.note("landed", partition, offset, len(batch), hashlib.sha256(b"".join(batch)).hexdigest()[:16])
        try:
            self.judge.landed(partition, offset, batch)
        except Exception as error:  # noqa: BLE001 # not the store's to catch: it is told where the story is told
            self._problem = self._problem or error
        self._haunt()

    def _haunt(self) -> None:
        """A batch that was cut away comes again, by a leader that was deposed, where its own offset is the next."""
        cut, lost = self._ghost
        for start in range(1, len(lost)):
            record = decode(lost[start])
            if record.prev and record.position == self._storage.end(0) and self._storage.end(0) > cut:
                end = start + 1
                while end < len(lost) and not decode(lost[end]).prev:
                    end += 1
                self._ghost = (0, [])
                self.note("ghost", record.position)
                self._storage.land(0, lost[start:end])
                return

    # -- weather

    def _changes(self) -> list[tuple[Callable[[], Coroutine[Any, Any, None]], int]]:
        scenario = self.scenario
        return [
            (self._crash, scenario.crashes),
            (self._sleep, scenario.pauses),
            (self._jump, scenario.clock_jumps),
            (self._rebuild, scenario.rebuilds),
            (self._verify, 4 if "split" in scenario.read_faults else 1),
            (self._cut, scenario.cuts),
            (self._revive, 1_000_000 if scenario.failpoint_rate or scenario.key_fault_rate else 0),
        ]

    async def _weather(self, change: Callable[[], Coroutine[Any, Any, None]], times: int) -> None:
        total = self.scenario.commands
        moments = sorted(self._random.randrange(total) for _ in range(min(times, 10)))
        if times > total:
            while True:
                await asyncio.sleep(0.2)
                await change()
        for moment in moments:
            while total - self._left < moment:
                await asyncio.sleep(0.001 + self._random.random() * self.scenario.think_seconds_max)
            await change()

    async def _crash(self) -> None:
        await asyncio.sleep(self._random.random() * 0.01)
        slot = self._random.randrange(len(self._slots))
        process = self._slots[slot]
        if self._random.random() < 0.5:
            process.files.remember()
            await asyncio.sleep(self._random.random() * 0.1)
        if process.alive:
            process.kill("crashed")
            self.note("crash", process.name)
        self._check_positions(process)
        await asyncio.sleep(self._random.random() * 0.5)
        await self._restart(slot)

    async def _sleep(self) -> None:
        await asyncio.sleep(self._random.random() * 0.01)
        process = self._random.choice(self._slots)
        if not process.alive or process.host.paused:
            return
        process.pause()
        self.note("asleep", process.name)
        await asyncio.sleep(self._random.choice((0.05, 0.5, 5.0)) * self._random.random())
        process.host.resume()
        self.note("awake", process.name)

    async def _jump(self) -> None:
        process = self._random.choice(self._slots)
        process.environment.jump_ms += self._random.choice((-86_400_000, -1000, -1, 1, 1000, 86_400_000))
        self.note("clock", process.name, process.environment.jump_ms)

    async def _rebuild(self) -> None:
        process = self._random.choice(self._slots)
        if process.serves and process.store is not None:
            self.note("rebuild", process.name)
            await process.ask(process.store.start_rebuild())

    async def _verify(self) -> None:
        process = self._random.choice(self._slots)
        if process.serves and process.store is not None and not process.host.paused:
            for partition in process.store.partitions:
                if process.alive and partition.ready and not self._was_cut:
                    await self._compare(process, partition.number)

    async def _revive(self) -> None:
        """Start again what died by itself, and what says that it must be started again."""
        for slot, process in enumerate(self._slots):
            if process.alive and process.keys.failed and not process.host.paused:
                process.kill("its key store failed")
                self.note("stopped", process.name)
            if not process.alive and not self._held:
                await self._restart(slot)

    async def _cut(self) -> None:
        """The log forgets its end, as one does that was configured to, while a process sleeps; others write on."""
        self._held = True
        while self.judge.open_calls():
            await asyncio.sleep(0.05)
        await self._storage.settle()
        purged = [landing.position for landing in self.judge.landings if landing.method == "purge_session"]
        ends = [end for end in [0, *self.judge.histories[0].ends()] if end > max(purged, default=-1)]
        if len(ends) > 1:
            end = self._random.choice(ends[:-1])
            log_end = self._storage.end(0)
            self.note("cut", end, log_end)
            self._was_cut = True
            lost = [entry.data for entry in self._storage.entries(0, end)]
            self._storage.truncate(0, end)
            self.judge.cut(0, end)
            self._commands.cursors.clear()
            self._ghost = (end, lost[: self._random.randint(0, len(lost))])
            slot = self._random.randrange(len(self._slots))
            restarts = self._random.random() < 0.5 and self._slots[slot].alive
            if restarts:
                self._slots[slot].kill("while the log was cut")
            await asyncio.sleep(1.5)
            self._held = False
            if restarts:
                await asyncio.sleep(self._random.random() * 10 * self.scenario.think_seconds_max)
                await self._restart(slot)
        self._held = False

    async def _restart(self, slot: int) -> None:
        old = self._slots[slot]
        if old.alive:
            return
        if self.scenario.exclusive:
            self._storage.drop_travelling()
            await self._storage.settle()
        old.files.crash(self._random)
        self._slots[slot] = process = self._start(old.name, old.files)
        self.note("start", process.name, old.end)
        await process.booted()

    def _start(self, name: str, files: Files) -> Process:
        self._started += 1
        seed = self.scenario.seed * 1000 + self._started
        process = Process(name, self.scenario, self._storage, self._keys, files, seed)
        if self._over:
            _quiet(process)
        return process

    # -- the end

    async def _calm(self) -> None:
        """Let nothing go wrong any more, and wait until everything serves."""
        self._over = True
        for process in self._slots:
            _quiet(process)
            if process.host.paused:
                process.host.resume()
            if process.keys.failed or self._random.random() < 0.4:
                process.kill("to start again in the calm")
                self._check_positions(process)
        await self._storage.settle()
        deadline = asyncio.get_running_loop().time() + calm_seconds_max
        for slot in range(len(self._slots)):
            await self._restart(slot)
        while not all(process.store is not None and process.store.ready() for process in self._slots):
            await asyncio.sleep(0.1)
            if asyncio.get_running_loop().time() > deadline:
                states = [await process.ask(process.store.status()) for process in self._slots if process.store]
                raise Violation(f"not everything serves after {calm_seconds_max} calm seconds: {states}")
        for process in self._slots:
            process.slept = False
        # Time to settle what was lost and to finish purges, with nobody asking.
        await asyncio.sleep(5)
        self.note("calm")
        self._raise()
        self.judge.check_keys()
        for process in self._slots:
            assert process.store is not None
            kept = process.store._sealer._ciphers.keys()
            if not self.judge.purged_keys().isdisjoint(kept):
                raise Violation(f"{process.name} has the key of a purged session at hand")

    async def _look(self) -> None:
        """Settle every open outcome by repeating the call, then read everything everywhere, and compare."""
        for call in [call for call in self.judge.calls if call.content is not None and call.answer == UNKNOWN]:
            await self._surely(self._random.choice(self._slots), call.command)
        process = self._random.choice(self._slots)
        for command in self._reads():
            await self._surely(process, command)
        await self._check_views(process)
        for process in self._slots:
            for partition in range(self.scenario.partitions):
                await self._surely(process, Command("load_session_status", {"session_id": f"session-{partition}"}))
        positions: dict[int, set[tuple[int, str]]] = {}
        for process in self._slots:
            for partition in range(self.scenario.partitions):
                positions.setdefault(partition, set()).add(await self._compare(process, partition))
        self._raise()

    async def _surely(self, process: Process, command: Command) -> object:
        """Send a command until it is answered, which must not take long."""
        deadline = asyncio.get_running_loop().time() + calm_seconds_max
        while True:
            answer = await self._send(process, command)
            self._raise()
            if answer != UNKNOWN:
                return answer
            if not self._was_cut:
                raise Violation(f"{command} is unavailable, and nothing goes wrong any more")
            if asyncio.get_running_loop().time() > deadline:
                raise Violation(f"{command} stays unavailable while nothing goes wrong")
            await asyncio.sleep(0.05)

    def _reads(self) -> list[Command]:
        model = self.judge.model
        found: list[Command] = []
        for session_id in [*model.sessions, *sorted(model.purged_sessions)]:
            found.append(Command("load_session", {"session_id": session_id}))
            found.append(Command("list_runs_by_session", {"session_id": session_id, "statuses": []}))
            found.append(Command("list_session_records", {"session_id": session_id, "cursor": "", "limit": 1000}))
        for run_id in [*model.runs, *sorted(model.purged_runs)]:
            found.append(Command("list_run_records", {"run_id": run_id, "cursor": "", "limit": 1000}))
            found.append(Command("load_checkpoint", {"run_id": run_id}))
            if run_id not in model.runs or not model.runs[run_id].start["session_id"]:
                found.append(Command("load_run", {"run_id": run_id}))
        return found

    async def _compare(self, process: Process, partition: int) -> tuple[int, str]:
        """Fold the log into a fresh projection, and compare it with the one that serves."""
        assert process.store is not None
        self._check_positions(process)
        live = process.store.partitions[partition].projection.view
        assert isinstance(live, MemoryView)
        seen = live.copy()
        source = _Source(self._storage)
        found = await verify(
            source, partition, seen, MemoryView(), voids_legal=not self.scenario.exclusive
        )
        if not found.equal:
            raise Violation(f"{process.name}, partition {partition}: live is not what the log says: {found.difference}")
        self.note("same", process.name, partition, found.position, found.live)
        return found.position, digest(seen)

    def _check_positions(self, process: Process) -> None:
        """A projection has applied whole commands only, however far it has come, and whenever it is asked."""
        for partition, files in process.files.current.items():
            view = files.open_current()
            if view is not None and not self._was_cut:
                position = view.applied().position
                if self.judge.is_inside_command(partition, position):
                    raise Violation(f"{process.name}, partition {partition}: half a command is applied, up to {position}")

    async def _check_views(self, process: Process) -> None:
        """The views of sessions and runs tell what the model does."""
        store, model = process.store, self.judge.model
        assert store is not None
        for session_id in model.sessions:
            seen = _counted(render.session_detail(await self._view(process, store.session_detail(session_id))))
            expected = counts(model.runs_of(session_id))
            if seen["run_counts"] != expected:
                raise Violation(f"session {session_id}: {seen} where {expected} are its runs")
        for run_id in model.runs:
            shown = render.run_detail(await self._view(process, store.run_detail(run_id)))
            wanted = model.view_run(run_id)
            if shown != wanted:
                raise Violation(f"run {run_id}: {shown} where {wanted} is right")
        page = render.session_page(await self._view(process, store.list_sessions("", "", 1000)))
        listed, known = [_counted(each) for each in page["sessions"]], model.view_sessions({"limit": 1000})["sessions"]
        if listed != known:
            raise Violation(f"sessions: {listed} where {known} is right")

    async def _view(self, process: Process, reading: Coroutine[Any, Any, Any]) -> Any:
        found = await process.ask(reading)
        self._raise()
        if isinstance(found, Refusal):
            raise Violation(f"{process.name}: a view is refused: {found}")
        return found

    # -- the trace

    def note(self, what: str, *details: object) -> None:
        """Add to the trace."""
        line = f"{asyncio.get_running_loop().time():10.4f} {what} {' '.join(map(str, details))}"
        self._hash.update(line.encode() + b"\n")
        if self._tell is not None:
            self._tell(line)

    @property
    def trace(self) -> str:
        """The SHA-256 of the trace so far."""
        return self._hash.hexdigest()


class _Source:
    """The log as it is, for a reader to whom nothing goes wrong."""

    def __init__(self, storage: SimulatedLogStorage) -> None:
        self._storage = storage

    async def read(self, partition: int, position: int, records_max: int = 250) -> Sequence[Any]:
        return self._storage.entries(partition, position, records_max)


class _Complaints(logging.Handler):
    """Remembers what the store logged about errors that it did not expect."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(logging.Formatter().format(record))


def _counted(session: Any) -> dict[str, Any]:
    """A session as it is shown, with the statuses that any run is in."""
    return {**session, "run_counts": {status: count for status, count in session["run_counts"].items() if count}}


def _quiet(process: Process) -> None:
    """Let nothing go wrong in a process from now on."""
    process.faults.over = True
    process.key_faults.rate = 0.0
    process.environment.failpoint_rate = 0.0


def simulate(seed: int, tell: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed to its end."""
    complaints = _Complaints()
    logger = logging.getLogger("runstore")
    before = logger.propagate
    logger.addHandler(complaints)
    logger.propagate = False
    failure = ""
    simulation: Simulation | None = None
    loop = VirtualLoop(forgets=True)
    try:

        async def main() -> None:
            nonlocal simulation
            simulation = Simulation(scenario_of(seed), tell)
            await simulation.run()

        loop.run_until_complete(main())
    except Exception as error:  # noqa: BLE001 # any is this seed's failure
        failure = f"{type(error).__name__}: {error}"
    finally:
        loop.forget()
        loop.close()
        logger.removeHandler(complaints)
        logger.propagate = before
    if complaints.found and not failure:
        failure = f"the store met what it did not expect: {complaints.found[0]}"
    assert simulation is not None
    return Outcome(seed, simulation.writes, simulation.reads, simulation.trace, failure)
