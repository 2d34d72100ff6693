"""Runstore in the caller's process: a store in a folder, as `runstore serve` opens it, and callers as tasks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import Final

from bench.measuring import Measured, measure_tasks
from bench.workers import Handler
from bench.workload import (
    AGENT,
    CHILD_AGENT,
    EPOCH_MS,
    TERMINAL_KEY,
    Content,
    child,
    child_labels,
    contents,
)
from engine.environment import SystemEnvironment
from engine.opening import StoreSettings, open_store
from engine.placement import place
from engine.store import Store
from schemas.commands import AppendRecord, CreateSession, EndSession, StartChildRun, StartRootRun
from schemas.refusals import Refusal
from schemas.values import Answer, AppendResult, NewRecord, RunStart, StartResult

PARTITIONS: Final = 8
"""What a store has unless told otherwise."""

STARTED: Final = '{"labels":{}}'
CANCELED: Final = '{"status":"canceled","phase":"canceled","cancellation":{"reason":"session_ended"}}'

_STARTS_A_SECOND_MAX: Final = 3000
"""For how many commands a second run IDs are found before the clock starts; beyond it they are found meanwhile."""


@dataclass(frozen=True, slots=True)
class Load:
    """What to measure: so many callers, each writing `one` record or `three` a command, for so long.

    `anywhere`: child runs may have any ID. Otherwise each has one whose directory entry belongs into its session's
    own partition, so that no reservation is written beside the three records.
    """

    kind: str
    callers: int
    seconds: float
    anywhere: bool = False


def make_handler(folder: Path) -> Handler:
    """Open a store and return what measures on it; None closes it."""
    runner = asyncio.Runner(loop_factory=loop_factory())
    store = runner.run(open_store(StoreSettings(folder / "store"), SystemEnvironment()))
    families: dict[str, list[Family]] = {"one": [], "three": []}

    def handle(load: Load | None) -> Measured | None:
        if load is not None:
            return runner.run(measure(store, load, families))
        runner.run(store.close())
        runner.close()
        return None

    return handle


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The event loop that the service runs on."""
    if sys.platform == "win32":
        return None
    import uvloop  # noqa: PLC0415 # not on Windows

    return uvloop.new_event_loop


async def measure(
    store: Store, load: Load, families: dict[str, list[Family]], partitions: int = PARTITIONS
) -> Measured:
    """Give every caller a session and a running root run of its own, kept for later loads, then measure."""
    kept = families[load.kind]
    if len(kept) < load.callers:
        new = [Family(store, f"{load.kind}-{number:04d}", partitions) for number in range(len(kept), load.callers)]
        await asyncio.gather(*(family.start(ended=load.kind == "three") for family in new))
        kept.extend(new)
    callers: list[Callable[[], Awaitable[None]]] = []
    for family in kept[: load.callers]:
        if load.kind == "three":
            family.name_children(load)
        callers.append(family.append if load.kind == "one" else family.start_child)
    return await measure_tasks(load.seconds, callers)


class Family:
    """One caller's session, its root run, and the commands that the caller issues on them."""

    def __init__(self, store: Store, name: str, partitions: int = PARTITIONS) -> None:
        self._store = store
        self._partitions = partitions
        self._session = f"sess-{name}"
        self._run = f"run-{name}"
        self._written = 0
        self._contents: Iterator[Content] = contents(name)
        self._named = count()
        self._children: Iterator[str] = iter(())

    async def start(self, *, ended: bool) -> None:
        """Create the session, start its root run, and end the session where its children are to be stopped."""
        await self._execute(CreateSession(self._session, EPOCH_MS))
        run = RunStart(AGENT, self._run, EPOCH_MS, self._session)
        started = self._record(Content("run_started", STARTED), f"{self._run}/start")
        canceled = self._record(Content("run_completed", CANCELED), TERMINAL_KEY)
        await self._execute(StartRootRun(run, started, canceled))
        if ended:
            await self._execute(EndSession(self._session, EPOCH_MS))

    def name_children(self, load: Load) -> None:
        """Find IDs for child runs before the clock starts, more than will be used."""
        home = None if load.anywhere else place(self._session, self._partitions)
        names = (f"{self._run}/agent/{number:07d}" for number in self._named)
        found = (name for name in names if home is None or place.__wrapped__(name, self._partitions) == home)
        ahead = list(islice(found, 16 + int(_STARTS_A_SECOND_MAX * load.seconds / load.callers)))
        self._children = chain(ahead, found)

    async def append(self) -> None:
        """Append one record to the root run."""
        result = await self._execute(AppendRecord(self._record(next(self._contents), self._next_key())))
        assert isinstance(result, AppendResult)
        assert result.inserted

    async def start_child(self) -> None:
        """Start a child that the ended session stops: its link, its start and its end are written in one step."""
        told = child(next(self._children), self._run)
        run = RunStart(CHILD_AGENT, told.run_id, EPOCH_MS, self._session, self._run, labels=child_labels())
        result = await self._execute(
            StartChildRun(
                run,
                self._record(told.link, self._next_key()),
                self._record(told.started, f"{told.run_id}/1", run),
                self._record(told.canceled, TERMINAL_KEY, run),
            )
        )
        assert isinstance(result, StartResult)
        assert result.canceled is not None
        assert result.canceled.inserted

    def _next_key(self) -> str:
        self._written += 1
        return f"{self._run}/{self._written}"

    def _record(self, content: Content, event_key: str, run: RunStart | None = None) -> NewRecord:
        return NewRecord(
            event_key=event_key,
            run_id=self._run if run is None else run.run_id,
            agent_id=AGENT if run is None else run.agent_id,
            session_id=self._session,
            turn_id="turn-1",
            type=content.type,
            timestamp=EPOCH_MS,
            payload=content.payload.encode(),
        )

    async def _execute(
        self, command: CreateSession | EndSession | StartRootRun | StartChildRun | AppendRecord
    ) -> Answer:
        answer = await self._store.execute(command)
        if isinstance(answer, Refusal):
            raise RuntimeError(f"{type(command).__name__} was refused: {answer.detail}")  # noqa: TRY004 # no type is wrong
        return answer
