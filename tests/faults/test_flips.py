"""Flipped bits and cut files: a part of the campaign, and proof that it finds what is broken.

All of it: `bin/faults flips --flips 2000`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import data_folder, projection
from engine.logs.blocks import records
from tests.faults.flips import PLACES, Campaign, Damage
from tests.faults.folders import scratch

FLIPS = 80
SECONDS_MAX = 20.0


@pytest.fixture
def folder() -> Iterator[Path]:
    with scratch() as found:
        yield Path(found)


def test_a_damaged_store_answers_what_it_did_or_nothing(folder: Path) -> None:
    campaign = Campaign(folder, seed=1)
    campaign.run(FLIPS, time.monotonic() + SECONDS_MAX, ["closed", "killed, small"])
    assert campaign.tally.failures == []
    assert campaign.tally.flips > 0
    assert campaign.tally.cuts > 0
    assert campaign.tally.refused.total() > 0
    assert campaign.tally.whole.total() > 0


def test_the_campaign_finds_a_check_that_is_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = Campaign(folder, seed=1, keep=folder / "kept")
    base = campaign.base("killed")
    assert all(base.files[place] for place in PLACES), "every place has a file to damage"
    description = (base.folder / "store.json").read_bytes()
    other_number = Damage("store.json", "store.json", description.index(b'"partitions": 4') + 14, 0)
    campaign.damage(base, other_number)
    assert campaign.tally.failures == []
    monkeypatch.setattr(data_folder, "_check_digest", lambda _: None)
    campaign.damage(base, other_number)
    (failure,) = campaign.tally.failures
    assert "s:w0-s0 was" in failure
    # What failed is kept as it was, and the failure says where.
    (kept,) = (folder / "kept").iterdir()
    assert str(kept) in failure
    whole = {path.relative_to(base.folder) for path in base.folder.rglob("*")}
    assert {path.relative_to(kept) for path in kept.rglob("*")} == whole
    assert (kept / "store.json").read_bytes().replace(b"5,", b"4,") == description
    campaign.tally.failures.clear()

    manifest = base.files["projections, manifest"][-1]
    # Between two edits, where nothing looks damaged.
    ends = [record.end for record in records((base.folder / manifest).read_bytes(), 0)]
    cuts = [Damage("projections, manifest", manifest, end, None) for end in ends[-4:-1]]
    for cut in cuts:
        campaign.damage(base, cut)
    assert campaign.tally.failures == []
    monkeypatch.setattr(projection, "cut_at_damage", lambda _: None)
    for cut in cuts:
        campaign.damage(base, cut)
    assert campaign.tally.failures != []
