"""The rival: the `eventsourcing` package on SQLite, with the same contents, and callers as threads.

As its documentation has it in production: one application object for all threads, its SQLite module, a
database file. It turns write-ahead logging on by itself; `synchronous` is SQLite's own default, `FULL`, and both are
checked here. A connection is used by one writer at a time, in the order in which they come.

What makes it cheaper than a real use of it: aggregates are kept by their caller and never read back, no
snapshots are taken, nothing is encrypted or compressed.
"""
# ruff: noqa: ARG002 # an event's fields are its method's arguments
# The package is in the benchmarks' own environment only, so its types may be unknown.
# mypy: disable-error-code="misc,untyped-decorator"

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, cast
from uuid import UUID

from eventsourcing.application import Application  # type: ignore[import-not-found, unused-ignore]
from eventsourcing.domain import Aggregate, event  # type: ignore[import-not-found, unused-ignore]
from eventsourcing.persistence import StoredEvent  # type: ignore[import-not-found, unused-ignore]

from bench.measuring import Measured, measure_threads
from bench.ours import Load
from bench.workers import Handler
from bench.workload import AGENT, CHILD_AGENT, TERMINAL_KEY, Child, Content, child, contents

_TOPIC: Final = "bench.rival:Run.Recorded"
_FULL: Final = 2


class Run(Aggregate):
    """A run as an aggregate: each record of it is an event that has the record's fields."""

    @event("Started")
    def __init__(
        self, event_key: str, run_id: str, agent_id: str, session_id: str, turn_id: str, kind: str, payload: str
    ) -> None:
        self.run_id = run_id
        self.session_id = session_id
        self.records = 1

    @event("Recorded")
    def record(
        self, event_key: str, run_id: str, agent_id: str, session_id: str, turn_id: str, kind: str, payload: str
    ) -> None:
        """Add a record."""
        self.records += 1


def make_handler(folder: Path) -> Handler:
    """Open an application and return what measures `Application.save` on it; None closes it."""
    return _handler(_open(folder / "rival.sqlite"), Caller)


def make_recorder_handler(folder: Path) -> Handler:
    """The same for what lies below: its recorder alone, given events that are encoded already."""
    return _handler(_open(folder / "recorder.sqlite"), RecorderCaller)


def _handler(
    application: Application[UUID], make: Callable[[Application[UUID], int], Caller | RecorderCaller]
) -> Handler:
    kept: list[Caller | RecorderCaller] = []

    def handle(load: Load | None) -> Measured | None:
        if load is None:
            application.close()
            return None
        kept.extend(make(application, number) for number in range(len(kept), load.callers))
        callers = kept[: load.callers]
        return measure_threads(load.seconds, [each.one if load.kind == "one" else each.three for each in callers])

    return handle


class Caller:
    """One thread's run, and the commands that it issues."""

    def __init__(self, application: Application[UUID], number: int) -> None:
        self._application = application
        self._session = f"rival-sess-{number:06d}"
        self._run = f"rival-run-{number:06d}"
        self._contents: Iterator[Content] = contents(f"one-{number:04d}")
        self._written = 0
        self._kept = Run(f"{self._run}/start", self._run, AGENT, self._session, "turn-1", "run_started", "{}")
        application.save(self._kept)

    def one(self) -> None:
        """Save one event on the run that the caller keeps."""
        content = next(self._contents)
        self._written += 1
        key = f"{self._run}/{self._written}"
        self._kept.record(key, self._run, AGENT, self._session, "turn-1", content.type, content.payload)
        self._application.save(self._kept)

    def three(self) -> None:
        """Save a new aggregate with three events in one transaction."""
        told = self._next_child()
        key = f"{self._run}/{self._written}"
        run = Run(key, self._run, AGENT, self._session, "turn-1", told.link.type, told.link.payload)
        for event_key, content in ((f"{told.run_id}/1", told.started), (TERMINAL_KEY, told.canceled)):
            run.record(event_key, told.run_id, CHILD_AGENT, self._session, "turn-1", content.type, content.payload)
        self._application.save(run)

    def _next_child(self) -> Child:
        self._written += 1
        return child(f"{self._run}/agent/{self._written:07d}", self._run)


class RecorderCaller:
    """The same commands with the payloads as the events' encoded state: what SQLite and the recorder can do at best."""

    def __init__(self, application: Application[UUID], number: int) -> None:
        self._insert: Callable[[list[StoredEvent]], object] = application.recorder.insert_events
        self._number = number
        self._run = f"recorder-run-{number:06d}"
        self._contents: Iterator[Content] = contents(f"one-{number:04d}")
        self._written = 0

    def one(self) -> None:
        """Insert one event."""
        self._written += 1
        self._insert(
            [StoredEvent(UUID(int=self._number), self._written, _TOPIC, next(self._contents).payload.encode())]
        )

    def three(self) -> None:
        """Insert three events of a new aggregate in one transaction."""
        self._written += 1
        told = child(f"{self._run}/agent/{self._written:07d}", self._run)
        # High bits first, as random IDs would: the index is not written in order.
        owner = UUID(int=(hash((self._number, self._written)) & (2**63 - 1)) << 64 | self._number << 32 | self._written)
        self._insert(
            [
                StoredEvent(owner, version, _TOPIC, content.payload.encode())
                for version, content in enumerate((told.link, told.started, told.canceled), 1)
            ]
        )


def _open(path: Path) -> Application[UUID]:
    application: Application[UUID] = Application(
        env={
            "PERSISTENCE_MODULE": "eventsourcing.sqlite",
            "SQLITE_DBNAME": str(path),
            "SQLITE_LOCK_TIMEOUT": "10",
        }
    )
    datastore: Any = cast(Any, application.factory).datastore
    with datastore.transaction(commit=False) as cursor:
        for pragma, expected in (("journal_mode", "wal"), ("synchronous", _FULL)):
            cursor.execute(f"PRAGMA {pragma}")
            found = cursor.fetchone()[0]
            if found != expected:
                raise RuntimeError(f"the rival would run with {pragma}={found}, not {expected}: no fair comparison")
    return application
