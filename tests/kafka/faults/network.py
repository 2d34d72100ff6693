"""The stores behind a proxy that delays, cuts, drops answers to Produce, and lets requests arrive late."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from tests.kafka.brokers import Brokers
from tests.kafka.faults.campaign import Asked, Campaign, Outcome
from tests.kafka.faults.load import Shape
from tests.kafka.proxy import PASSING, PRODUCE, Fate, Kind, Proxy, Request, all_pass

STORES: Final = 3
CUT_SECONDS: Final = (2.0, 6.0)
"""From one cut of all connections to the next."""

_PRODUCE: Final = {
    Kind.CUT_REQUEST: 0.01,
    Kind.LATE: 0.015,
    Kind.CUT_ANSWER: 0.01,
    Kind.DROP_AND_CUT: 0.015,
    Kind.DROP_AND_HANG: 0.005,
}
_OTHERS: Final = {Kind.CUT_REQUEST: 0.001, Kind.CUT_ANSWER: 0.001, Kind.DROP_AND_HANG: 0.0005}
_SLOW: Final = 0.03
_SLOW_SECONDS_MAX: Final = 0.5
_LATE_SECONDS_MAX: Final = 4.0


@dataclass
class Storm:
    """A plan from a seed: what a broker's answer is worth when it may be lost, late, or told of what was done twice."""

    seed: int
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.seed}/storm")

    def __call__(self, request: Request) -> Fate:
        """Decide one request's fate."""
        chances = _PRODUCE if request.api_key == PRODUCE else _OTHERS
        drawn = self._random.random()
        for kind, chance in chances.items():
            drawn -= chance
            if drawn < 0:
                late = self._random.uniform(0, _LATE_SECONDS_MAX) if kind is Kind.LATE else 0.0
                return Fate(kind, late, portion=self._random.random())
        if self._random.random() < _SLOW:
            delays = self._random.uniform(0, _SLOW_SECONDS_MAX), self._random.uniform(0, _SLOW_SECONDS_MAX)
            return Fate(Kind.THROUGH, *self._random.sample([delays[0], 0.0], 2))
        return PASSING


@asynccontextmanager
async def behind_proxy(asked: Asked) -> AsyncIterator[tuple[Proxy, Brokers]]:
    """A broker whose clients are all sent to a proxy before it, which lets all pass yet."""
    async with (
        Proxy() as proxy,
        Brokers(asked.folder / "kafka", advertised={1: proxy.address}) as brokers,
    ):
        proxy.target = brokers.bootstrap
        yield proxy, brokers


async def storm(proxy: Proxy, seed: int, seconds: float) -> int:
    """Have bad weather for so long; give how many connections were cut at once."""
    chances = random.Random(f"{seed}/cuts")
    loop = asyncio.get_running_loop()
    end, cut = loop.time() + seconds, 0
    proxy.plan = Storm(seed)
    while (left := end - loop.time()) > 0:
        await asyncio.sleep(min(left, chances.uniform(*CUT_SECONDS)))
        cut += proxy.cut()
    proxy.plan = all_pass
    # Those that hang would hang on.
    proxy.cut()
    return cut


def told(proxy: Proxy, cut: int) -> str:
    """What the proxy did, in words."""
    fates: Counter[str] = Counter()
    for (api_key, kind), count in proxy.counts.items():
        if kind is not Kind.THROUGH:
            fates[f"{kind}{'' if api_key == PRODUCE else ' of other kinds'}"] += count
    return (
        "Produce requests: "
        + ", ".join(f"{count} {name}" for name, count in sorted(fates.items()))
        + (f", and {cut} connections cut at random")
    )


async def run(asked: Asked, seconds: float) -> Outcome:
    """Write through the proxy for so long."""
    async with (
        behind_proxy(asked) as (proxy, _),
        Campaign(asked, proxy.address, stores=STORES, shape=Shape()) as campaign,
    ):
        campaign.outcome.notes.append(told(proxy, await storm(proxy, asked.seed, seconds)))
        campaign.outcome.backs.append(asyncio.get_running_loop().time())
        outcome = await campaign.settle(gaps=True)
        outcome.done = 1
        return outcome
