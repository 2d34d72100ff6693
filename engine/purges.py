"""Finishing purges: once `session_purged` is in the log, every data key of the session goes.

The order is the log first, then the keys: a key that went first would lose a session that was never purged.
A crash between the two is finished at the next start, from a watermark kept with the keys.
"""

from __future__ import annotations

import asyncio
import logging

from engine.decide.sessions import session_owner
from engine.environment import Environment
from engine.keys import KeysError, KeyStore
from projections import layout
from projections.view import View

log = logging.getLogger("runstore.purges")

_SCAN_ROWS = 1000


class Purges:
    """Deletes the keys of purged sessions, in log order for each partition, and remembers how far it came."""

    def __init__(self, keys: KeyStore, environment: Environment, partitions: int) -> None:
        self._keys = keys
        self._environment = environment
        self._watermarks = [_read(keys.get_value(_name(partition))) for partition in range(partitions)]
        self._last: list[asyncio.Task[None] | None] = [None] * partitions
        self._broken = [False] * partitions

    async def sweep(self, partition: int, view: View) -> None:
        """Finish what a crash left: delete the keys of every session purged after the watermark.

        A log that was restored from a backup may end before the watermark, which then says nothing of what follows.
        """
        self._watermarks[partition] = min(self._watermarks[partition], view.applied().position)
        begin = layout.purge_key(self._watermarks[partition])
        position = None
        while page := view.scan(begin, layout.PURGE + b"\xff" * 9, _SCAN_ROWS):
            for key, session_id in page:
                await self._keys.purge(session_owner(session_id.decode()))
                position = layout.read_number(key)
            begin = page[-1][0] + b"\x00"
        if position is not None:
            await self._advance(partition, position + 1)

    def applied(self, partition: int, session_id: str, position: int) -> None:
        """A `session_purged` was applied: start deleting its keys."""
        before = self._last[partition]
        self._last[partition] = asyncio.create_task(self._finish(partition, session_id, position, before))

    async def finished(self, partition: int, session_id: str) -> bool:
        """Wait until the keys of a purged session are gone; False when that failed and must be repeated."""
        running = self._last[partition]
        if running is not None:
            await asyncio.wait([running])
        try:
            # Cheap when all is done, and finishes what failed: an owner without keys may still have bytes in a file.
            await self._keys.purge(session_owner(session_id))
        except KeysError as error:
            log.error("the keys of purged session %r are not deleted yet: %s", session_id, error)
            return False
        return True

    async def close(self) -> None:
        """Wait for what runs."""
        running = [task for task in self._last if task is not None]
        if running:
            await asyncio.wait(running)

    async def _finish(self, partition: int, session_id: str, position: int, before: asyncio.Task[None] | None) -> None:
        """Delete the keys at once, so that purges share the work, and advance the watermark in log order."""
        done = False
        try:
            self._environment.failpoint("purge.before_keys")
            await self._keys.purge(session_owner(session_id))
            self._environment.failpoint("purge.after_keys")
            done = True
        except KeysError as error:
            log.error("the keys of purged session %r are not deleted yet: %s", session_id, error)
        if before is not None:
            await asyncio.wait([before])
        # After a failure the watermark stays, so that the next start sweeps again from there.
        self._broken[partition] = self._broken[partition] or not done
        if not self._broken[partition]:
            try:
                await self._advance(partition, position + 1)
            except KeysError as error:
                log.error("partition %d: how far purges have finished could not be kept: %s", partition, error)

    async def _advance(self, partition: int, watermark: int) -> None:
        if watermark > self._watermarks[partition]:
            self._watermarks[partition] = watermark
            await self._keys.put_value(_name(partition), watermark.to_bytes(8, "big"))


def _name(partition: int) -> str:
    return f"purges finished in partition {partition}"


def _read(data: bytes | None) -> int:
    return int.from_bytes(data, "big") if data is not None else 0
