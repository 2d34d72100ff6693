"""Finishing purges: once `session_purged` or `memory_purged` is in the log, every data key of its owner goes.

The order is the log first, then the keys: a key that went first would lose a session that was never purged.
A deletion that fails is tried again until it works, or the key store has failed for good. A crash between the two is
finished at the next start, from a watermark kept with the keys: all purges before it are finished.

Several stores of one log share the watermark, and the last that writes it wins. Each may raise it, since each deletes
the keys of every purge that it applies. One that is behind lowers it: that is safe, and costs the next start a few
deletions that find nothing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from engine.environment import Environment
from engine.keys import KeysError, KeyStore
from projections import layout
from projections.view import View

log = logging.getLogger("runstore.purges")

retry_seconds_first: Final = 0.2
retry_seconds_max: Final = 10.0
_SCAN_ROWS: Final = 1000


class Purges:
    """Deletes the keys of purged owners, in each partition, and remembers up to where all are gone."""

    def __init__(self, keys: KeyStore, environment: Environment, partitions: int) -> None:
        self._keys = keys
        self._environment = environment
        self._partitions = [_Partition(_read(keys.get_value(_name(number)))) for number in range(partitions)]

    async def sweep(self, partition: int, view: View) -> None:
        """Finish what a crash left: delete the keys of every owner purged after the watermark.

        A log that was restored from a backup may end before the watermark, which then says nothing of what follows.
        """
        mine = self._partitions[partition]
        end = view.applied().position
        # What was known of a log that has been cut since says nothing of this one. All that counts is in the view, and
        # is noted before anything is awaited: what is not noted as unfinished is taken for finished.
        mine.end = end
        mine.unfinished = _purged_since(view, min(mine.watermark, end))
        purged = list(mine.unfinished)
        if end < mine.watermark:
            await self._keep(partition, end)
            mine.watermark = end
        for owner in purged:
            await self._keys.purge(owner)
            mine.unfinished.pop(owner, None)
        if purged:
            await self._advance(partition, end)

    def applied(self, partition: int, owner: str, position: int) -> None:
        """A purge of an owner was applied: start deleting its keys."""
        mine = self._partitions[partition]
        mine.unfinished[owner] = position
        mine.end = position + 1
        mine.last = asyncio.create_task(self._finish(partition, owner, mine.last))

    async def finished(self, partition: int, owner: str) -> bool:
        """Wait until the keys of a purged owner are gone; False when that failed and must be repeated."""
        running = self._partitions[partition].last
        if running is not None:
            await asyncio.wait([running])
        # Cheap when all is done, and finishes what failed: an owner without keys may still have bytes in a file.
        return await self._delete(partition, owner)

    async def close(self) -> None:
        """Wait for what runs; what has failed and waits to be tried again is left to the next start."""
        running = [mine.last for mine in self._partitions if mine.last is not None]
        if running:
            await asyncio.wait(running)
        retries = [mine.retry for mine in self._partitions if mine.retry is not None]
        for retry in retries:
            retry.cancel()
        await asyncio.gather(*retries, return_exceptions=True)

    async def _finish(self, partition: int, owner: str, before: asyncio.Task[None] | None) -> None:
        """Delete the keys at once, so that purges share the work, and advance the watermark in log order."""
        mine = self._partitions[partition]
        if not await self._delete(partition, owner) and mine.retry is None:
            mine.retry = asyncio.create_task(self._retry(partition))
        if before is not None:
            await asyncio.wait([before])
        await self._advance_over_finished(partition)

    async def _delete(self, partition: int, owner: str) -> bool:
        try:
            self._environment.failpoint("purge.before_keys")
            await self._keys.purge(owner)
            self._environment.failpoint("purge.after_keys")
        except KeysError as error:
            log.error("the keys of purged %r are not deleted yet: %s", owner, error)
            return False
        self._partitions[partition].unfinished.pop(owner, None)
        return True

    async def _retry(self, partition: int) -> None:
        """Try again what failed, until all of it is done."""
        mine = self._partitions[partition]
        seconds = retry_seconds_first
        try:
            while mine.unfinished and not self._keys.failed:
                await self._environment.sleep(seconds)
                seconds = min(2 * seconds, retry_seconds_max)
                for owner in list(mine.unfinished):
                    await self._delete(partition, owner)
                await self._advance_over_finished(partition)
        finally:
            mine.retry = None

    async def _advance_over_finished(self, partition: int) -> None:
        mine = self._partitions[partition]
        try:
            await self._advance(partition, min(mine.unfinished.values(), default=mine.end))
        except KeysError as error:
            log.error("partition %d: how far purges have finished could not be kept: %s", partition, error)

    async def _advance(self, partition: int, watermark: int) -> None:
        mine = self._partitions[partition]
        if watermark > mine.watermark:
            mine.watermark = watermark
            await self._keep(partition, watermark)

    async def _keep(self, partition: int, watermark: int) -> None:
        await self._keys.put_value(_name(partition), watermark.to_bytes(8, "big"))


class _Partition:
    """How far the purges of one partition have come: all before `watermark` are finished, those known end at `end`."""

    def __init__(self, watermark: int) -> None:
        self.watermark = watermark
        self.end = 0
        self.unfinished: dict[str, int] = {}
        self.last: asyncio.Task[None] | None = None
        self.retry: asyncio.Task[None] | None = None


def _purged_since(view: View, position: int) -> dict[str, int]:
    """The owners purged at a position and after, each with where."""
    found: dict[str, int] = {}
    begin = layout.purge_key(position)
    while page := view.scan(begin, layout.PURGE + b"\xff" * 9, _SCAN_ROWS):
        found.update({owner.decode(): layout.read_number(key) for key, owner in page})
        begin = page[-1][0] + b"\x00"
    return found


def _name(partition: int) -> str:
    return f"purges finished in partition {partition}"


def _read(data: bytes | None) -> int:
    return int.from_bytes(data, "big") if data is not None else 0
