"""What a seed means: how many of everything, and which faults are about. Each leaves some out, so any mix comes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.logs.simulated import Answer, AppendFault, Faults, ReadFault

APPEND_FAULTS: Final = (
    "refused",
    "lost",
    "doubled",
    "doubled, last told",
    "acknowledgement lost",
    "late",
    "late and doubled",
    "slow",
    "slow acknowledgement",
)
READ_FAULTS: Final = ("unavailable", "slow", "split")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One seed's setting. Rates are per call, or per chance of a `Weather` to do something."""

    seed: int
    partitions: int
    exclusive: bool
    processes: int
    clients: int
    commands: int
    sessions: int
    append_faults: tuple[str, ...]
    append_fault_rate: float
    read_faults: tuple[str, ...]
    read_fault_rate: float
    delay_seconds_max: float
    latency_seconds_max: float
    key_fault_rate: float
    purge_fault_rate: float
    key_delay_seconds_max: float
    failpoint_rate: float
    crashes: int
    pauses: int
    clock_jumps: int
    rebuilds: int
    cuts: int
    outages: int
    batches: bool
    think_seconds_max: float

    @property
    def calm(self) -> bool:
        """True when nothing goes wrong, so that nothing may be unavailable."""
        rates = (self.append_fault_rate, self.read_fault_rate, self.key_fault_rate, self.purge_fault_rate)
        befalls = (self.crashes, self.pauses, self.cuts, self.outages, self.failpoint_rate)
        return self.processes == 1 and not any(rates) and not any(befalls)


def scenario_of(seed: int) -> Scenario:
    """The setting of a seed."""
    source = random.Random(f"scenario {seed}")
    exclusive = source.random() < 0.25
    cut = not exclusive and source.random() < 0.12
    processes = 1 if exclusive else source.choice((1, 2, 2, 3))
    stormy = source.random() < 0.9

    def maybe(chance: float, *values: float) -> float:
        return source.choice(values) if stormy and source.random() < chance else 0.0

    return Scenario(
        seed=seed,
        partitions=1 if cut else source.choice((1, 1, 2, 3)),
        exclusive=exclusive,
        processes=processes,
        clients=source.choice((1, 2, 3, 5)),
        commands=source.randint(25, 75),
        sessions=source.randint(1, 4),
        append_faults=tuple(source.sample(APPEND_FAULTS, source.randint(1, 5))),
        append_fault_rate=maybe(0.8, 0.05, 0.15, 0.4),
        read_faults=tuple(source.sample(READ_FAULTS, source.randint(1, 3))),
        read_fault_rate=maybe(0.5, 0.05, 0.2, 0.5),
        delay_seconds_max=source.choice((0.05, 0.5, 3.0)),
        latency_seconds_max=source.choice((0.0, 0.002, 0.02, 0.1)),
        key_fault_rate=maybe(0.3, 0.02, 0.1),
        purge_fault_rate=maybe(0.25, 0.5, 0.95),
        key_delay_seconds_max=source.choice((0.0, 0.001, 0.05)),
        failpoint_rate=maybe(0.3, 0.01, 0.03),
        crashes=int(maybe(0.5, 1, 2, 4)),
        pauses=int(maybe(0.4, 1, 2, 4)) if processes > 1 or not exclusive else 0,
        clock_jumps=int(maybe(0.3, 1, 3)),
        rebuilds=int(maybe(0.3, 1, 2)),
        cuts=1 if cut else 0,
        outages=int(maybe(0.25, 1, 2)),
        batches=source.random() < 0.4,
        think_seconds_max=source.choice((0.001, 0.02, 0.2)),
    )


class ScenarioFaults(Faults):
    """The log's faults of one process in a scenario, until `over`."""

    def __init__(self, scenario: Scenario, source: random.Random, tell: Callable[[str], None]) -> None:
        self._scenario = scenario
        self._tell = tell
        self._random = source
        self.over = False
        self.down = False
        """True while the log cannot be reached: whatever is sent may get there or not, and nothing comes back."""

    def on_append(self, partition: int, position: int, batch: Sequence[bytes]) -> AppendFault:
        del batch
        scenario = self._scenario
        if self.down:
            return AppendFault(copies=self._random.choice((0, 1)), answer=Answer.NONE)
        if self.over or self._random.random() >= scenario.append_fault_rate:
            return AppendFault(delay_seconds=self._latency(), answer_delay_seconds=self._latency())
        seconds = self._random.random() * scenario.delay_seconds_max
        fault = self._random.choice(scenario.append_faults)
        self._tell(f"append to partition {partition} at {position}: {fault}")
        match fault:
            case "refused":
                return AppendFault(refused=True, delay_seconds=self._latency())
            case "lost":
                return AppendFault(copies=0, answer_delay_seconds=seconds)
            case "doubled":
                return AppendFault(copies=2, delay_seconds=self._latency())
            case "doubled, last told":
                return AppendFault(copies=2, answer=Answer.LAST, delay_seconds=self._latency())
            case "acknowledgement lost":
                return AppendFault(answer=Answer.NONE, delay_seconds=self._latency())
            case "late":
                return AppendFault(late_seconds=seconds)
            case "late and doubled":
                return AppendFault(late_seconds=seconds, copies=2)
            case "slow":
                return AppendFault(delay_seconds=seconds)
            case _:
                return AppendFault(answer_delay_seconds=seconds)

    def on_read(self, partition: int, position: int) -> ReadFault:
        del position
        if self.down:
            return ReadFault(unavailable=True)
        if self.over or self._random.random() >= self._scenario.read_fault_rate:
            return ReadFault(delay_seconds=self._latency())
        fault = self._random.choice(self._scenario.read_faults)
        self._tell(f"read of partition {partition}: {fault}")
        match fault:
            case "unavailable":
                return ReadFault(unavailable=True)
            case "slow":
                return ReadFault(delay_seconds=self._random.random() * self._scenario.delay_seconds_max)
            case _:
                return ReadFault(records_max=self._random.randint(1, 3))

    def on_end(self, partition: int) -> ReadFault:
        return self.on_read(partition, 0)

    def _latency(self) -> float:
        return self._random.random() * self._scenario.latency_seconds_max
