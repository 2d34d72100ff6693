"""What a projection on disk can raise.

::

    ProjectionError
    ├── ProjectionDamaged       what it holds cannot be trusted: throw it away and rebuild it from the log
    └── ProjectionUnavailable   it cannot be read or written now, a full disk perhaps: try again later
"""

from __future__ import annotations


class ProjectionError(Exception):
    """The base of what a projection raises."""


class ProjectionDamaged(ProjectionError):
    """What a projection holds cannot be trusted; it must be rebuilt from the log."""


class ProjectionUnavailable(ProjectionError):
    """A projection cannot be read or written now; trying again later may work."""
