"""What the keys of a projection hold, and how it is stored: msgpack arrays, so a field is only ever added at the end.

Structs and not dataclasses: a row is read or written for nearly every record, and msgspec does it in well under a
microsecond.
"""

from __future__ import annotations

from typing import Final

import msgspec

from schemas.consumers import Scope, ScopeKind
from schemas.log_record import NO_POSITION
from schemas.values import RunStatus, SessionStatus, StartOutcome

PURGED: Final = "purged"


class SessionRow(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A session. Once purged, only the status is left."""

    status: str
    number: int = NO_POSITION
    created_at: int = 0
    ended_at: int | None = None
    key_id: bytes = b""
    changed_at: int = 0
    running: int = 0
    suspended: int = 0
    completed: int = 0
    failed: int = 0
    canceled: int = 0

    @property
    def purged(self) -> bool:
        """True when the session is gone for good."""
        return self.status == PURGED

    @property
    def public_status(self) -> SessionStatus:
        """The status that callers see; a purged session has none."""
        return SessionStatus(self.status)

    def counts(self) -> dict[RunStatus, int]:
        """How many runs are in each status."""
        return {status: getattr(self, status.value) for status in RunStatus}


class RunRow(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A run, and at which positions the records are that carried its changes.

    `number` is the position of its `run_started`, `owner` the number of its session or of its tree's
    root run. `link`, `intent` and `terminal` are positions, `NO_POSITION` where there is none.
    """

    agent_id: str
    session_id: str
    parent_run_id: str
    predecessor_run_id: str
    status: str
    outcome: str
    started_at: int
    updated_at: int
    number: int
    owner: int
    key_id: bytes
    link: int = NO_POSITION
    intent: int = NO_POSITION
    terminal: int = NO_POSITION
    record_count: int = 0

    @property
    def run_status(self) -> RunStatus:
        """The status as the value that callers see."""
        return RunStatus(self.status)

    @property
    def running(self) -> bool:
        """True until the run's one terminal change."""
        return self.status == RunStatus.RUNNING.value

    @property
    def stopped_at_start(self) -> bool:
        """True when the session had ended, so that the start decided `stop`."""
        return self.outcome == StartOutcome.STOP.value


class MemoryRow(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What is remembered of a run by an agent.

    `number` is the position of its first append, `NO_POSITION` where nothing is remembered. `generation` is the ID of
    the key of the memory that was purged last, empty where none was, and `purged` the generation of that one.
    """

    number: int = NO_POSITION
    key_id: bytes = b""
    generation: bytes = b""
    purged: bytes = b""

    @property
    def begun(self) -> bool:
        """True while anything is remembered."""
        return self.number != NO_POSITION


class ConsumerRow(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A named consumer. Once deleted, only that is left.

    `generation` is random, and tells it from others of its name. `place` is what it has committed, or where it began:
    the position to read on at, eight bytes, for each partition that it covers; empty for the start.
    """

    deleted: bool = False
    generation: str = ""
    scope_kind: str = ""
    scope_id: str = ""
    types: tuple[str, ...] = ()
    start_at: str = ""
    place: bytes = b""

    @property
    def scope(self) -> Scope:
        """Which records it reads."""
        return Scope(ScopeKind(self.scope_kind), self.scope_id)

    def moved_to(self, place: bytes) -> ConsumerRow:
        """Return the same consumer at another place."""
        return msgspec.structs.replace(self, place=place)


class Applied(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """How far a projection has applied the log.

    `position` is the offset after the last applied entry. `batch_start` is where the last counted batch starts,
    `batch_end` the offset after its last record applied, and `batch_digest` the SHA-256 over its encoded
    records between the two.
    """

    view_version: int
    position: int = 0
    batch_start: int = NO_POSITION
    batch_end: int = NO_POSITION
    batch_digest: bytes = b""
    appended_at: int = 0
    void_records: int = 0


encode_row: Final = msgspec.msgpack.Encoder().encode
decode_session: Final = msgspec.msgpack.Decoder(SessionRow).decode
decode_consumer: Final = msgspec.msgpack.Decoder(ConsumerRow).decode
decode_memory: Final = msgspec.msgpack.Decoder(MemoryRow).decode
decode_run: Final = msgspec.msgpack.Decoder(RunRow).decode
decode_applied: Final = msgspec.msgpack.Decoder(Applied).decode
