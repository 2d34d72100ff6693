"""When brokers answer: asked again and again, and the time of the first answer that will do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from bin.broker import wire
from bin.broker.wire import Partition, WireError

ask_seconds: Final = 0.02
probe_seconds_max: Final = 60.0


class NeverBack(Exception):
    """No broker has told a leader in time."""


async def led_again(addresses: Sequence[str], topic: str, partitions: int, in_sync: int, without: int = 0) -> float:
    """Wait until a broker tells a leader for each partition, another than `without`, with so many in sync.

    Gives the time of the event loop's clock. Raises `NeverBack`.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + probe_seconds_max
    while loop.time() < deadline:
        for address in addresses:
            found = await asyncio.to_thread(_ask, address, topic)
            told = [found[number] for number in range(partitions) if number in found]
            if len(told) == partitions and all(
                each.leader not in {-1, without} and len(set(each.in_sync) - {without}) >= in_sync for each in told
            ):
                return loop.time()
        await asyncio.sleep(ask_seconds)
    raise NeverBack(f"{topic} had no leaders for {probe_seconds_max:.0f} s")


def _ask(address: str, topic: str) -> dict[int, Partition]:
    host, _, port = address.rpartition(":")
    try:
        return wire.metadata(host, int(port), (topic,)).topics.get(topic, {})
    except WireError:
        return {}
