"""The one interface of a log: append a batch, read from a position, tell start and end.

A log is an append-only sequence of encoded records a partition. It knows nothing of what they mean,
with one exception: it is handed the position that a batch was decided for. A log like Kafka stores the batch
wherever its end is, and answers where that was; a batch that landed elsewhere is void by the
position rule, for every reader. A log that holds a lock lands it there or not at all.

Three things can come of an append, and no others:

- it returns the offset of the batch's first record: the batch is durable there, whole;
- `AppendRefused`: the batch is not in the log and never will be;
- `OutcomeUnknown`: it may be there, may land later, or never. Nobody may guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class LogError(Exception):
    """The base of what a log raises. `partition` and `position` say where, where that is known."""

    def __init__(self, message: str, *, partition: int | None = None, position: int | None = None) -> None:
        super().__init__(message)
        self.partition = partition
        self.position = position


class AppendRefused(LogError):
    """The batch is not in the log and never will be."""


class OutcomeUnknown(LogError):
    """The batch may be in the log, may still land, or never will."""


class LogUnavailable(LogError):
    """The log could not be read or asked; trying again later may work."""


class LogUnreachable(LogUnavailable):
    """The log has not been reached for a while: trying again at once will not help."""


class LogCorrupt(LogError):
    """What is stored at a position is not what was written there. Never skipped; the partition stops."""


class LogClosed(LogError):
    """The log was closed; nothing was appended."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One encoded record and the offset at which the log holds it."""

    offset: int
    data: bytes


class Log(Protocol):
    """An append-only log of encoded records, by partition. Offsets start at 0 and rise; holes are legal."""

    @property
    def partitions(self) -> int:
        """How many partitions there are; fixed when the store is made."""
        ...

    @property
    def exclusive(self) -> bool:
        """True when this process alone can append, so that no answer can be stale and no batch void."""
        ...

    async def append(self, partition: int, position: int, batch: Sequence[bytes], run_ids: Sequence[str] = ()) -> int:
        """Store the batch whole, and return the offset of its first record once it is durable.

        `position` is the offset that the batch was decided for; `run_ids` are those of its records, for a log that
        keeps them in plain beside each. Raises `AppendRefused`, `OutcomeUnknown` or `LogClosed`.
        """
        ...

    async def read(self, partition: int, position: int, records_max: int = 1000) -> list[LogEntry]:
        """Return up to `records_max` entries at `position` and after, in order; empty at the end.

        May return fewer than there are, but none only when none follows. Raises `LogUnavailable` or `LogCorrupt`.
        """
        ...

    def fetch(self, partition: int, positions: Sequence[int]) -> list[bytes]:
        """Return the encoded records at exactly these positions, at once, from local storage.

        Raises `LogCorrupt` with the position where one is missing or damaged.
        """
        ...

    def stored(self, partition: int, position: int, end: int, records_max: int) -> list[LogEntry]:
        """Return up to `records_max` entries from `position` to before `end`, at once, from local storage.

        May return fewer than there are, but none only when there is none; `end` must have been applied. Raises
        `LogCorrupt`, and `LogUnavailable` for what must be copied again first.
        """
        ...

    async def start(self, partition: int) -> int:
        """Return the first offset that can be read (0 for a log that never forgets)."""
        ...

    async def end(self, partition: int) -> int:
        """Return the offset that the next record will get. Raises `LogUnavailable`."""
        ...

    def lost(self, partition: int) -> int:
        """Return how many records the log is known to have lost that it once held."""
        ...

    async def close(self) -> None:
        """Refuse what comes, finish or fail what waits, and release files and connections. Safe to repeat."""
        ...
