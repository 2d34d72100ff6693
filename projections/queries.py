"""Questions about a projection that decisions, reads and routing ask alike."""

from __future__ import annotations

from typing import Protocol

from projections import layout
from projections.rows import ConsumerRow, MemoryRow, RunRow, SessionRow, decode_consumer, decode_memory


class Rows(Protocol):
    """Anything that knows the rows of sessions and runs."""

    def session(self, session_id: str) -> SessionRow | None:
        """The row of a session."""
        ...

    def run(self, run_id: str) -> RunRow | None:
        """The row of a run, also when its session was purged."""
        ...


def session_is_purged(rows: Rows, session_id: str) -> bool:
    """True when a session whose home this is has been purged."""
    row = rows.session(session_id)
    return row is not None and row.purged


def live_run(rows: Rows, run_id: str) -> RunRow | None:
    """A run that lives here and whose session has not been purged: a run of a purged session counts as missing."""
    row = rows.run(run_id)
    if row is None or not row.session_id:
        return row
    return None if session_is_purged(rows, row.session_id) else row


class Keys(Protocol):
    """Anything that knows the row at a key."""

    def get(self, key: bytes) -> bytes | None:
        """The row at a key."""
        ...


def memory_row(rows: Keys, agent_id: str, run_id: str) -> MemoryRow | None:
    """The row of a memory whose home this is; also of one that was purged."""
    data = rows.get(layout.memory_key(agent_id, run_id))
    return None if data is None else decode_memory(data)


def consumer_row(rows: Keys, name: str) -> ConsumerRow | None:
    """The row of a consumer whose home this is; also of one that was deleted."""
    data = rows.get(layout.consumer_key(name))
    return None if data is None else decode_consumer(data)
