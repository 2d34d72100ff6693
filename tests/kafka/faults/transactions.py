"""The control: load and proxy of the network campaign, and Kafka's transactions instead of the position rule."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any, Final

from tests.kafka.faults import account
from tests.kafka.faults.campaign import PARTITIONS, Asked, Campaign, Outcome
from tests.kafka.faults.load import Shape
from tests.kafka.faults.network import STORES, behind_proxy, storm, told
from tests.kafka.faults.reading import History, entries

QUIET_SECONDS: Final = 5.0
"""First without any fault, for the figures."""


class Control(Campaign):
    """Writers that use transactions: each under an ID of its own, or all of a partition under one."""

    def child(self, name: str, *, plant: str = "", bootstrap: str = "") -> dict[str, Any]:
        """See `Campaign`."""
        asked = super().child(name, plant=plant, bootstrap=bootstrap)
        return {**asked, "transactional_id": self.prefix if self.asked.shared else f"{self.prefix}-{name}"}

    async def account(self, bootstrap: str) -> None:
        """What a consumer that reads only what is committed finds, and what repetitions are answered."""
        ledger = self.outcome.ledger
        one, other = [await read_committed(bootstrap, self.topic) for _ in range(2)]
        ledger.problems.expect(one.digests == other.digests, "different", "two readers")
        self.outcome.history = one
        account.check_log(ledger, one)
        self.outcome.repeats = await account.check_repeats(ledger, self.stores, self.asked.seed)


async def read_committed(bootstrap: str, topic: str) -> History:
    """All that counts, by Kafka's own rule."""
    history = History()
    held = await entries(bootstrap, topic, PARTITIONS, isolation_level="read_committed")
    for partition, each in enumerate(held):
        history.take(partition, [(offset, value, json.load(io.BytesIO(value))) for offset, value in each])
    return history


async def run(asked: Asked, seconds: float) -> Outcome:
    """Write through the proxy for so long."""
    async with (
        behind_proxy(asked) as (proxy, brokers),
        Control(asked, proxy.address, stores=STORES, shape=Shape()) as control,
    ):
        quiet_seconds = min(seconds, QUIET_SECONDS)
        await asyncio.sleep(quiet_seconds)
        quiet = control.outcome.acknowledged / quiet_seconds
        control.outcome.notes.append(f"without faults {quiet:.0f} commands a second")
        control.outcome.notes.append(told(proxy, await storm(proxy, asked.seed, seconds)))
        outcome = await control.settle(brokers.bootstrap, gaps=True)
        outcome.done = 1
        return outcome
