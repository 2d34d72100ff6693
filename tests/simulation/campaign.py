"""Many seeds on several cores, and what became of them in one line; the same for planted faults."""

from __future__ import annotations

import hashlib
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Final, TypeVar

from tests.simulation.planted import PLANTED, Planted, planted
from tests.simulation.simulation import Outcome, simulate

T = TypeVar("T")
R = TypeVar("R")

SEEDS_PER_PIECE: Final = 20
FAILURES_SHOWN: Final = 10


def run(start: int, seeds: int, jobs: int, minutes: float | None = None) -> int:
    """Simulate seeds and say what became of them; 1 if any failed."""
    began = time.monotonic()
    outcomes: list[Outcome] = []
    ends = range(start, start + seeds, SEEDS_PER_PIECE)
    pieces = [range(at, min(at + SEEDS_PER_PIECE, start + seeds)) for at in ends]
    shown = 0
    try:
        for found in spread(_piece, pieces, jobs):
            outcomes += found
            for outcome in found:
                if outcome.failure and shown < FAILURES_SHOWN:
                    shown += 1
                    say(f"seed {outcome.seed}: {outcome.failure}\n  again: bin/simulate --seed {outcome.seed} --trace")
            if minutes is not None and time.monotonic() - began > minutes * 60:
                break
    except KeyboardInterrupt:
        summary(outcomes, time.monotonic() - began)
        raise
    if len(outcomes) < seeds:
        say(f"{seeds - len(outcomes)} seeds were not begun: the time was up")
    return summary(outcomes, time.monotonic() - began)


def one(seed: int, *, trace: bool, fault: Planted | None = None) -> int:
    """Simulate one seed, with a planted fault if one is named; 1 if it failed."""
    began = time.monotonic()
    with planted(fault) if fault is not None else nullcontext():
        outcome = simulate(seed, say if trace else None)
    if outcome.failure:
        say(f"seed {seed}: {outcome.failure}")
    return summary([outcome], time.monotonic() - began)


def summary(outcomes: Iterable[Outcome], seconds: float) -> int:
    """Say it in one line; 1 if any failed."""
    ordered = sorted(outcomes, key=lambda outcome: outcome.seed)
    failures = sum(outcome.failure != "" for outcome in ordered)
    traces = hashlib.sha256("".join(f"{outcome.seed} {outcome.trace}\n" for outcome in ordered).encode()).hexdigest()
    commands, reads = sum(outcome.commands for outcome in ordered), sum(outcome.reads for outcome in ordered)
    say(
        f"{_counted(len(ordered), 'seed')}, {commands} commands and {reads} reads, {seconds:.1f} seconds, "
        f"{_counted(failures, 'failure')}, traces {traces}"
    )
    return 1 if failures else 0


def chosen(only: str) -> list[Planted]:
    """The planted faults whose name holds one of these texts, all where none is given."""
    parts = [part.strip() for part in only.split(",") if part.strip()]
    return [fault for fault in PLANTED if not parts or any(part in fault.name for part in parts)]


def show(faults: Iterable[Planted]) -> None:
    """List planted faults."""
    for fault in faults:
        say(f"{fault.name}: {fault.law}")


def mutants(wanted: Sequence[Planted], start: int, seeds: int, jobs: int) -> int:
    """Plant each fault in turn, simulate until it is caught, and say how many were; 1 if one got away."""
    caught = 0
    laws = {fault.name: fault.law for fault in wanted}
    for name, seed, failure in spread(_caught, [(fault.name, start, seeds) for fault in wanted], jobs):
        if seed is None:
            say(f"{name}: NOT CAUGHT in {seeds} seeds: {laws[name]}")
        else:
            caught += 1
            say(
                f"{name}: caught by seed {seed}: {failure}\n  again: bin/simulate --mutants --only {name} --seed {seed}"
            )
    say(f"caught {caught} of {len(wanted)}")
    return 0 if caught == len(wanted) else 1


def catch(fault: Planted, seeds: Iterable[int]) -> tuple[int, str] | None:
    """The first seed that fails with a fault planted, and how."""
    with planted(fault):
        for seed in seeds:
            outcome = simulate(seed)
            if outcome.failure:
                return seed, outcome.failure
    return None


def spread(function: Callable[[T], R], items: Sequence[T], jobs: int) -> Iterator[R]:
    """The function's results, in order, computed in so many processes."""
    if jobs <= 1:
        yield from map(function, items)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, _ignore_interrupts) as pool:
        yield from pool.imap(function, items)


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _ignore_interrupts() -> None:
    """An interrupt is for the one process that says what was done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _piece(seeds: range) -> list[Outcome]:
    return [simulate(seed) for seed in seeds]


def _caught(task: tuple[str, int, int]) -> tuple[str, int | None, str]:
    name, start, seeds = task
    fault = next(fault for fault in PLANTED if fault.name == name)
    found = catch(fault, range(start, start + seeds))
    return (name, None, "") if found is None else (name, *found)
