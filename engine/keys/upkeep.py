"""What the keys topic needs beside what callers ask for: records written again, and fillers after purges.

The bound of a purge
  Kafka compacts no active segment, and ends one only when a record comes that is more than `segment.ms` later than the
  segment's first. So a record is written once a tombstone is that old, by every store that follows the topic, whoever
  wrote the tombstone and however often stores were started since. Then the broker compacts within
  `max.compaction.lag.ms` of the segment's first record, which is over by then if that is no longer than `segment.ms`;
  it looks every `log.cleaner.backoff.ms` (15 s), and removes the old file after `file.delete.delay.ms` (60 s).
  With `segment.ms` and the lag at ten minutes, no file of a running broker holds a purged key, wrapped or not,
  **15 minutes** after the purge – as long as a store runs, brokers run, and the broker's cleaner does.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from engine.environment import Environment
from engine.kafka.errors import KafkaFailed
from engine.keys.errors import KeyStoreError
from engine.keys.follower import Follower
from engine.keys.kept import Kept
from engine.keys.topic import filler
from engine.keys.writes import Write, Writes

log = logging.getLogger("runstore.keys")

repairs_max: Final = 1000
"""How many records are written again at a time."""

filler_spread_seconds: Final = 1.0
"""Over how long several stores spread their fillers, so that one of them spares the others theirs."""

read_back_seconds_max: Final = 2.0
retry_seconds_first: Final = 0.2
retry_seconds_max: Final = 10.0


class Upkeep:
    """Does it in the background, from `run`, until that is cancelled."""

    def __init__(self, kept: Kept, follower: Follower, writes: Writes, environment: Environment) -> None:
        self._kept = kept
        self._follower = follower
        self._writes = writes
        self._environment = environment

    async def run(self) -> None:
        """Never returns. What fails is tried again."""
        pause = retry_seconds_first
        while True:
            try:
                await self._once()
                pause = retry_seconds_first
            except (KafkaFailed, KeyStoreError, TimeoutError) as error:
                log.warning("upkeep of the keys topic is tried again: %s", str(error) or "no answer in time")
                await asyncio.sleep(pause)
                pause = min(2 * pause, retry_seconds_max)

    async def _once(self) -> None:
        if repairs := self._kept.repairs()[:repairs_max]:
            log.warning(
                "%d records of the keys topic were followed by late copies, and are written again", len(repairs)
            )
            await self._written(Write(repairs))
            return
        seconds = self._filler_seconds()
        if seconds is None or seconds > 0:
            await self._follower.turn(seconds)
            return
        # Another store's may come first.
        await self._follower.turn(self._environment.random_fraction() * filler_spread_seconds)
        seconds = self._filler_seconds()
        if seconds is not None and seconds <= 0:
            await self._written(Write([filler()]))

    def _filler_seconds(self) -> float | None:
        """How long until a filler is due. At first nothing tells the broker's time but a record that is written now."""
        wait_ms = self._kept.filler_wait_ms
        if wait_ms is None:
            return None
        if self._follower.read_at is None:
            return 0.0
        return self._follower.read_at + wait_ms / 1000 - asyncio.get_running_loop().time()

    async def _written(self, write: Write) -> None:
        """Write, and wait until that has been read, so that nothing is written twice for want of reading."""
        before = self._follower.position
        async with asyncio.timeout(read_back_seconds_max):
            await self._writes.write(write)
            await self._follower.until(lambda: self._follower.position > before)
