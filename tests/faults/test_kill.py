"""`kill -9` under load: what was acknowledged is there, nothing is half there, and the store serves again by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.kill import Campaign, verified

KILLS = 50


@pytest.mark.timeout(600)
async def test_nothing_acknowledged_is_lost_over_fifty_kills_under_load(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, seed=1)
    await campaign.run(KILLS)
    await verified(tmp_path)
    assert len(campaign.restart_seconds) == KILLS
    assert min(worker.commands for worker in campaign.workers) > 0
    assert sum(campaign.in_flight_seen.values()) > KILLS
