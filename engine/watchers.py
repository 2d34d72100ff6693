"""Who waits for news of a partition, and of what: a run, a session, or everything.

Whoever applies records tells of them, at once and without waiting; what is told is only that there is something new,
and each reads for itself how much. So nothing is kept for one who is slow. News of everything – the partition was
opened again, has stopped, or has purged a session – is a **reset**: what was read before may not count any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from schemas.log_record import Kind, LogRecord


@dataclass(frozen=True, slots=True)
class Watched:
    """What one waits for: the records of a run, of a session, or, where neither is named, all."""

    run_id: str = ""
    session_id: str = ""


EVERYTHING = Watched()


class Watchers:
    """The events that are set when there is news. Belongs to one event loop."""

    def __init__(self, joined: Callable[[], None]) -> None:
        """`joined` is called whenever someone begins to watch."""
        self._joined = joined
        self._waiting: dict[Watched, set[asyncio.Event]] = {}
        self._on_reset: list[Callable[[], None]] = []
        self.resets = 0
        """How often what was read before may have ceased to count."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def join(self, watched: Watched, event: asyncio.Event) -> None:
        """Set the event whenever there is news."""
        self._waiting.setdefault(watched, set()).add(event)
        self._joined()

    def leave(self, watched: Watched, event: asyncio.Event) -> None:
        """No more of that. Safe to repeat."""
        waiting = self._waiting.get(watched, set())
        waiting.discard(event)
        if not waiting:
            self._waiting.pop(watched, None)

    def on_reset(self, action: Callable[[], None]) -> None:
        """Call this at each reset, before anyone is woken."""
        self._on_reset.append(action)

    def tell(self, records: Sequence[LogRecord]) -> None:
        """These records have been applied."""
        for record in records:
            if record.kind == Kind.SESSION_PURGED:
                self.reset()
                return
        if not self._waiting:
            return
        news: set[Watched] = set()
        for record in records:
            if record.kind == Kind.RECORD:
                news |= {EVERYTHING, Watched(run_id=record.run_id), Watched(session_id=record.session_id)}
        for watched in news:
            self._wake(watched)

    def reset(self) -> None:
        """What was read before may not count any more, or nothing more will come."""
        self.resets += 1
        for action in self._on_reset:
            action()
        for watched in self._waiting:
            self._wake(watched)

    def _wake(self, watched: Watched) -> None:
        for event in self._waiting.get(watched, ()):
            event.set()
