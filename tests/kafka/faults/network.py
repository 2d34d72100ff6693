"""The stores behind a proxy that delays, cuts, drops answers to Produce, and lets requests arrive late."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
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

DARK_SECONDS: Final = (1.5, 5.0)
"""For so long no Produce is answered, so that stores give up and do not know what became of their batches."""

_PRODUCE: Final = {
    Kind.CUT_REQUEST: 0.01,
    Kind.LATE: 0.015,
    Kind.CUT_ANSWER: 0.01,
    Kind.DROP_AND_CUT: 0.015,
    Kind.DROP_AND_HANG: 0.005,
}
_DARK: Final = (
    # Much is in the log, and nobody is told.
    {Kind.CUT_REQUEST: 0.4, Kind.LATE: 0.2, Kind.DROP_AND_CUT: 0.2, Kind.DROP_AND_HANG: 0.2},
    # Nothing is, and nothing will be: a barrier must settle it.
    {Kind.CUT_REQUEST: 1.0},
    # Nothing is, for now: the place of each batch is free, and the batch on its way.
    {Kind.CUT_REQUEST: 0.3, Kind.LATE: 0.7},
)
_OTHERS: Final = {Kind.CUT_REQUEST: 0.001, Kind.CUT_ANSWER: 0.001, Kind.DROP_AND_HANG: 0.0005}
_SLOW: Final = 0.03
_SLOW_SECONDS_MAX: Final = 0.5
_LATE_SECONDS: Final = (0.0, 4.0)
_VERY_LATE_SECONDS: Final = (2.0, 6.0)
"""Later, for the most part, than a store waits."""


@dataclass
class Storm:
    """A plan from a seed: what a broker's answer is worth when it may be lost, late, or told of what was done twice."""

    seed: int
    dark: Mapping[Kind, float] | None = None
    """Of Produce, for a while, instead of the usual chances."""

    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(f"{self.seed}/storm")

    def __call__(self, request: Request) -> Fate:
        """Decide one request's fate."""
        chances: Mapping[Kind, float] = _OTHERS
        if request.api_key == PRODUCE:
            chances = _PRODUCE if self.dark is None else self.dark
        drawn = self._random.random()
        for kind, chance in chances.items():
            drawn -= chance
            if drawn < 0:
                late = self._random.uniform(*self._late) if kind is Kind.LATE else 0.0
                return Fate(kind, late, portion=self._random.random())
        if self._random.random() < _SLOW:
            delays = self._random.uniform(0, _SLOW_SECONDS_MAX), self._random.uniform(0, _SLOW_SECONDS_MAX)
            return Fate(Kind.THROUGH, *self._random.sample([delays[0], 0.0], 2))
        return PASSING

    @property
    def _late(self) -> tuple[float, float]:
        return _LATE_SECONDS if self.dark is None else _VERY_LATE_SECONDS


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
            plan.dark = _DARK[len(weather.lights) % len(_DARK)]
            await asyncio.sleep(chances.uniform(*DARK_SECONDS))
            plan.dark = None
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
