"""An embedded log in a folder as what is copied to: it takes sparse positions, so holes stay."""

from __future__ import annotations

from collections.abc import Sequence

from engine.logs.embedded import EmbeddedLog
from engine.logs.interface import LogEntry, LogError
from engine.migration.errors import MigrationStopped
from engine.migration.pieces import Piece


class EmbeddedTarget:
    """The log that a store on Kafka is copied to."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log

    async def end(self, partition: int) -> int:
        """See `Target`."""
        return await self._log.end(partition)

    async def read(self, partition: int, offset: int) -> Sequence[LogEntry]:
        """See `Target`."""
        return await self._log.read(partition, offset)

    def between(self, begin: int, end: int) -> list[LogEntry]:  # noqa: ARG002 - a hole of any size
        """See `Target`: a hole stays one."""
        return []

    async def write(self, partition: int, piece: Piece) -> None:
        """See `Target`."""
        try:
            await self._log.append(partition, piece.position, [data for _, data in piece.records])
        except LogError as error:
            raise MigrationStopped(
                f"the new log cannot be written: {error}",
                "look for the cause, such as a full disk, then repeat the command: it goes on where it stopped",
            ) from error
