"""What the commands of the campaigns share: numbers that make sense, failed stores that are kept, a verdict, Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.faults.stories import PARTITIONS

KEPT_MAX: Final = 10
INTERRUPTED: Final = 130


def whole(text: str) -> int:
    """A number of one or more, for argparse."""
    with contextlib.suppress(ValueError):
        if (number := int(text)) >= 1:
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")


def minutes(text: str) -> float:
    """A time that is longer than nothing, for argparse."""
    with contextlib.suppress(ValueError):
        if 0 < (number := float(text)) < math.inf:
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """A parser for `bin/faults NAME`, with what every campaign has."""
    made = argparse.ArgumentParser(prog=f"bin/faults {name}", description=description)
    made.add_argument("--seed", type=int, default=1, metavar="S", help="what chance is drawn from (default 1)")
    return made


def bounded(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """With a bound in time, and a place for what failed."""
    made.add_argument(
        "--minutes",
        type=minutes,
        default=60.0,
        metavar="M",
        help="begin nothing more after so long, and say that it was not finished (default 60)",
    )
    made.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help=f"where the first {KEPT_MAX} stores that fail are kept as they were before they were opened "
        "(default: a new folder for temporary files, made when one fails)",
    )
    return made


class Kept:
    """Keeps stores that failed, as they were before they were opened."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._count = 0

    def keep(self, write: Callable[[Path], object], store: str) -> str:
        """Let `write` fill a new folder, with the store in `store` of it, and say how to open that; "" for too many."""
        if self._count == KEPT_MAX:
            return ""
        self._count += 1
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="runstore-failed-"))
        number = next(number for number in itertools.count(1) if not (self._folder / str(number)).exists())
        folder = self._folder.resolve() / str(number)
        folder.mkdir(parents=True)
        write(folder)
        copied = f"{folder}.opened"
        data = str(Path(copied) / store)
        return (
            f"\n  kept as it was before it was opened: {folder}"
            f"\n  to open it (a copy, since opening repairs): cp -r {folder} {copied} && "
            f"bin/runstore serve --listen 127.0.0.1:0 --partitions {PARTITIONS} --data-dir {data}"
        )


def failures(count: int) -> str:
    """So many failures, in words."""
    return "1 failure" if count == 1 else f"{count} failures"


def verdict(failed: int, done: int, asked: int) -> int:
    """Say the last line, and return the exit status."""
    if failed:
        sys.stdout.write(f"FAILED: {failures(failed)}\n")
    elif done < asked:
        sys.stdout.write(f"not finished: {done} of {asked} were done in the time, 0 failures\n")
    else:
        sys.stdout.write("passed: 0 failures\n")
    return 1 if failed or done < asked else 0


def interruptible(run: Callable[[], int]) -> int:
    """Run a campaign; Ctrl-C ends it in one line."""
    try:
        return run()
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted: nothing is said of what was not looked at\n")
        return INTERRUPTED
