"""A store is stopped where it stands while another takes over its clients, then woken: it must do nothing wrong.

Clients turn to the other store after a short while, with the very command that the stopped one may have half done.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from tests.kafka.brokers import Brokers
from tests.kafka.faults.campaign import Asked, Campaign, Outcome
from tests.kafka.faults.load import Shape

STORES: Final = 2
LOAD_SECONDS: Final = (0.05, 0.5)
ASLEEP_SECONDS: Final = (0.1, 0.8)
LONG_SECONDS: Final = (3.0, 5.0)
LONG: Final = 0.1
"""How often a store sleeps so long that everything which it waits for has run out of time."""

TAKEN_OVER: Final = 10
PATIENCE_SECONDS: Final = 0.2


async def run(asked: Asked, sleeps: int) -> Outcome:
    """Have one of two stores sleep so many times."""
    chances = random.Random(f"{asked.seed}/sleepers")
    loop = asyncio.get_running_loop()
    owed = 0
    async with (
        Brokers(asked.folder / "kafka") as brokers,
        Campaign(asked, brokers.bootstrap, stores=STORES, shape=Shape(patience_seconds=PATIENCE_SECONDS)) as campaign,
    ):
        while campaign.outcome.done < sleeps and loop.time() < asked.deadline:
            await asyncio.sleep(chances.uniform(*LOAD_SECONDS))
            sleeper, other = chances.sample(campaign.stores, STORES)
            sleeper.pause()
            owed += sleeper.waiting
            await asyncio.sleep(chances.uniform(*(LONG_SECONDS if chances.random() < LONG else ASLEEP_SECONDS)))
            if not await campaign.acknowledged(other, TAKEN_OVER, 20):
                campaign.outcome.ledger.problems.add("stalls", f"{other.name} did not take over from {sleeper.name}")
            sleeper.resume()
            await campaign.back(sleeper.times.woken_at)
            campaign.outcome.done += 1
        campaign.outcome.notes.append(f"{owed} commands were on their way in a store when it was stopped")
        return await campaign.settle()
