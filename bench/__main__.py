"""Entry point of `python -m bench`; `bin/bench` calls it in an environment that has all it needs."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.commands import RIVAL, Plan, run
from bench.kafka import commands as kafka_commands
from bench.kafka import report as kafka_report
from bench.kafka.broker import why_not
from bench.kafka.commands import KAFKA_RIVALS, KafkaPlan
from bench.report import machine, report
from bench.workers import WorkerFailed

QUICK: Final = Plan(
    rounds=3,
    seconds=0.5,
    http_seconds=2.0,
    records=30_000,
    run_records=100_000,
    read_seconds=0.1,
    kafka=KafkaPlan(3, 0.5, 30_000),
)
FULL: Final = Plan(
    rounds=7,
    seconds=1.5,
    http_seconds=5.0,
    records=100_000,
    run_records=1_000_000,
    read_seconds=0.5,
    kafka=KafkaPlan(7, 1.0, 100_000),
)
SMOKE: Final = Plan(
    rounds=1,
    seconds=0.05,
    http_seconds=0.1,
    records=200,
    run_records=500,
    read_seconds=0.1,
    kafka=KafkaPlan(1, 0.05, 200),
)
"""For a test that all of it still runs; its figures mean nothing."""


def main() -> int:
    """Measure, and print the report; return the exit status."""
    arguments = _arguments()
    plan: Plan = replace(arguments.plan, alone=arguments.alone)
    no_kafka = "" if arguments.part == "other" else why_not()
    if arguments.part == "kafka" and no_kafka:
        print(f"bench: {no_kafka}", file=sys.stderr)
        return 1
    begun = time.monotonic()

    def say(message: str) -> None:
        print(f"bench: {time.monotonic() - begun:4.0f} s: {message}", file=sys.stderr, flush=True)

    # The broker goes with whoever ends this.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="runstore-bench-", dir=arguments.folder) as name:
        try:
            print(_measure(plan, arguments.part, no_kafka, Path(name), say))
        except WorkerFailed as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Measure Runstore beside others, in one run.")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", dest="plan", action="store_const", const=QUICK, help="shorter rounds, and fewer")
    length.add_argument("--smoke", dest="plan", action="store_const", const=SMOKE, help=argparse.SUPPRESS)
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--kafka", dest="part", action="store_const", const="kafka", help="only what runs on Kafka")
    part.add_argument("--no-kafka", dest="part", action="store_const", const="other", help="all but that")
    parser.add_argument("--alone", action="store_true", help="measure Runstore without the others")
    parser.add_argument(
        "--folder",
        type=Path,
        help="where to make the temporary folder that all data goes to; the disk there is measured",
    )
    parser.set_defaults(plan=FULL, part="all")
    return parser.parse_args()


def _measure(plan: Plan, part: str, no_kafka: str, folder: Path, say: Callable[[str], None]) -> str:
    """Measure everything, or a part, and return the report."""
    fsyncs: list[float] = []
    rivals: list[str] = []
    parts: list[str] = []
    if part != "kafka":
        results = run(plan, folder, say)
        rivals.append(RIVAL)
        fsyncs = results.fsync_ms
        parts.append(report(results))
    if part != "other" and not no_kafka:
        kafka = replace(plan.kafka, alone=plan.alone)
        rivals.extend(KAFKA_RIVALS)
        parts.append(kafka_report.report(kafka_commands.run(kafka, folder, say), kafka))
    elif no_kafka:
        parts.append(f"On Kafka: not measured. {no_kafka}")
    return "\n\n".join([machine(folder, [] if plan.alone else rivals, fsyncs, plan.rounds), *parts])


if __name__ == "__main__":
    sys.exit(main())
