"""Named consumers: who reads what, and up to where it has been dealt with.

A **position** of a consumer is where to read on, for each partition that its scope covers. Committed ones only grow, so
what was once committed is never handed out again, and what was not is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ScopeKind(StrEnum):
    """What a consumer's records are of."""

    ALL = "all"
    SESSION = "session"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Scope:
    """Which records a consumer reads: all, or those of one session or run, whose ID it is."""

    kind: ScopeKind
    id: str = ""


class StartAt(StrEnum):
    """Where a consumer begins: with all that there is, or with what comes after it was made."""

    START = "start"
    NOW = "now"


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer. `types` sorted, none: all; `cursor` up to where it has committed, empty where it is at the start."""

    name: str
    scope: Scope
    types: tuple[str, ...]
    start_at: StartAt
    cursor: str
