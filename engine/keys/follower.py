"""Following the keys topic: a reader with a client of its own, always at its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from engine.kafka.client import Fetched, KafkaClient
from engine.kafka.errors import CannotConnect, KafkaFailed, OutOfRange
from engine.keys.errors import KeyStoreError
from engine.keys.kept import Effects, Kept

log = logging.getLogger("runstore.keys")

fetch_seconds_max: Final = 2.0
"""How long a read may take beside the waiting for something new."""

poll_seconds: Final = 1.0
"""How long a read waits at the end; what comes meanwhile ends it at once."""

stall_seconds_max: Final = 5.0
"""How long opening goes on without an answer."""

retry_seconds_first: Final = 0.05
retry_seconds_max: Final = 0.5


class Follower:
    """Reads partition 0 of the topic into `kept`, and tells `on_read` of each read that brought something."""

    def __init__(self, client: KafkaClient, topic: str, kept: Kept, on_read: Callable[[Effects], None]) -> None:
        self._client = client
        self._topic = topic
        self._kept = kept
        self._on_read = on_read
        self._turn = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.position = 0
        """The offset that comes next."""
        self.read_at: float | None = None
        """When records were last read as they came, in the loop's seconds."""
        self.why = ""
        """What the last read failed with."""

    async def read_to_end(self) -> None:
        """Read from the start to the end that the topic has now. Raises `KafkaFailed` where no broker answers."""
        loop = asyncio.get_running_loop()
        end, progress = -1, loop.time()
        while end < 0 or self.position < end:
            try:
                if end < 0:
                    end = await self._client.end(self._topic, 0, fetch_seconds_max)
                    self.position = await self._client.start(self._topic, 0, fetch_seconds_max)
                    continue
                self._take(await self._client.fetch(self._topic, 0, self.position, fetch_seconds_max))
                progress = loop.time()
            except CannotConnect:
                raise
            except KafkaFailed:
                if loop.time() - progress > stall_seconds_max:
                    raise
                await asyncio.sleep(retry_seconds_first)

    def start(self) -> asyncio.Task[None]:
        """Follow from here on; the task ends only when it is cancelled, or by a fault of this program's."""
        self._task = asyncio.create_task(self._follow(), name="keys topic")
        return self._task

    def close(self) -> None:
        """Have all that wait fail."""
        self._closed = True
        self._pass()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until that holds of what was read. Raises `KeyStoreError` once this follows no more."""
        while not holds():
            if self._closed or self._task is None or self._task.done():
                raise KeyStoreError(None, f"the keys topic {self._topic} is not followed any more")
            await self._turn.wait()

    async def turn(self, seconds: float | None) -> None:
        """Wait for the next read that brings something, no longer than that."""
        try:
            async with asyncio.timeout(seconds):
                await self._turn.wait()
        except TimeoutError:
            pass

    async def _follow(self) -> None:
        pause = retry_seconds_first
        while True:
            try:
                if self.position < 0:
                    self.position = await self._client.start(self._topic, 0, fetch_seconds_max)
                fetched = await self._client.fetch(
                    self._topic, 0, self.position, fetch_seconds_max, wait_seconds=poll_seconds
                )
                pause, self.why = retry_seconds_first, ""
                if fetched.following > self.position:
                    self.read_at = asyncio.get_running_loop().time()
                    self._take(fetched)
            except OutOfRange as error:
                log.error(
                    "the keys topic %s was cut or made anew, and is read again from its start; keys that it has lost "
                    "are lost when this store is closed: %s",
                    self._topic,
                    error,
                )
                self.position = -1
                await asyncio.sleep(pause)
            except KafkaFailed as error:
                if not self.why:
                    log.warning("the keys topic %s cannot be followed now: %s", self._topic, error)
                self.why = str(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, retry_seconds_max)

    def _take(self, fetched: Fetched) -> None:
        effects = self._kept.fold(fetched.records)
        self.position = max(self.position, fetched.following)
        for why in effects.unreadable:
            log.error("the keys topic %s, %s; passed over", self._topic, why)
        self._on_read(effects)
        self._pass()

    def _pass(self) -> None:
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()
