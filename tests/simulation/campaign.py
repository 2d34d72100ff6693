"""Many seeds on several cores, and what became of them in one line; the same for planted faults."""

from __future__ import annotations

import hashlib
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    pieces = [
        range(at, min(at + SEEDS_PER_PIECE, start + seeds)) for at in range(start, start + seeds, SEEDS_PER_PIECE)
    ]
    shown = 0
    for found in spread(_piece, pieces, jobs):
        outcomes += found
        for outcome in found:
            if outcome.failure and shown < FAILURES_SHOWN:
                shown += 1
                say(f"seed {outcome.seed}: {outcome.failure}\n  again: bin/simulate --seed {outcome.seed} --trace")
        if minutes is not None and time.monotonic() - began > minutes * 60:
            break
    return summary(outcomes, time.monotonic() - began)


def summary(outcomes: Iterable[Outcome], seconds: float) -> int:
    """Say it in one line; 1 if any failed."""
    ordered = sorted(outcomes, key=lambda outcome: outcome.seed)
    failures = sum(outcome.failure != "" for outcome in ordered)
    traces = hashlib.sha256("".join(f"{outcome.seed} {outcome.trace}\n" for outcome in ordered).encode()).hexdigest()
    for outcome in ordered if len(ordered) == 1 else ():
        if outcome.failure:
            say(f"seed {outcome.seed}: {outcome.failure}")
    commands, reads = sum(outcome.commands for outcome in ordered), sum(outcome.reads for outcome in ordered)
    say(
        f"{len(ordered)} seeds, {commands} commands and {reads} reads, {seconds:.0f} seconds, {failures} failures, "
        f"traces {traces}"
    )
    return 1 if failures else 0


def mutants(start: int, seeds: int, jobs: int, only: str = "") -> int:
    """Plant each fault in turn, simulate until it is caught, and say how many were; 1 if one got away."""
    wanted = [fault for fault in PLANTED if any(part in fault.name for part in only.split(","))]
    caught = 0
    for name, seed, failure in spread(_caught, [(fault.name, start, seeds) for fault in wanted], jobs):
        if seed is None:
            say(f"{name}: NOT CAUGHT in {seeds} seeds")
        else:
            caught += 1
            say(f"{name}: caught by seed {seed}: {failure[:150]}")
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
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(function, items)


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _piece(seeds: range) -> list[Outcome]:
    return [simulate(seed) for seed in seeds]


def _caught(task: tuple[str, int, int]) -> tuple[str, int | None, str]:
    name, start, seeds = task
    fault = next(fault for fault in PLANTED if fault.name == name)
    found = catch(fault, range(start, start + seeds))
    return (name, None, "") if found is None else (name, *found)
