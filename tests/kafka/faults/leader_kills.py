"""`kill -9` of the leader of a partition, again and again, in a cluster of three where two must have each record."""

from __future__ import annotations

import asyncio
import random

from tests.kafka.brokers import Brokers
from tests.kafka.faults.campaign import PARTITIONS, Asked, Campaign, Outcome
from tests.kafka.faults.load import Shape
from tests.kafka.faults.probe import led_again

STORES = 3
BROKERS = 3
IN_SYNC = 2
LOAD_SECONDS = (0.3, 1.5)


async def run(asked: Asked, kills: int) -> Outcome:
    """Kill a leader so many times."""
    chances = random.Random(f"{asked.seed}/leader-kills")
    loop = asyncio.get_running_loop()
    async with (
        Brokers(asked.folder / "kafka", count=BROKERS) as brokers,
        Campaign(asked, brokers.bootstrap, stores=STORES, shape=Shape(), replicas=BROKERS) as campaign,
    ):
        addresses = brokers.bootstrap.split(",")
        while campaign.outcome.done < kills and loop.time() < asked.deadline:
            await asyncio.sleep(chances.uniform(*LOAD_SECONDS))
            leader = await brokers.leader(campaign.topic, chances.randrange(PARTITIONS))
            await brokers.kill(leader)
            await campaign.back(await led_again(addresses, campaign.topic, PARTITIONS, in_sync=IN_SYNC, without=leader))
            await brokers.restart(leader)
            # All in sync again, or the next kill would leave one, with which nothing can be written.
            await led_again(addresses, campaign.topic, PARTITIONS, in_sync=BROKERS)
            campaign.outcome.done += 1
        return await campaign.settle()
