"""The campaigns' command line; `bin/faults kafka` calls it."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.faults.command import interruptible, minutes, verdict, whole
from tests.kafka.faults import broker_kills, leader_kills, network, racing, sleepers, transactions
from tests.kafka.faults.campaign import Asked, Outcome
from tests.simulation.planted import PLANTED


@dataclass(frozen=True)
class Kind:
    """A campaign: what it does, how its size is called, and how large it is by default."""

    help: str
    run: Callable[[Asked, Any], Awaitable[Outcome]]
    size: str
    default: int
    words: str

    @property
    def counts(self) -> bool:
        """Whether the size is a number of faults, and not of seconds."""
        return self.size != "seconds"


CAMPAIGNS: Final = {
    "broker-kills": Kind("kill -9 the only broker", broker_kills.run, "kills", 20, "kills of the broker"),
    "leader-kills": Kind("kill -9 a leader of three brokers", leader_kills.run, "kills", 20, "kills of a leader"),
    "sleepers": Kind("stop a store while another takes over, and wake it", sleepers.run, "sleeps", 100, "sleeps"),
    "racing": Kind("three stores write to the same partitions", racing.run, "seconds", 60, "seconds of racing"),
    "network": Kind("delays, cuts, lost answers, late requests", network.run, "seconds", 120, "seconds of bad network"),
    "transactions": Kind(
        "the control: the same network, and Kafka's transactions", transactions.run, "seconds", 120, "seconds"
    ),
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="bin/faults kafka",
        description="Harm real brokers, the network before them or stores, under a load of racing writers, and account "
        "for everything that was answered.",
    )
    campaigns = made.add_subparsers(dest="campaign", required=True, metavar="CAMPAIGN")
    for name, kind in CAMPAIGNS.items():
        each = campaigns.add_parser(name, help=kind.help, description=kind.help)
        each.add_argument(
            f"--{kind.size}", dest="size", type=whole, default=kind.default, metavar="N",
            help=f"how many {kind.size} (default {kind.default})",
        )  # fmt: skip
        each.add_argument("--seed", type=int, default=1, metavar="S", help="what chance is drawn from (default 1)")
        each.add_argument(
            "--minutes", type=minutes, default=20.0, metavar="M",
            help="begin no new fault after so long, and say that it was not finished (default 20)",
        )  # fmt: skip
        each.add_argument("--log-level", default="ERROR", help="what the stores log, to a file each (default ERROR)")
        each.add_argument("--keep", type=Path, metavar="FOLDER", help="work in this folder and leave it there")
        if name == "transactions":
            each.add_argument(
                "--shared",
                action="store_true",
                help="one transactional ID for all writers of a partition, not for each",
            )
        else:
            each.add_argument(
                "--plant", default="", choices=[fault.name for fault in PLANTED], metavar="FAULT",
                help="a fault of tests/simulation/planted.py to have in the stores: the campaign must find it",
            )  # fmt: skip
    return made


async def _run(options: argparse.Namespace, folder: Path) -> Outcome:
    kind = CAMPAIGNS[options.campaign]
    loop = asyncio.get_running_loop()
    asked = Asked(
        folder,
        options.seed,
        loop.time() + 60 * options.minutes,
        getattr(options, "plant", ""),
        options.log_level,
        getattr(options, "shared", False),
    )
    return await kind.run(asked, options.size)


def report(kind: Kind, size: int, outcome: Outcome, seconds: float) -> int:
    """Say what came of it, and return the exit status."""
    problems = outcome.ledger.problems
    for example in problems.examples:
        sys.stderr.write(f"{example}\n")
    what = f"{outcome.done if kind.counts else size} {kind.words}"
    sys.stdout.write(f"{outcome.summary(what)}; {seconds:.0f} s\n")
    return verdict(problems.counts.total(), outcome.done, size if kind.counts else 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign that is asked for."""
    options = parser().parse_args(arguments)

    def run() -> int:
        begun = time.monotonic()
        if options.keep is not None:
            options.keep.mkdir(parents=True, exist_ok=True)
            outcome = asyncio.run(_run(options, options.keep.resolve()))
        else:
            with tempfile.TemporaryDirectory(prefix="runstore-", ignore_cleanup_errors=True) as folder:
                outcome = asyncio.run(_run(options, Path(folder)))
        return report(CAMPAIGNS[options.campaign], options.size, outcome, time.monotonic() - begun)

    return interruptible(run)


if __name__ == "__main__":
    sys.exit(main())
