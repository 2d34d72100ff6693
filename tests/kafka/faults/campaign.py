"""What all campaigns share: stores, a load, an account of everything, and one line that says what came of it."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from tests.kafka.faults import account
from tests.kafka.faults.ledger import Ledger
from tests.kafka.faults.load import Load, Shape
from tests.kafka.faults.reading import History, read_by_position
from tests.kafka.faults.stores import NoAnswer, StoreProcess

PARTITIONS: Final = 2
"""Few, so that all stores write to the same ones."""

answer_seconds_max: Final = 5.0
stall_seconds_max: Final = 10.0

FATAL: Final = ("lost", "doubled", "half", "split", "disordered")
"""What must never be, told in every summary."""


@dataclass(frozen=True)
class Asked:
    """What every campaign is told. `deadline`: begin nothing more after that time of the event loop's clock."""

    folder: Path
    seed: int
    deadline: float
    plant: str = ""
    log_level: str = "ERROR"
    shared: bool = False


@dataclass
class Outcome:
    """What came of a campaign. `backs`: when brokers answered again after a fault."""

    ledger: Ledger = field(default_factory=Ledger)
    history: History = field(default_factory=History)
    done: int = 0
    backs: list[float] = field(default_factory=list)
    longest_stall: float = 0.0
    longest_silence: float = 0.0
    longest_answer: float = 0.0
    unavailable: int = 0
    repeats: int = 0
    projections: int = 0
    contents: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def acknowledged(self) -> int:
        """How many commands were answered."""
        return sum(bool(entry.answers) for entry in self.ledger.entries)

    def summary(self, what: str) -> str:
        """One line."""
        entries = self.ledger.entries
        open_ended = [entry for entry in entries if not entry.answers and not entry.refusals]
        whole = sum(any(name in self.history.by_name for name in entry.records) for entry in open_ended)
        counted = self.ledger.problems.counts
        verdict = ", ".join(f"{counted[name]} {name}" for name in FATAL)
        others = {name: count for name, count in counted.items() if name not in FATAL}
        words = [
            f"{what}: {self.acknowledged} acknowledged commands, {verdict}",
            *([", ".join(f"{count} {name}" for name, count in sorted(others.items()))] if others else []),
            f"{sum(entry.attempts for entry in entries)} attempts, {self.unavailable} unavailable",
            f"{sum(entry.rival is not None for entry in entries) // 2} duels, {self.ledger.reads} reads checked",
            f"never answered: {whole} whole, {len(open_ended) - whole} absent",
            f"{len(self.history.records)} records count, {self.history.void} void, {self.history.barriers} barriers",
            f"{self.repeats} repeats and {self.contents} records answered as before",
            f"{self.projections} projections alike",
            f"longest answer {self.longest_answer:.1f} s, longest stall {self.longest_stall:.1f} s",
            f"longest time without an acknowledgement {self.longest_silence:.1f} s",
            *self.notes,
        ]
        return "; ".join(words)


class Campaign:
    """Stores over topics of their own, and the load on them: `async with Campaign(...) as campaign`."""

    def __init__(self, asked: Asked, bootstrap: str, *, stores: int, shape: Shape, replicas: int = 1) -> None:
        self.asked = asked
        self.outcome = Outcome()
        self.prefix = f"faults-{uuid.uuid4().hex[:12]}"
        self._bootstrap = bootstrap
        self._replicas = replicas
        self.stores = [self.store(f"store-{number}", plant=asked.plant) for number in range(stores)]
        self.load = Load(self.stores, self.outcome.ledger, asked.seed, shape)

    @property
    def topic(self) -> str:
        """The topic of the log."""
        return f"{self.prefix}.log"

    def store(self, name: str, *, plant: str = "", bootstrap: str = "") -> StoreProcess:
        """A store of this campaign, not started."""
        asked = self.child(name, plant=plant, bootstrap=bootstrap)
        return StoreProcess(name, asked, self.asked.folder / f"{name}.log")

    def child(self, name: str, *, plant: str = "", bootstrap: str = "") -> dict[str, Any]:
        """What a store's process is asked."""
        return {
            "folder": str(self.asked.folder / name),
            "bootstrap": bootstrap or self._bootstrap,
            "prefix": self.prefix,
            "partitions": PARTITIONS,
            "replicas": self._replicas,
            "master_key": str(self.asked.folder / "master.key"),
            "plant": plant,
            "transactional_id": "",
            "log_level": self.asked.log_level,
        }

    async def __aenter__(self) -> Self:
        try:
            # The first makes the topics and the master key.
            await self.stores[0].start()
            await asyncio.gather(*(store.start() for store in self.stores[1:]))
        except BaseException:
            await self.end()
            raise
        self.load.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def end(self) -> None:
        """Leave no process behind."""
        await asyncio.gather(*(store.kill() for store in self.stores))

    async def acknowledged(self, store: StoreProcess, count: int, seconds: float) -> bool:
        """Wait until a store has acknowledged so many more commands; whether it has in time."""
        deadline = asyncio.get_running_loop().time() + seconds
        for _ in range(count):
            if not await store.times.until_acknowledged(asyncio.get_running_loop().time(), deadline):
                return False
        return True

    async def back(self, at: float) -> None:
        """Note that the brokers answer again since then, and wait until each store has acknowledged something."""
        self.outcome.backs.append(at)
        deadline = at + 2 * stall_seconds_max
        for store in self.stores:
            await store.times.until_acknowledged(at, deadline)

    async def settle(self, bootstrap: str = "", *, gaps: bool = False) -> Outcome:
        """End the load and account for everything. `gaps`: any time without an acknowledgement is a stall."""
        await self.load.finish()
        self._check_times(gaps=gaps)
        await self.account(bootstrap or self._bootstrap)
        return self.outcome

    def _check_times(self, *, gaps: bool) -> None:
        outcome, problems = self.outcome, self.outcome.ledger.problems
        for store in self.stores:
            times = store.times
            outcome.unavailable += times.unavailable
            outcome.longest_answer = max(outcome.longest_answer, times.longest_answer)
            stalls = [(times.next_acknowledged(at) or at + 2 * stall_seconds_max) - at for at in outcome.backs]
            gap = max((b - a for a, b in itertools.pairwise(times.acknowledged)), default=0.0)
            outcome.longest_silence = max(outcome.longest_silence, gap)
            stalls += [gap] if gaps else []
            longest = max(stalls, default=0.0)
            outcome.longest_stall = max(outcome.longest_stall, longest)
            problems.expect(longest <= stall_seconds_max, "stalls", f"{store.name}: {longest:.1f} s")
            problems.expect(
                times.longest_answer <= answer_seconds_max,
                "late answers",
                f"{store.name}: {times.longest_answer:.1f} s",
            )
            problems.expect(bool(times.acknowledged), "broken", f"{store.name} has acknowledged nothing")

    async def account(self, bootstrap: str) -> None:
        """Look at the log, the projections and the stores' answers."""
        outcome, ledger = self.outcome, self.outcome.ledger
        one, other = [await read_by_position(bootstrap, self.topic, PARTITIONS, ledger.problems) for _ in range(2)]
        ledger.problems.expect(one.digests == other.digests, "different", f"two readers: {one.digests} {other.digests}")
        outcome.history = one
        account.check_log(ledger, one)
        rebuilt = self.store("rebuilt", bootstrap=bootstrap)
        try:
            await rebuilt.start()
            outcome.repeats = await account.check_repeats(ledger, self.stores, self.asked.seed)
            outcome.contents = await account.check_contents(ledger, rebuilt)
            outcome.projections = await account.check_projections(ledger, self.stores, rebuilt, PARTITIONS)
        except NoAnswer as error:
            ledger.problems.add("broken", str(error))
        finally:
            await rebuilt.kill()
        for store in self.stores:
            ledger.problems.expect(await store.close() == 0, "broken", f"{store.name} did not end in good order")
