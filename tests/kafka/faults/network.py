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
LIGHT_SECONDS: Final = (1.0, 5.0)
"""From one cut of all connections, or one darkness, to the next."""

DARK_SECONDS: Final = (1.0, 5.0)
"""For so long no Produce is answered, so that stores give up and do not know what became of their batches."""

_PRODUCE: Final = {
    Kind.CUT_REQUEST: 0.01,
    Kind.LATE: 0.015,
    Kind.CUT_ANSWER: 0.01,
    Kind.DROP_AND_CUT: 0.015,
    Kind.DROP_AND_HANG: 0.005,
}
_DARK: Final = {
    Kind.CUT_REQUEST: 0.4,
    Kind.LATE: 0.4,
    Kind.DROP_AND_CUT: 0.1,
    Kind.DROP_AND_HANG: 0.1,
}
_OTHERS: Final = {Kind.CUT_REQUEST: 0.001, Kind.CUT_ANSWER: 0.001, Kind.DROP_AND_HANG: 0.0005}
_SLOW: Final = 0.03
_SLOW_SECONDS_MAX: Final = 0.5
_LATE_SECONDS_MAX: Final = 4.0


@dataclass
class Storm:
    """A plan from a seed: what a broker's answer is worth when it may be lost, late, or told of what was done twice."""

    seed: int
    dark: bool = False
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.seed}/storm")

    def __call__(self, request: Request) -> Fate:
        """Decide one request's fate."""
        chances = _OTHERS
        if request.api_key == PRODUCE:
            chances = _DARK if self.dark else _PRODUCE
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


@dataclass
class Weather:
    """What was done to all at once. `lights`: when a darkness ended."""

    cut: int = 0
    lights: list[float] = field(default_factory=list)


async def storm(proxy: Proxy, seed: int, seconds: float) -> Weather:
    """Have bad weather for so long."""
    chances = random.Random(f"{seed}/weather")
    loop = asyncio.get_running_loop()
    end, weather = loop.time() + seconds, Weather()
    proxy.plan = plan = Storm(seed)
    while (left := end - loop.time()) > 0:
        await asyncio.sleep(min(left, chances.uniform(*LIGHT_SECONDS)))
        if chances.random() < 0.5:
            weather.cut += proxy.cut()
        else:
            plan.dark = True
            await asyncio.sleep(chances.uniform(*DARK_SECONDS))
            plan.dark = False
            weather.lights.append(loop.time())
    proxy.plan = all_pass
    # Those that hang would hang on.
    proxy.cut()
    weather.lights.append(loop.time())
    return weather


def told(proxy: Proxy, weather: Weather) -> str:
    """What the proxy did, in words."""
    fates: Counter[str] = Counter()
    for (api_key, kind), count in proxy.counts.items():
        if kind is not Kind.THROUGH:
            fates[f"{kind}{'' if api_key == PRODUCE else ' of other kinds'}"] += count
    return (
        "Produce requests: "
        + ", ".join(f"{count} {name}" for name, count in sorted(fates.items()))
        + f"; {weather.cut} connections cut at random; {len(weather.lights) - 1} times no Produce was answered"
    )


async def run(asked: Asked, seconds: float) -> Outcome:
    """Write through the proxy for so long."""
    async with (
        behind_proxy(asked) as (proxy, _),
        Campaign(asked, proxy.address, stores=STORES, shape=Shape()) as campaign,
    ):
        weather = await storm(proxy, asked.seed, seconds)
        campaign.outcome.notes.append(told(proxy, weather))
        await campaign.back(weather.lights[-1])
        campaign.outcome.backs += weather.lights[:-1]
        outcome = await campaign.settle(gaps=True)
        outcome.done = 1
        return outcome
