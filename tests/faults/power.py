"""Losses of power at many points of a story: the store opens by itself, and all that was answered is there.

    bin/faults power --points 1000 --seed 1

A process tells a story to a real store while every one of its file operations is traced (`tests.faults.tracing`). For
each point the disk is made again as it may be after a loss of power there (`tests.faults.disk`), the store is opened on
it, and everything is accounted for (`tests.faults.account`). A story's second life begins on such a disk, so that
recoveries are interrupted too.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from engine.environment import SystemEnvironment
from engine.opening import StoreSettings, open_store
from tests.faults.account import Fault, Findings, Told, account
from tests.faults.command import Kept, bounded, failures, interruptible, parser, verdict, whole
from tests.faults.disk import MODES, Loss
from tests.faults.folders import ROOT, module_environment, scratch
from tests.faults.journal import Inode, Journal, Sync
from tests.faults.stories import SESSIONS, WORKERS, story
from tests.faults.tracing import NoTracer, record, tracer
from tests.faults.watching import heard_by

POINTS_A_LIFE: Final = 50
UNSYNCED_MODES: Final = ("prefix", "torn", "pages")


@dataclass(frozen=True)
class Life:
    """One process's part of a story: what was answered before it, and what it did."""

    seed: int
    sessions: int
    before: list[list[dict[str, Any]]]
    wrapped_before: list[list[bytes]]
    journal: Journal

    def told(self, position: int) -> tuple[list[Told], list[bytes]]:
        """What was answered up to a position, and the wrapped keys that an answered purge destroyed."""
        answers = [list(each) for each in self.before]
        wrapped = [list(each) for each in self.wrapped_before]
        keys: dict[int, list[bytes]] = {}
        for said in self.journal.said:
            if said.begin > position:
                break
            line = json.loads(said.line)
            worker = line["worker"]
            if "wrapped" in line:
                keys[worker] = [bytes.fromhex(each) for each in line["wrapped"]]
                continue
            assert line["number"] == len(answers[worker])
            answers[worker].append(line["answer"])
            wrapped[worker] += keys.pop(worker, [])
        told = [Told(story(self.seed, n, self.sessions), each) for n, each in enumerate(answers)]
        return told, [each for worker in wrapped for each in worker]


@dataclass
class Tally:
    """What a campaign has done."""

    points: int = 0
    acknowledged: int = 0
    whole: int = 0
    absent: int = 0
    rebuilt: int = 0
    cut: int = 0
    edits: int = 0
    manifests: int = 0
    failures: list[str] = field(default_factory=list)
    modes: Counter[str] = field(default_factory=Counter)
    stories: int = 0
    operations: int = 0

    def line(self, seconds: float) -> str:
        return (
            f"{self.points} losses of power in {self.stories} lives of {self.operations} traced operations, "
            f"{self.acknowledged} acknowledged answers looked at, {failures(len(self.failures))}; on their way: "
            f"{self.whole} whole, {self.absent} absent; {self.manifests} aimed at manifests; "
            f"{self.cut} torn tails and {self.edits} torn edits cut, {self.rebuilt} projections rebuilt; "
            f"{seconds:.0f} s"
        )


class Watch(logging.Handler):
    """Counts what the store says when it recovers."""

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self._tally = tally
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.said.append(text)
        torn = "is torn at byte" in text
        self._tally.edits += torn
        self._tally.cut += "are cut off" in text and not torn
        self._tally.rebuilt += "rebuilt from the log" in text


class Campaign:
    """Stories, lives, points. All from one seed; only the order in which the kernel runs threads is not."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        workers: int = WORKERS,
        sessions: int = SESSIONS,
        broken: str = "",
        keep: Path | None = None,
    ) -> None:
        self._folder = folder
        self._random = random.Random(seed)
        self._workers = workers
        self._sessions = sessions
        self._broken = broken
        self._kept = Kept(keep)
        self.tally = Tally()

    def run(self, points: int, until: float = float("inf"), points_a_life: int = POINTS_A_LIFE) -> None:
        """Lose power at so many points, or until a monotonic time."""
        watch = Watch(self.tally)
        with heard_by(watch):
            while self.tally.points < points and time.monotonic() < until:
                self._story(points, until, points_a_life, watch)

    def _story(self, points: int, until: float, points_a_life: int, watch: Watch) -> None:
        seed, small = self._random.getrandbits(32), self._random.random() < 0.75
        disk = self._empty("disk")
        before: list[list[dict[str, Any]]] = [[] for _ in range(self._workers)]
        wrapped: list[list[bytes]] = [[] for _ in range(self._workers)]
        for _ in range(2):
            life = self._live(seed, disk, before, wrapped, small=small)
            losses = list(self._losses(life.journal, min(points_a_life, points - self.tally.points)))
            for loss in losses:
                if time.monotonic() > until:
                    return
                self._lose(life, loss, watch, small=small)
            if not losses:
                return
            loss = Loss(self._random.randrange(life.journal.end * 3 // 4), "mixed", True, self._random.getrandbits(32))
            told, _ = life.told(loss.position)
            before = [list(each.answers) for each in told]
            disk = self._empty("disk")
            loss.write(life.journal, disk)
            wrapped = [[] for _ in before]

    def _live(
        self,
        seed: int,
        disk: Path,
        before: list[list[dict[str, Any]]],
        wrapped: list[list[bytes]],
        *,
        small: bool,
    ) -> Life:
        asked = {
            "folder": str(disk / "store"),
            "seed": seed,
            "sessions": self._sessions,
            "small": small,
            "broken": self._broken,
            "begin": [len(each) for each in before],
        }
        command = [sys.executable, "-m", "tests.faults.story_child", json.dumps(asked)]
        journal = record(command, disk, self._folder / "trace", module_environment(), ROOT)
        _check_journal(journal, disk, self._empty("replayed"))
        self.tally.stories += 1
        self.tally.operations += sum(len(each.changes) for each in journal.inodes)
        self.tally.operations += len(journal.namings) + len(journal.syncs)
        return Life(seed, self._sessions, before, wrapped, journal)

    def _losses(self, journal: Journal, count: int) -> Iterator[Loss]:
        """Points anywhere, and more of them about syncs and answers, and where a manifest is written and not synced."""
        syncs = [position for sync in journal.syncs for position in (sync.begin, sync.end)]
        said = [each.begin for each in journal.said]
        manifests = unsynced_manifests(journal)
        for _ in range(count):
            mode = self._random.choice(MODES)
            match self._random.randrange(4):
                case 0:
                    position = self._random.randint(0, journal.end)
                case 1:
                    position = self._random.choice(syncs) + self._random.randint(-1, 1)
                case 2 if manifests:
                    position = self._random.randint(*self._random.choice(manifests))
                    mode = self._random.choice(UNSYNCED_MODES)
                    self.tally.manifests += 1
                case _:
                    position = self._random.choice(said) + self._random.randint(-1, 1)
            yield Loss(position, mode, self._random.random() < 0.5, self._random.getrandbits(32))

    def _lose(self, life: Life, loss: Loss, watch: Watch, *, small: bool) -> None:
        folder = self._empty("lost")
        loss.write(life.journal, folder)
        told, wrapped = life.told(loss.position)
        watch.said.clear()
        self.tally.points += 1
        self.tally.modes[loss.mode] += 1
        try:
            _check_wrapped(folder / "store" / "keys", wrapped)
            findings = asyncio.run(_account(folder / "store", told))
            _check_said(watch.said)
        except Exception as error:  # noqa: BLE001 # every one is a failure, and the campaign goes on
            text = f"story {life.seed} {small=} {loss}: {type(error).__name__}: {error}; said: {watch.said[:3]}"
            # The same image again: a loss is made from a journal by its seed.
            self.tally.failures.append(text + self._kept.keep(lambda kept: loss.write(life.journal, kept), "store"))
            sys.stderr.write(self.tally.failures[-1] + "\n")
            return
        self.tally.acknowledged += findings.acknowledged
        self.tally.whole += findings.whole
        self.tally.absent += findings.absent

    def _empty(self, name: str) -> Path:
        folder = self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder


def unsynced_manifests(journal: Journal) -> list[tuple[int, int]]:
    """For each write to a manifest the positions at which it has been done and is not safe, first and last."""
    names = {naming.inode: naming.added[1] for naming in journal.namings if naming.added is not None}
    syncs: dict[Inode, list[Sync]] = {}
    for sync in journal.syncs:
        syncs.setdefault(sync.inode, []).append(sync)
    found = []
    for inode, name in names.items():
        if not name.startswith("MANIFEST-"):
            continue
        for change in inode.changes:
            safe = [sync.end for sync in syncs.get(inode, ()) if sync.begin > change.end]
            found.append((change.end, max(change.end, min(safe, default=journal.end) - 1)))
    return found


async def _account(folder: Path, told: list[Told]) -> Findings:
    store = await open_store(StoreSettings(folder, partitions=4), SystemEnvironment(""))
    try:
        return await account(store, told)
    finally:
        await store.close()


def _check_journal(journal: Journal, disk: Path, replayed: Path) -> None:
    """Nothing was missed: the journal, replayed to its end, gives the folder that is there."""
    Loss(journal.end, "all", True, 0).write(journal, replayed)
    there, again = (
        {path.relative_to(top): path.read_bytes() if path.is_file() else None for path in top.rglob("*")}
        for top in (disk, replayed)
    )
    assert there == again, "the journal does not tell what is on the disk"


def _check_said(said: list[str]) -> None:
    """The log is never older than what was folded from it."""
    for text in said:
        if "acknowledged records may be lost" in text:
            raise Fault(text)


def _check_wrapped(keys: Path, wrapped: list[bytes]) -> None:
    """No file holds a key that an answered purge destroyed."""
    for path in keys.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            if any(each in data for each in wrapped):
                raise Fault(f"{path.name} holds a key of a session whose purge was answered")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign from the command line."""
    made = bounded(
        parser("power", "Lose power at many points of a story and account for everything that was answered.")
    )
    made.add_argument("--points", type=whole, default=1000, metavar="N", help="how many losses of power (default 1000)")
    options = made.parse_args(arguments)
    try:
        tracer()
    except NoTracer as error:
        sys.stderr.write(f"{error}\n")
        return 2

    def run() -> int:
        began = time.monotonic()
        with scratch() as folder:
            campaign = Campaign(Path(folder), options.seed, keep=options.keep)
            campaign.run(options.points, began + 60 * options.minutes)
        tally = campaign.tally
        sys.stdout.write(tally.line(time.monotonic() - began) + "\n")
        return verdict(len(tally.failures), tally.points, options.points)

    return interruptible(run)


if __name__ == "__main__":
    sys.exit(main())
