"""Entry point of `python -m bench`; `bin/bench` calls it in an environment that has all it needs."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.commands import Plan, run
from bench.report import report
from bench.workers import WorkerFailed

QUICK: Final = Plan(rounds=3, seconds=0.5, http_seconds=2.0, records=30_000, run_records=100_000, read_seconds=0.1)
FULL: Final = Plan(rounds=7, seconds=1.5, http_seconds=5.0, records=100_000, run_records=1_000_000, read_seconds=0.5)
SMOKE: Final = Plan(rounds=1, seconds=0.05, http_seconds=0.1, records=200, run_records=500, read_seconds=0.1)
"""For a test that all of it still runs; its figures mean nothing."""


def main() -> int:
    """Measure, and print the report; return the exit status."""
    parser = argparse.ArgumentParser(prog="bench", description="Measure Runstore beside others, in one run.")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", dest="plan", action="store_const", const=QUICK, help="at most 2 minutes, not 10")
    length.add_argument("--smoke", dest="plan", action="store_const", const=SMOKE, help=argparse.SUPPRESS)
    parser.add_argument("--alone", action="store_true", help="measure Runstore without the others")
    parser.add_argument(
        "--folder",
        type=Path,
        help="where to make the temporary folder that all data goes to; the disk there is measured",
    )
    parser.set_defaults(plan=FULL)
    arguments = parser.parse_args()
    plan = replace(arguments.plan, alone=arguments.alone)
    begun = time.monotonic()

    def say(message: str) -> None:
        print(f"bench: {time.monotonic() - begun:4.0f} s: {message}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="runstore-bench-", dir=arguments.folder) as name:
        folder = Path(name)
        try:
            results = run(plan, folder, say)
        except WorkerFailed as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
        print(report(results, plan, folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
