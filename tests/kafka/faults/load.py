"""The load: clients that tell a story each, at any of the stores, and repeat each command until it is answered.

A client has a store of its own and turns to another one when it is not answered, or told `unavailable`: the same
command is then on its way in several stores. At times it asks two stores at once: for the same thing, which both must
answer alike, or for two ends of one run, of which one alone can be. Whatever it reads must hold what it has been
answered.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.contract.builders import Command, Run, create_session
from tests.kafka.faults.ledger import Entry, Ledger, record_ids
from tests.kafka.faults.stores import UNAVAILABLE, Said, StoreProcess

RUN_RECORDS_MAX: Final = 60
ABANDONED: Final = 0.1
"""How often a client that is told `unavailable` gives a command up for good, where its story allows that."""

wait_seconds: Final = (0.01, 0.08)
finish_seconds_max: Final = 15.0


@dataclass(frozen=True)
class Shape:
    """How many clients a store has, how long they wait for an answer, and how long they think between commands."""

    clients: int = 8
    patience_seconds: float = 8.0
    think_seconds: float = 0.02
    reads: bool = True


class Load:
    """Clients at work, from `start` to `finish`."""

    def __init__(self, stores: Sequence[StoreProcess], ledger: Ledger, seed: int, shape: Shape) -> None:
        self.stores = stores
        self.ledger = ledger
        self.shape = shape
        self.stopping = False
        self._seed = seed
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin."""
        for number in range(len(self.stores) * self.shape.clients):
            client = _Client(self, number, random.Random(f"{self._seed}/{number}"))
            self._tasks.append(asyncio.create_task(client.tell()))

    async def finish(self) -> None:
        """Have each client end with the command that it is at."""
        self.stopping = True
        _, late = await asyncio.wait(self._tasks, timeout=finish_seconds_max)
        for task in late:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if late:
            self.ledger.problems.add("unfinished", f"{len(late)} clients were not answered in {finish_seconds_max} s")
        for task in self._tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error


class _Client:
    def __init__(self, load: Load, number: int, chances: random.Random) -> None:
        self._load = load
        self._number = number
        self._home = load.stores[number % len(load.stores)]
        self._random = chances
        self._known: dict[str, tuple[str, str]] = {}
        """Event key to record ID and payload, of the records of the root that is written to."""

    async def tell(self) -> None:
        session = f"session-{self._number}"
        await self._do(create_session(session))
        count = 0
        while not self._load.stopping:
            count += 1
            root = Run(f"run-{self._number}-{count}", session)
            self._known = {}
            await self._do(root.start())
            for step in range(RUN_RECORDS_MAX):
                await asyncio.sleep(self._random.uniform(0, 2 * self._load.shape.think_seconds))
                if not await self._step(root, step):
                    return

    async def _step(self, root: Run, step: int) -> bool:
        """Do one thing; False when there is no more to do."""
        if self._load.stopping:
            return False
        payload = f'{{"step":{step},"text":"{self._random.randbytes(30).hex()}"}}'
        append = root.append(f"step/{step}", payload)
        match self._random.randrange(10):
            case 0:
                await self._child(Run(f"{root.run_id}/{step}", root.session_id, parent=root.run_id))
            case 1 if len(self._load.stores) > 1:
                entry = self._load.ledger.enter(append)
                here, there = self._random.sample(list(self._load.stores), 2)
                await asyncio.gather(self._repeat(entry, here), self._repeat(entry, there))
                self._know(entry)
            case 2 | 3 if self._load.shape.reads:
                await self._look(root.run_id)
            case _:
                self._know(await self._do(append, may_abandon=True))
        return True

    async def _child(self, child: Run) -> None:
        if not (await self._do(child.start(), may_abandon=True)).answers:
            return
        await self._do(child.append())
        ends = child.end("completed", event_key="end/one"), child.end("failed", event_key="end/other")
        one, other = self._load.ledger.enter_rivals(*ends)
        here, there = self._home, self._other(self._home)
        await asyncio.gather(self._repeat(one, here), self._repeat(other, there))

    async def _do(self, command: Command, *, may_abandon: bool = False) -> Entry:
        entry = self._load.ledger.enter(command)
        await self._repeat(entry, self._home, may_abandon=may_abandon)
        return entry

    async def _repeat(self, entry: Entry, store: StoreProcess, *, may_abandon: bool = False) -> None:
        """Ask until there is an answer that is not `unavailable`, or give up where that may be."""
        while True:
            said = await self._ask(entry, store)
            if said is not None and said.code != UNAVAILABLE:
                return
            if said is not None:
                if may_abandon and self._random.random() < ABANDONED:
                    entry.abandoned = True
                    return
                await asyncio.sleep(self._random.uniform(*wait_seconds))
            if said is None or self._random.random() < 0.5:
                store = self._other(store)

    async def _ask(self, entry: Entry, store: StoreProcess) -> Said | None:
        """One attempt; None where no answer came in time. One that comes later is noted too."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Said] = loop.create_future()

        def heard(said: Said) -> None:
            store.times.note(said)
            if said.answer is not None:
                entry.answers.append(said)
            elif said.code != UNAVAILABLE:
                entry.refusals.append(said)
            if not future.done():
                future.set_result(said)

        entry.asked_at = min(entry.asked_at, loop.time())
        entry.attempts += 1
        store.send(entry.command.method, entry.command.args, heard)
        await asyncio.wait([future], timeout=self._load.shape.patience_seconds)
        return future.result() if future.done() else None

    def _know(self, entry: Entry) -> None:
        if entry.answers and "record" in entry.command.args:
            record = entry.command.args["record"]
            self._known[record["event_key"]] = record_ids(entry.command, entry.answers[0])[0], record["payload"]

    async def _look(self, run_id: str) -> None:
        """Read a run anywhere: it holds at least what has been answered before the question."""
        known = dict(self._known)
        future: asyncio.Future[Said] = asyncio.get_running_loop().create_future()
        store = self._random.choice(self._load.stores)
        args: dict[str, Any] = {"run_id": run_id, "cursor": "", "limit": 1000}
        store.send("list_run_records", args, lambda said: None if future.done() else future.set_result(said))
        await asyncio.wait([future], timeout=self._load.shape.patience_seconds)
        problems = self._load.ledger.problems
        if not future.done() or (said := future.result()).code == UNAVAILABLE:
            return
        if said.answer is None:
            problems.add("stale reads", f"{store.name} has no run {run_id}: {said.code}")
            return
        self._load.ledger.reads += 1
        told = [(each["event_key"], (each["id"], each["payload"])) for each in said.answer["records"]]
        found = dict(told)
        missing = {key: value for key, value in known.items() if found.get(key) != value}
        problems.expect(not missing, "stale reads", f"{store.name}, run {run_id}: {missing} in {list(found)[-5:]}")
        ids = [record_id for _, (record_id, _) in told]
        problems.expect(ids == sorted(set(ids)), "disordered", f"{store.name}, run {run_id}: {ids}")

    def _other(self, store: StoreProcess) -> StoreProcess:
        others = [each for each in self._load.stores if each is not store]
        return self._random.choice(others) if others else store
