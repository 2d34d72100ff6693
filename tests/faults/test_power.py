"""Losses of power: a part of the campaign, the disk's model, and proof that the campaign finds what is broken.

All of it: `bin/faults power --points 1000`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.disk import MODES, Loss
from tests.faults.folders import ROOT, scratch
from tests.faults.journal import Journal
from tests.faults.power import Campaign
from tests.faults.tracing import NoTracer, record, tracer

POINTS = 30
SECONDS_MAX = 20.0


@pytest.fixture
def folder() -> Iterator[Path]:
    with scratch() as found:
        yield Path(found)


@pytest.fixture(autouse=True)
def needs_tracer() -> None:
    """Without strace there is nothing to see; where all checks must run, that is a failure."""
    try:
        tracer()
    except NoTracer as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


def test_nothing_acknowledged_is_lost_by_losses_of_power(folder: Path) -> None:
    campaign = Campaign(folder, seed=1, workers=4, sessions=2)
    campaign.run(POINTS, time.monotonic() + SECONDS_MAX, points_a_life=POINTS // 2)
    assert campaign.tally.failures == []
    assert campaign.tally.points > 0
    assert campaign.tally.acknowledged > 0
    assert campaign.tally.manifests > 0


@pytest.mark.parametrize("broken", ["the log is not synced", "keys are not synced", "names are not synced"])
def test_the_campaign_finds_a_sync_that_is_left_out(folder: Path, broken: str) -> None:
    campaign = Campaign(folder, seed=2, workers=4, sessions=2, broken=broken, keep=folder / "kept")
    campaign.run(24, time.monotonic() + SECONDS_MAX, points_a_life=24)
    assert campaign.tally.failures != []
    assert str(folder / "kept" / "1") in campaign.tally.failures[0]
    assert (folder / "kept" / "1").is_dir()


# -- the disk's model


def done(folder: Path, script: str) -> Journal:
    """What a script does with `folder`, which holds a file `old` of 600 bytes."""
    root = folder / "root"
    root.mkdir()
    (root / "old").write_bytes(b"o" * 600)
    command = [sys.executable, "-c", f"import os\nos.chdir({str(root)!r})\nroot = {str(root)!r}\n{script}"]
    return record(command, root, folder / "trace", dict(os.environ), ROOT)


def states(folder: Path, journal: Journal, *, names_with_files: bool, position: int | None = None) -> set[str]:
    """Every state that a loss in the end may leave: names, with how each file begins."""
    found = set()
    for mode in MODES:
        for seed in range(12):
            lost = folder / f"{mode}-{seed}"
            lost.mkdir()
            at = journal.end if position is None else position
            Loss(at, mode, names_with_files, seed).write(journal, lost)
            found.add(" ".join(f"{path.name}={path.read_bytes()[:4].decode()}" for path in sorted(lost.iterdir())))
    return found


WRITE = "file = os.open(root + '/new', os.O_WRONLY | os.O_CREAT)\nos.write(file, b'data')\n"
SYNC = "os.fsync(file)\n"
SYNC_FOLDER = "os.fsync(os.open(root, os.O_RDONLY))\n"


def test_what_was_never_synced_may_be_there_or_not(tmp_path: Path) -> None:
    found = states(tmp_path, done(tmp_path, WRITE), names_with_files=True)
    assert {"old=oooo", "new= old=oooo", "new=data old=oooo", "new=\0\0\0\0 old=oooo"} <= found


def test_a_synced_file_is_there_once_its_name_is_safe(tmp_path: Path) -> None:
    journal = done(tmp_path, WRITE + SYNC)
    assert states(tmp_path, journal, names_with_files=True) == {"new=data old=oooo"}


def test_a_synced_file_without_its_name_may_be_lost(tmp_path: Path) -> None:
    journal = done(tmp_path, WRITE + SYNC)
    assert states(tmp_path, journal, names_with_files=False) == {"old=oooo", "new=data old=oooo"}


def test_file_and_folder_synced_are_safe(tmp_path: Path) -> None:
    journal = done(tmp_path, WRITE + SYNC + SYNC_FOLDER)
    assert states(tmp_path, journal, names_with_files=False) == {"new=data old=oooo"}


def test_before_the_sync_has_returned_nothing_is_safe(tmp_path: Path) -> None:
    journal = done(tmp_path, WRITE + SYNC)
    assert "old=oooo" in states(tmp_path, journal, names_with_files=True, position=journal.syncs[0].begin)


def test_a_rename_replaces_in_one_step(tmp_path: Path) -> None:
    journal = done(tmp_path, WRITE + SYNC + SYNC_FOLDER + "os.rename(root + '/new', root + '/old')\n")
    assert states(tmp_path, journal, names_with_files=False) == {"new=data old=oooo", "old=data"}


def test_a_sector_is_overwritten_whole_or_not_at_all(tmp_path: Path) -> None:
    journal = done(tmp_path, "os.pwrite(os.open(root + '/old', os.O_RDWR), b'NNNN', 0)\n")
    assert states(tmp_path, journal, names_with_files=True) == {"old=oooo", "old=NNNN"}


def test_writing_through_memory_is_refused(tmp_path: Path) -> None:
    script = "import mmap\nmmap.mmap(os.open(root + '/old', os.O_RDWR), 600)[0] = 1\n"
    with pytest.raises(AssertionError, match="written through memory"):
        done(tmp_path, script)
