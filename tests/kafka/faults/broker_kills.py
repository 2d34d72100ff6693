"""`kill -9` of the only broker, again and again, under the load of racing stores; each time it is started again."""

from __future__ import annotations

import asyncio
import random

from tests.kafka.brokers import Brokers
from tests.kafka.faults.campaign import PARTITIONS, Asked, Campaign, Outcome
from tests.kafka.faults.load import Shape
from tests.kafka.faults.probe import led_again

STORES = 3
LOAD_SECONDS = (0.3, 1.5)
DOWN_SECONDS = (0.0, 3.0)


async def run(asked: Asked, kills: int) -> Outcome:
    """Kill it so many times."""
    chances = random.Random(f"{asked.seed}/broker-kills")
    loop = asyncio.get_running_loop()
    async with (
        Brokers(asked.folder / "kafka") as brokers,
        Campaign(asked, brokers.bootstrap, stores=STORES, shape=Shape()) as campaign,
    ):
        while campaign.outcome.done < kills and loop.time() < asked.deadline:
            await asyncio.sleep(chances.uniform(*LOAD_SECONDS))
            await brokers.kill()
            await asyncio.sleep(chances.uniform(*DOWN_SECONDS))
            answers = asyncio.create_task(led_again([brokers.bootstrap], campaign.topic, PARTITIONS, in_sync=1))
            await brokers.restart(1)
            await campaign.back(await answers)
            campaign.outcome.done += 1
        return await campaign.settle()
