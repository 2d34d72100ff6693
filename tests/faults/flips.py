"""One bit flipped, or one file cut short: no answer is ever wrong, and no record that is there is told to be absent.

    bin/faults flips --flips 2000 --seed 1

A store is written and closed, another one killed with SIGKILL. Again and again a copy of one is damaged in one place
and opened, and everything is asked. An answer is what it was before, or `unavailable`; a store that does not open names
the file. Then commands are repeated and new ones done: none is acknowledged onto a damaged past. A damaged projection
heals.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from engine.data_folder import OpeningError
from engine.environment import SystemEnvironment
from engine.keys.errors import KeysError
from engine.logs.interface import LogError
from engine.opening import StoreSettings, open_store
from tests.faults.account import expect
from tests.faults.command import Kept, bounded, failures, interruptible, parser, verdict, whole
from tests.faults.folders import ROOT, module_environment, scratch
from tests.faults.questions import Check, Counts, Known, learn
from tests.faults.stories import story
from tests.faults.watching import heard_by

WORKERS: Final = 3
SESSIONS: Final = 3
EDGE_BYTES: Final = 64
BASES: Final = ("closed", "killed", "closed, small", "killed, small")
"""How a store was left, and with what buffers."""

PLACES: Final[Mapping[str, Sequence[str]]] = {
    "log, tables": ["log/rocksdb/*.sst"],
    "log, write-ahead logs": ["log/rocksdb/*.log"],
    "log, manifest": ["log/rocksdb/MANIFEST-*"],
    "log, small files": ["log/rocksdb/CURRENT", "log/rocksdb/OPTIONS-*", "log/rocksdb/*.json", "log/rocksdb/IDENTITY"],
    "log, marker": ["log/acknowledged"],
    "keys, tables": ["keys/rocksdb/*.sst"],
    "keys, write-ahead logs": ["keys/rocksdb/*.log"],
    "keys, manifest": ["keys/rocksdb/MANIFEST-*"],
    "keys, small files": [
        "keys/check",
        "keys/rocksdb/CURRENT",
        "keys/rocksdb/OPTIONS-*",
        "keys/rocksdb/*.json",
        "keys/rocksdb/IDENTITY",
    ],
    "keys, marker": ["keys/acknowledged"],
    "projections, tables": ["projections/*/g-*/*.sst"],
    "projections, write-ahead logs": ["projections/*/g-*/*.log"],
    "projections, manifest": ["projections/*/g-*/MANIFEST-*"],
    "projections, small files": [
        "projections/*/CURRENT",
        "projections/*/g-*/CURRENT",
        "projections/*/g-*/OPTIONS-*",
        "projections/*/g-*/*.json",
    ],
    "store.json": ["store.json"],
    "master.key": ["master.key"],
}


@dataclass(frozen=True)
class Damage:
    """One place in one file: a bit, or, where `bit` is None, the length that the file is cut to."""

    place: str
    file: str
    offset: int
    bit: int | None

    def do(self, folder: Path) -> None:
        """Damage the file in this folder."""
        path = folder / self.file
        data = bytearray(path.read_bytes())
        if self.bit is None:
            del data[self.offset :]
        else:
            data[self.offset] ^= 1 << self.bit
        path.write_bytes(data)


@dataclass(frozen=True)
class Base:
    """A store as it was left, and what it answers when it is whole."""

    name: str
    folder: Path
    known: Known
    files: dict[str, list[str]]


@dataclass
class Tally:
    """What a campaign has done, by place."""

    flips: int = 0
    cuts: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    partly: Counter[str] = field(default_factory=Counter)
    whole: Counter[str] = field(default_factory=Counter)
    healed: int = 0
    counts: Counts = field(default_factory=Counts)
    failures: list[str] = field(default_factory=list)

    def line(self, seconds: float) -> str:
        return (
            f"{self.flips} flipped bits and {self.cuts} cut files: {self.refused.total()} stores refused to open and "
            f"named the place, {self.partly.total()} answered in part, {self.whole.total()} in full; "
            f"{self.counts.answers} answers as they were, {self.counts.unavailable} unavailable, "
            f"{failures(len(self.failures))}; {self.healed} projections rebuilt; {seconds:.0f} s"
        )

    def table(self) -> str:
        rows = ["| damaged | refused | answered in part | answered in full |", "|---|---|---|---|"]
        rows += [f"| {name} | {self.refused[name]} | {self.partly[name]} | {self.whole[name]} |" for name in PLACES]
        return "\n".join(rows)


class Campaign:
    """Damages copies of a closed store and of a killed one."""

    def __init__(self, folder: Path, seed: int, *, only: str = "", keep: Path | None = None) -> None:
        """With `only`, the places whose name holds that."""
        self._only = only
        self._kept = Kept(keep)
        self._folder = folder
        self._seed = seed
        self._random = random.Random(seed)
        self.tally = Tally()

    def run(self, flips: int, until: float = float("inf"), names: Sequence[str] = BASES) -> None:
        """Damage so many places of stores of these names, or until a monotonic time."""
        watch = _Watch(self.tally)
        with heard_by(watch):
            bases = [self.base(name) for name in names]
            while self.tally.flips + self.tally.cuts < flips and time.monotonic() < until:
                base = self._random.choice(bases)
                self.damage(base, self._choose(base))

    def base(self, name: str) -> Base:
        """Write a store."""
        folder = self._folder / name.replace(", ", "-")
        seed = self._seed * 10 + len(name)
        asked = {
            "folder": str(folder),
            "seed": seed,
            "sessions": SESSIONS,
            "small": "small" in name,
            "killed": name.startswith("killed"),
            "begin": [0] * WORKERS,
        }
        subprocess.run(
            [sys.executable, "-m", "tests.faults.story_child", json.dumps(asked)],
            check=False, cwd=ROOT, env=module_environment(), stdout=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        for path in folder.rglob("LOG*"):
            path.unlink()
        told = [command for worker in range(WORKERS) for command in story(seed, worker, SESSIONS)]
        files = {
            kind: sorted(
                str(path.relative_to(folder))
                for pattern in patterns
                for path in folder.glob(pattern)
                if path.stat().st_size > 0
            )
            for kind, patterns in PLACES.items()
        }
        copy = self._folder / "copy"
        shutil.copytree(folder, copy)
        known = asyncio.run(learn(copy, told))
        shutil.rmtree(copy)
        return Base(name, folder, known, files)

    def _choose(self, base: Base) -> Damage:
        place_of_it = self._random.choice([name for name, files in base.files.items() if files and self._only in name])
        file = self._random.choice(base.files[place_of_it])
        size = (base.folder / file).stat().st_size
        match self._random.randrange(4):
            case 0:
                offset = self._random.randrange(min(size, EDGE_BYTES))
            case 1:
                offset = size - 1 - self._random.randrange(min(size, EDGE_BYTES))
            case _:
                offset = self._random.randrange(size)
        bit = self._random.randrange(8) if self._random.random() < 0.75 else None
        return Damage(place_of_it, file, offset, bit)

    def damage(self, base: Base, damage: Damage) -> None:
        """Damage a copy of a store in one place, and look at it."""
        folder = self._folder / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        _damaged_copy(base, damage, folder)
        if damage.bit is None:
            self.tally.cuts += 1
        else:
            self.tally.flips += 1
        twice = self._random.random() < 0.25
        try:
            before = self.tally.counts.unavailable
            opened = asyncio.run(self._look(base, damage, folder, again=False))
            if opened and twice:
                asyncio.run(self._look(base, damage, folder, again=True))
        except Exception as error:  # noqa: BLE001 # every one is a failure, and the campaign goes on
            text = f"{base.name}: {damage}: {type(error).__name__}: {error}"[:1500]
            text += self._kept.keep(lambda kept: _damaged_copy(base, damage, kept), "")
            self.tally.failures.append(text)
            sys.stderr.write(text + "\n")
            return
        if not opened:
            self.tally.refused[damage.place] += 1
        elif self.tally.counts.unavailable > before:
            self.tally.partly[damage.place] += 1
        else:
            self.tally.whole[damage.place] += 1

    async def _look(self, base: Base, damage: Damage, folder: Path, *, again: bool) -> bool:
        try:
            store = await open_store(StoreSettings(folder), SystemEnvironment(""))
        except (OpeningError, KeysError, LogError) as error:
            expect(not damage.place.startswith("projections"), f"a damaged projection did not heal: {error}")
            named = [str(folder / damage.file.split("/", maxsplit=1)[0]), damage.file.rsplit("/", maxsplit=1)[-1]]
            expect(any(name in str(error) for name in named), f"the place is not named: {error}")
            return False
        try:
            heals = damage.place.startswith("projections")
            await Check(base.known, store, self.tally.counts, heals=heals, again=again).everything()
        finally:
            with contextlib.suppress(KeysError):  # It names the folder, and everything is closed.
                await store.close()
        return True


def _damaged_copy(base: Base, damage: Damage, folder: Path) -> None:
    shutil.copytree(base.folder, folder, dirs_exist_ok=True)
    damage.do(folder)


class _Watch(logging.Handler):
    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self._tally = tally

    def emit(self, record: logging.LogRecord) -> None:
        self._tally.healed += "rebuilt from the log" in record.getMessage()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign from the command line."""
    made = bounded(parser("flips", "Damage a store in one place and ask it everything, again and again."))
    made.add_argument(
        "--flips", type=whole, default=2000, metavar="N", help="how many places; a quarter are cut files (default 2000)"
    )
    made.add_argument(
        "--only", default="", choices=["", *PLACES, "manifest"], metavar="PLACE",
        help="damage this place alone, such as 'keys, tables', or every 'manifest' (default: all)",
    )  # fmt: skip
    options = made.parse_args(arguments)

    def run() -> int:
        began = time.monotonic()
        with scratch() as folder:
            campaign = Campaign(Path(folder), options.seed, only=options.only, keep=options.keep)
            campaign.run(options.flips, began + 60 * options.minutes)
        tally = campaign.tally
        sys.stdout.write(tally.table() + "\n" + tally.line(time.monotonic() - began) + "\n")
        return verdict(len(tally.failures), tally.flips + tally.cuts, options.flips)

    return interruptible(run)


if __name__ == "__main__":
    sys.exit(main())
