"""Three stores write to the same partitions at once, for a while, and nothing else happens."""

from __future__ import annotations

import asyncio

from tests.kafka.brokers import Brokers
from tests.kafka.faults.campaign import Asked, Campaign, Outcome
from tests.kafka.faults.load import Shape

STORES = 3


async def run(asked: Asked, seconds: float) -> Outcome:
    """Let them race."""
    async with (
        Brokers(asked.folder / "kafka") as brokers,
        Campaign(asked, brokers.bootstrap, stores=STORES, shape=Shape()) as campaign,
    ):
        await asyncio.sleep(seconds)
        outcome = await campaign.settle(gaps=True)
        outcome.done = 1
        return outcome
