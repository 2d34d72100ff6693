"""The command line of the simulation; `bin/simulate` calls it."""

from __future__ import annotations

import argparse
import math
import os
import sys
from typing import Final

from tests.simulation import campaign
from tests.simulation.planted import PLANTED

SEEDS_PER_PLANTED_FAULT: Final = 2000
INTERRUPTED: Final = 130

_EPILOG = """\
The last line says how many seeds failed; the exit status is 1 if any did, or if a planted fault got away, 2 for
wrong arguments, 130 when interrupted. tests/simulation/README.md says what is simulated, how it is judged and how a
story reads.
"""


def parser() -> argparse.ArgumentParser:
    """The arguments, each with what it is for."""
    made = argparse.ArgumentParser(
        prog="bin/simulate",
        description="Simulate whole clusters on their bad days: processes that crash, sleep and wake, a log and keys "
        "that fail, callers that retry, all from a seed and judged by a reference model. The same seed gives the same "
        "story.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--seeds", type=_count, metavar="N", help="simulate this many seeds")
    made.add_argument("--start", type=int, metavar="S", help="the first of them (default 0)")
    made.add_argument("--jobs", type=_count, metavar="J", help="processes to use (default 2)")
    made.add_argument("--minutes", type=_minutes, metavar="M", help="begin no more seeds after this long")
    made.add_argument("--seed", type=int, metavar="S", help="simulate this one seed")
    made.add_argument("--trace", action="store_true", help="with --seed: print its story")
    made.add_argument(
        "--mutants",
        action="store_true",
        help=f"plant each of {len(PLANTED)} known faults in turn and simulate until it is caught, at most "
        f"{SEEDS_PER_PLANTED_FAULT} seeds or --seeds; all of them take some ten minutes",
    )
    made.add_argument(
        "--only", metavar="NAME", help="with --mutants: those whose name holds this; several with commas between"
    )
    made.add_argument(
        "--list", action="store_true", help="with --mutants: only list the faults and the laws they break"
    )
    return made


def main() -> int:
    """Do what the arguments ask for."""
    made = parser()
    arguments = made.parse_args()
    _check(made, arguments)
    start, jobs = arguments.start or 0, arguments.jobs or 2
    if arguments.mutants:
        wanted = campaign.chosen(arguments.only or "")
        if not wanted:
            made.error(f"no planted fault has {arguments.only!r} in its name; --mutants --list shows them")
        if arguments.list:
            campaign.show(wanted)
            return 0
        if arguments.seed is not None:
            return campaign.one(arguments.seed, trace=arguments.trace, fault=wanted[0])
        return campaign.mutants(wanted, start, arguments.seeds or SEEDS_PER_PLANTED_FAULT, jobs)
    if arguments.seed is not None:
        return campaign.one(arguments.seed, trace=arguments.trace)
    return campaign.run(start, arguments.seeds, jobs, arguments.minutes)


def _check(made: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Refuse what would be ignored."""
    one, many = arguments.seed is not None, ("seeds", "start", "jobs", "minutes")
    if one and any(getattr(arguments, name) is not None for name in many):
        made.error("--seed simulates one seed: --seeds, --start, --jobs and --minutes do not go with it")
    if arguments.trace and not one:
        made.error("--trace tells the story of one seed: say which --seed")
    if not arguments.mutants and (arguments.only is not None or arguments.list):
        made.error("--only and --list go with --mutants")
    if arguments.mutants and arguments.minutes is not None:
        made.error("--minutes does not go with --mutants; limit its --seeds")
    if arguments.mutants and one and len(campaign.chosen(arguments.only or "")) > 1:
        made.error("--seed with --mutants needs --only with the name of one fault")
    if not arguments.mutants and not one and arguments.seeds is None:
        made.error("say how many --seeds, or which --seed, or --mutants")


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _minutes(text: str) -> float:
    number = float(text)
    if not (number > 0 and math.isfinite(number)):
        raise argparse.ArgumentTypeError("must be more than 0")
    return number


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Whoever read the story has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
