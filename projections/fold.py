"""Fold: the effect of one counted log record on the views. Pure, and the only code that changes a projection.

Live writes, gap reads, catching up and rebuilds all come through `fold`, with the records of whole
commands in log order. It reads only what is plain in a record, so it works on a log whose keys are gone.
It checks nothing that `decide` decided: what counts in the log has happened. A record that cannot
follow from what came before means that log and projection do not belong together, and raises `FoldError`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from projections import layout
from projections.layout import number_bytes
from projections.queries import consumer_row, memory_row
from projections.rows import PURGED, ConsumerRow, MemoryRow, RunRow, SessionRow, encode_row
from projections.view import Overlay
from schemas.consumers import ScopeKind, StartAt
from schemas.log_record import NO_POSITION, Kind, LogRecord
from schemas.owners import purged_owner
from schemas.values import CANCELLATION_INTENT, RUN_STARTED, RunStatus, SessionStatus

_CONSUMER_KINDS: Final = frozenset({Kind.CONSUMER_CREATED, Kind.CONSUMER_COMMITTED, Kind.CONSUMER_DELETED})


class FoldError(Exception):
    """A counted record does not follow from the ones before it; `position` is where it stands."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(f"position {position}: {message}")
        self.position = position


def fold(view: Overlay, record: LogRecord) -> None:
    """Apply one counted record."""
    kind = record.kind
    if kind == Kind.RECORD:
        if record.type == RUN_STARTED:
            _run_started(view, record)
        else:
            _run_changed(view, record)
    elif kind == Kind.SESSION_CREATED:
        _session_created(view, record)
    elif kind == Kind.SESSION_ENDED:
        _session_ended(view, record)
    elif kind == Kind.SESSION_PURGED:
        _session_purged(view, record)
    elif kind == Kind.RUN_RESERVED:
        view.put(layout.reserved_key(record.run_id), layout.pack_home(record.home))
    elif kind == Kind.MEMORY_APPENDED:
        _memory_appended(view, record)
    elif kind == Kind.MEMORY_PURGED:
        _memory_purged(view, record)
    elif kind in _CONSUMER_KINDS:
        _consumer_changed(view, record)
    elif kind != Kind.BARRIER:
        raise FoldError(record.position, f"a record of unknown kind {kind!r}")


def _session_created(view: Overlay, record: LogRecord) -> None:
    row = SessionRow(
        status=SessionStatus.ACTIVE.value,
        number=record.position,
        created_at=record.timestamp,
        key_id=record.key_id,
        changed_at=record.appended_at,
    )
    view.put_session(record.session_id, row)
    view.put(layout.session_list_key(record.timestamp, record.session_id), b"")


def _session_ended(view: Overlay, record: LogRecord) -> None:
    row = _session(view, record)
    view.put_session(
        record.session_id,
        msgspec.structs.replace(
            row,
            status=SessionStatus.ENDED.value,
            ended_at=record.timestamp,
            changed_at=record.appended_at,
        ),
    )


def _session_purged(view: Overlay, record: LogRecord) -> None:
    row = _session(view, record)
    view.delete(layout.session_list_key(row.created_at, record.session_id))
    view.delete_ranges(layout.owned_ranges(row.number))
    view.put(layout.purge_key(record.position), purged_owner(record).encode())
    view.put_session(record.session_id, SessionRow(status=PURGED))


def _run_started(view: Overlay, record: LogRecord) -> None:
    run_id, number, session_id = record.run_id, record.position, record.session_id
    if session_id:
        owner = _session(view, record).number
        view.put(layout.session_runs_prefix(owner) + number_bytes(number), run_id.encode())
        _count(view, record, None, RunStatus.RUNNING.value)
    elif record.parent_run_id:
        owner = _run(view, record, record.parent_run_id).owner
    else:
        owner = number
    if record.predecessor_run_id:
        predecessor = _run(view, record, record.predecessor_run_id)
        view.put(layout.successors_prefix(owner, predecessor.number) + number_bytes(number), run_id.encode())
    row = RunRow(
        agent_id=record.agent_id,
        session_id=session_id,
        parent_run_id=record.parent_run_id,
        predecessor_run_id=record.predecessor_run_id,
        status=RunStatus.RUNNING.value,
        outcome=record.start_outcome,
        started_at=record.timestamp,
        updated_at=record.appended_at,
        number=number,
        owner=owner,
        key_id=record.key_id,
        # A child's link is the record right before its start, in the same command.
        link=number - 1 if record.parent_run_id else NO_POSITION,
        record_count=1,
    )
    view.put_run(run_id, row)
    _index(view, record, row)


def _run_changed(view: Overlay, record: LogRecord) -> None:
    row = _run(view, record, record.run_id)
    if record.terminal_status != "none":
        if row.session_id:
            _count(view, record, row.status, record.terminal_status)
        changed = msgspec.structs.replace(
            row,
            status=record.terminal_status,
            terminal=record.position,
            updated_at=record.appended_at,
            record_count=row.record_count + 1,
        )
    elif record.type == CANCELLATION_INTENT:
        changed = msgspec.structs.replace(
            row,
            intent=record.position,
            updated_at=record.appended_at,
            record_count=row.record_count + 1,
        )
    else:
        changed = msgspec.structs.replace(row, record_count=row.record_count + 1)
    view.put_run(record.run_id, changed)
    _index(view, record, row)


def _memory_appended(view: Overlay, record: LogRecord) -> None:
    row = memory_row(view, record.agent_id, record.run_id) or MemoryRow()
    if not row.begun:
        row = msgspec.structs.replace(row, number=record.position, key_id=record.key_id)
        view.put(layout.memory_key(record.agent_id, record.run_id), encode_row(row))
    position = number_bytes(record.position)
    view.put(layout.memory_appends_prefix(row.number) + position, b"")
    alike = layout.memory_alike_key(row.number, record.event_key)
    view.put(alike, (view.get(alike) or b"") + position)


def _memory_purged(view: Overlay, record: LogRecord) -> None:
    row = memory_row(view, record.agent_id, record.run_id)
    if row is None or not row.begun:
        raise FoldError(record.position, f"{record.kind} of run {record.run_id!r}, of which nothing is remembered")
    view.delete_ranges(layout.memory_ranges(row.number))
    view.put(layout.purge_key(record.position), purged_owner(record).encode())
    after = MemoryRow(generation=row.key_id, purged=row.generation)
    view.put(layout.memory_key(record.agent_id, record.run_id), encode_row(after))


def _consumer_changed(view: Overlay, record: LogRecord) -> None:
    name = record.consumer
    row = consumer_row(view, name)
    there = row is not None and not row.deleted
    if there == (record.kind == Kind.CONSUMER_CREATED):
        raise FoldError(record.position, f"{record.kind} of consumer {name!r}, which is {'' if there else 'not '}there")
    if record.kind == Kind.CONSUMER_CREATED:
        kind = ScopeKind.SESSION if record.session_id else ScopeKind.RUN if record.run_id else ScopeKind.ALL
        row = ConsumerRow(
            generation=record.event_key,
            scope_kind=kind.value,
            scope_id=record.session_id or record.run_id,
            types=tuple(record.type.split(",")) if record.type else (),
            start_at=StartAt.NOW.value if record.place else StartAt.START.value,
            place=record.place,
        )
    elif record.kind == Kind.CONSUMER_COMMITTED and row is not None:
        row = row.moved_to(record.place)
    else:
        row = ConsumerRow(deleted=True)
    view.put(layout.consumer_key(name), encode_row(row))


def _index(view: Overlay, record: LogRecord, row: RunRow) -> None:
    """Put a record into the indexes by run, by session, by type and by event key."""
    owner, run, position = row.owner, row.number, number_bytes(record.position)
    view.put(layout.run_records_prefix(owner, run) + position, b"")
    view.put(layout.run_types_prefix(owner, run, record.type) + position, b"")
    view.put(layout.event_key(owner, run, record.event_key), position)
    if row.session_id:
        view.put(layout.session_records_prefix(owner) + position, b"")
        view.put(layout.session_types_prefix(owner, record.type) + position, b"")


def _count(view: Overlay, record: LogRecord, before: str | None, after: str) -> None:
    """Move one run of the session from one status to another in the counts."""
    row = _session(view, record)
    changes = {after: getattr(row, after) + 1}
    if before is not None:
        changes[before] = getattr(row, before) - 1
    view.put_session(record.session_id, msgspec.structs.replace(row, **changes))


def _session(view: Overlay, record: LogRecord) -> SessionRow:
    row = view.session(record.session_id)
    if row is None or row.purged:
        raise FoldError(record.position, f"{record.kind} in session {record.session_id!r}, which is not there")
    return row


def _run(view: Overlay, record: LogRecord, run_id: str) -> RunRow:
    row = view.run(run_id)
    if row is None:
        raise FoldError(record.position, f"{record.type} of run {record.run_id!r}: run {run_id!r} is not there")
    return row
