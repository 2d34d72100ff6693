"""The command line of the simulation; `bin/simulate` calls it."""

from __future__ import annotations

import argparse
import sys

from tests.simulation import campaign
from tests.simulation.simulation import simulate

SEEDS_PER_PLANTED_FAULT = 2000


def main() -> int:
    """Do what the arguments ask for; 1 on a failure."""
    parser = argparse.ArgumentParser(
        prog="bin/simulate",
        description="Simulate whole clusters on their bad days: processes that crash, sleep and wake, a log and keys "
        "that fail, callers that retry, all from a seed and judged by a reference model. The same seed gives the same "
        "story.",
    )
    parser.add_argument("--seeds", type=int, metavar="N", help="simulate this many seeds")
    parser.add_argument("--start", type=int, default=0, metavar="S", help="the first of them (default 0)")
    parser.add_argument("--jobs", type=int, default=2, metavar="J", help="processes to use (default 2)")
    parser.add_argument("--minutes", type=float, metavar="M", help="begin no more seeds after this long")
    parser.add_argument("--seed", type=int, metavar="S", help="simulate this one seed")
    parser.add_argument("--trace", action="store_true", help="with --seed: print its story")
    parser.add_argument(
        "--mutants",
        action="store_true",
        help=f"plant each known fault in turn and simulate until it is caught, at most {SEEDS_PER_PLANTED_FAULT} seeds "
        "or --seeds",
    )
    parser.add_argument(
        "--only", metavar="NAME", help="with --mutants: those whose name holds one of these, with commas between"
    )
    arguments = parser.parse_args()
    if arguments.mutants:
        seeds = SEEDS_PER_PLANTED_FAULT if arguments.seeds is None else arguments.seeds
        return campaign.mutants(arguments.start, seeds, arguments.jobs, arguments.only or "")
    if arguments.seed is not None:
        outcome = simulate(arguments.seed, campaign.say if arguments.trace else None)
        return campaign.summary([outcome], 0.0)
    if arguments.seeds is None:
        parser.error("say how many --seeds, or which --seed, or --mutants")
    return campaign.run(arguments.start, arguments.seeds, arguments.jobs, arguments.minutes)


if __name__ == "__main__":
    sys.exit(main())
