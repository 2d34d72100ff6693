"""A part of each campaign on real brokers, and proof that they find what is broken.

All of them: `bin/faults kafka CAMPAIGN`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.kafka.faults import broker_kills, leader_kills, network, racing, sleepers, transactions
from tests.kafka.faults.campaign import Asked, Outcome
from tests.kafka.machine import require_brokers

SECONDS_MAX = 120


@pytest.fixture(autouse=True)
def brokers_can_run() -> None:
    require_brokers()


def asked(folder: Path, *, plant: str = "", shared: bool = False) -> Asked:
    return Asked(folder, 1, asyncio.get_running_loop().time() + SECONDS_MAX, plant, shared=shared)


def sound(outcome: Outcome) -> None:
    """Nothing was found, and there was something to find it in."""
    assert outcome.ledger.problems.examples == []
    assert outcome.acknowledged > 50
    assert outcome.ledger.reads > 0
    assert any(entry.rival is not None for entry in outcome.ledger.entries)
    assert outcome.repeats >= outcome.acknowledged
    assert outcome.contents > 0
    assert outcome.projections > 0


@pytest.mark.timeout(SECONDS_MAX)
async def test_nothing_is_lost_when_the_only_broker_is_killed(tmp_path: Path) -> None:
    outcome = await broker_kills.run(asked(tmp_path), 2)
    sound(outcome)
    assert outcome.done == 2
    assert outcome.unavailable > 0


@pytest.mark.timeout(SECONDS_MAX)
async def test_nothing_is_lost_when_a_leader_is_killed(tmp_path: Path) -> None:
    outcome = await leader_kills.run(asked(tmp_path), 2)
    sound(outcome)
    assert outcome.done == 2


@pytest.mark.timeout(SECONDS_MAX)
async def test_a_store_that_slept_while_another_took_over_does_no_harm(tmp_path: Path) -> None:
    outcome = await sleepers.run(asked(tmp_path), 5)
    sound(outcome)
    assert outcome.done == 5


@pytest.mark.timeout(SECONDS_MAX)
async def test_three_stores_that_write_at_once_agree_on_one_order(tmp_path: Path) -> None:
    outcome = await racing.run(asked(tmp_path), 10)
    sound(outcome)
    assert outcome.history.void > 0, "they did not race"


@pytest.mark.timeout(SECONDS_MAX)
async def test_a_network_that_delays_cuts_and_loses_answers_does_no_harm(tmp_path: Path) -> None:
    sound(await network.run(asked(tmp_path), 15))


@pytest.mark.timeout(SECONDS_MAX)
async def test_the_account_finds_answers_that_leave_before_their_batch_has_landed(tmp_path: Path) -> None:
    outcome = await racing.run(asked(tmp_path, plant="answers-before-the-append-has-landed"), 3)
    assert outcome.ledger.problems.counts["wrong answers"] > 0


@pytest.mark.timeout(SECONDS_MAX)
async def test_the_account_finds_what_writers_do_that_nothing_but_transactions_keeps_apart(tmp_path: Path) -> None:
    outcome = await transactions.run(asked(tmp_path), 3)
    assert outcome.ledger.problems.counts["doubled"] > 0
