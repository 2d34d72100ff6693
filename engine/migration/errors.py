"""Why a store was not moved, told apart by who can do what about it.

::

    MigrationError
    ├── MigrationRefused    nothing was changed: the source or the target is not what can be moved from, or to
    │   └── SourceInUse     somebody else has the source open, or writes to it
    ├── MigrationStopped    it was begun and cannot go on now; the same command goes on where it stopped
    └── CopyWentWrong       what the target holds is not what the source holds; it must be copied from the start again
"""

from __future__ import annotations


class MigrationError(Exception):
    """The base of what moving a store raises; `advice` says what to do next."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice


class MigrationRefused(MigrationError):
    """The store cannot be moved so. The source is as it was."""


class SourceInUse(MigrationRefused):
    """Somebody else has the source open, or has written to it meanwhile."""


class MigrationStopped(MigrationError):
    """It was begun, and cannot go on now. The source serves as before; the same command goes on from here."""


class CopyWentWrong(MigrationError):
    """The target holds something else than the source at a position, as where a batch was stored twice."""

    def __init__(self, partition: int, offset: int, why: str) -> None:
        super().__init__(f"partition {partition}, offset {offset}: {why}")
        self.partition = partition
        self.offset = offset
