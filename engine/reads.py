"""Reads of one partition: values and pages made from its projection, with records opened from its log.

Every function takes the state of a partition that has answered for being new enough, and returns a
value or a refusal. Nothing here waits or writes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.cursors import Cursors, run_subject, session_subject
from engine.decide.common import cancellation_reason, purged_refusal, run_not_found
from engine.decide.sessions import session_not_found, session_value
from engine.opener import Opener
from projections import layout
from projections.layout import number_bytes, read_number
from projections.queries import live_run
from projections.rows import RunRow, SessionRow
from projections.view import View
from schemas import limits
from schemas.payloads import ChildRunLinkedPayload
from schemas.refusals import Code, Refusal, invalid, refuse
from schemas.values import (
    CHILD_RUN_LINKED,
    Checkpoint,
    ChildLink,
    Page,
    Record,
    RunDetail,
    RunMeta,
    RunStatus,
    Session,
    SessionDetail,
    SessionStatus,
    StartOutcome,
)

RUN_STATUSES = frozenset(status.value for status in RunStatus)
_SCAN_ROWS = 1000
_FETCH_RECORDS = 64


@dataclass(frozen=True, slots=True)
class Reader:
    """One partition as reads see it: its views, and how its records are opened."""

    view: View
    opener: Opener
    cursors: Cursors

    def session_row(self, session_id: str) -> SessionRow | Refusal:
        """The row of a session that is there."""
        row = self.view.session(session_id)
        if row is None:
            return session_not_found(session_id)
        return purged_refusal(session_id) if row.purged else row

    def run_row(self, run_id: str) -> RunRow | Refusal:
        """The row of a run that is there; one of a purged session is not."""
        row = live_run(self.view, run_id)
        return run_not_found(run_id) if row is None else row

    def session(self, session_id: str) -> Session | Refusal:
        """A session."""
        row = self.session_row(session_id)
        return row if isinstance(row, Refusal) else session_value(session_id, row)

    def session_status(self, session_id: str) -> SessionStatus | Refusal:
        """A session's status."""
        row = self.session_row(session_id)
        return row if isinstance(row, Refusal) else row.public_status

    def session_detail(self, session_id: str) -> SessionDetail | Refusal:
        """A session, how its runs stand, and when its newest log entry was appended."""
        row = self.session_row(session_id)
        if isinstance(row, Refusal):
            return row
        prefix = layout.session_records_prefix(row.number)
        newest = self.view.scan(prefix, _after(prefix), 1, backwards=True)
        last = row.changed_at
        if newest:
            last = max(last, self.opener.plain(read_number(newest[0][0])).appended_at)
        return SessionDetail(session_value(session_id, row), row.counts(), last)

    def runs_of_session(self, session_id: str, statuses: Sequence[str]) -> tuple[RunMeta, ...] | Refusal:
        """The session's runs in start order; of these statuses only, where any are given."""
        for status in statuses:
            if status not in RUN_STATUSES:
                return invalid(f"there is no run status {status!r}", session_id=session_id)
        row = self.session_row(session_id)
        if isinstance(row, Refusal):
            return row
        prefix = layout.session_runs_prefix(row.number)
        runs: list[tuple[str, RunRow]] = []
        for _, name in self._all(prefix):
            run_id = name.decode()
            run = self.view.run(run_id)
            assert run is not None, f"run {run_id!r} is in its session's index and has no row"
            if not statuses or run.status in statuses:
                runs.append((run_id, run))
        return tuple(self._metas(runs))

    def run(self, run_id: str) -> RunMeta | Refusal:
        """A run's metadata."""
        row = self.run_row(run_id)
        return row if isinstance(row, Refusal) else self.meta(run_id, row)

    def meta(self, run_id: str, row: RunRow) -> RunMeta:
        """A run's metadata from its row; labels and reason are opened from the records that carried them."""
        return next(self._metas([(run_id, row)]))

    def _metas(self, runs: Sequence[tuple[str, RunRow]]) -> Iterator[RunMeta]:
        for start in range(0, len(runs), _FETCH_RECORDS):
            some = runs[start : start + _FETCH_RECORDS]
            for (run_id, row), started in zip(some, self.opener.open_all([row.number for _, row in some]), strict=True):
                yield self._meta(run_id, row, started.private.labels)

    def _meta(self, run_id: str, row: RunRow, labels: Mapping[str, str]) -> RunMeta:
        return RunMeta(
            agent_id=row.agent_id,
            run_id=run_id,
            session_id=row.session_id,
            parent_run_id=row.parent_run_id,
            status=row.run_status,
            start_outcome=StartOutcome(row.outcome),
            started_at=row.started_at,
            updated_at=row.updated_at,
            labels=labels,
            cancellation_reason=cancellation_reason(row, self.opener.open),
        )

    def checkpoint(self, run_id: str) -> Checkpoint | Refusal:
        """The checkpoint of a suspended run."""
        row = self.run_row(run_id)
        if isinstance(row, Refusal):
            return row
        if row.status != RunStatus.SUSPENDED.value:
            return refuse(
                Code.RUN_SUSPENSION_NOT_FOUND, f"run {run_id!r} is {row.status} and has no checkpoint", run_id=run_id
            )
        private = self.opener.open(row.terminal).private
        return Checkpoint(private.checkpoint_id, private.checkpoint)

    def run_detail(self, run_id: str) -> RunDetail | Refusal:
        """A run with its children, predecessor and successors."""
        row = self.run_row(run_id)
        if isinstance(row, Refusal):
            return row
        links = self._positions(layout.run_types_prefix(row.owner, row.number, CHILD_RUN_LINKED))
        children: list[ChildLink] = []
        for position in links:
            payload = self.opener.lifecycle(position)
            assert isinstance(payload, ChildRunLinkedPayload)
            children.append(
                ChildLink(payload.child_run_id, payload.child_agent_id, payload.tool_name, payload.tool_call_id)
            )
        prefix = layout.successors_prefix(row.owner, row.number)
        successors = tuple(name.decode() for _, name in self._all(prefix))
        return RunDetail(
            run=self.meta(run_id, row),
            children=tuple(children),
            predecessor=row.predecessor_run_id,
            successors=successors,
            record_count=row.record_count,
            has_checkpoint=row.status == RunStatus.SUSPENDED.value,
        )

    def run_records(self, run_id: str, cursor: str, limit: int, types: Sequence[str]) -> Page | Refusal:
        """A page of a run's records."""
        row = self.run_row(run_id)
        if isinstance(row, Refusal):
            return row
        prefixes = [layout.run_types_prefix(row.owner, row.number, name) for name in dict.fromkeys(types)] or [
            layout.run_records_prefix(row.owner, row.number)
        ]
        return self._page(run_subject(run_id), prefixes, cursor, limit)

    def session_records(self, session_id: str, cursor: str, limit: int, types: Sequence[str]) -> Page | Refusal:
        """A page of a session's records, in commit order."""
        row = self.session_row(session_id)
        if isinstance(row, Refusal):
            return row
        prefixes = [layout.session_types_prefix(row.number, name) for name in dict.fromkeys(types)] or [
            layout.session_records_prefix(row.number)
        ]
        return self._page(session_subject(session_id), prefixes, cursor, limit)

    def _page(self, subject: str, prefixes: Sequence[bytes], cursor: str, limit: int) -> Page | Refusal:
        if not 1 <= limit <= limits.page_records_max:
            return invalid(f"limit must be 1 to {limits.page_records_max}")
        after = -1
        if cursor:
            place = self.cursors.read(subject, cursor)
            if isinstance(place, Refusal):
                return place
            after = read_number(place)
        # One more than asked for tells whether anything follows.
        found = [
            [read_number(key) for key, _ in self.view.scan(prefix + number_bytes(after + 1), _after(prefix), limit + 1)]
            for prefix in prefixes
        ]
        positions = list(heapq.merge(*found))[: limit + 1]
        records = self._bounded(positions[:limit])
        more = len(records) < len(positions)
        next_cursor = self.cursors.make(subject, number_bytes(positions[len(records) - 1])) if more else ""
        return Page(tuple(records), next_cursor)

    def _bounded(self, positions: Sequence[int]) -> list[Record]:
        """Open records until the page has its limit of payload bytes; one at least, whatever its size."""
        records: list[Record] = []
        size = 0
        for start in range(0, len(positions), _FETCH_RECORDS):
            for record in self.opener.records(positions[start : start + _FETCH_RECORDS]):
                size += len(record.content.payload)
                if records and size > limits.page_bytes_max:
                    return records
                records.append(record)
        return records

    def _positions(self, prefix: bytes) -> list[int]:
        return [read_number(key) for key, _ in self._all(prefix)]

    def _all(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        rows: list[tuple[bytes, bytes]] = []
        begin = prefix
        while page := self.view.scan(begin, _after(prefix), _SCAN_ROWS):
            rows.extend(page)
            begin = page[-1][0] + b"\x00"
        return rows


def _after(prefix: bytes) -> bytes:
    """The first key after everything that starts with a prefix and is followed by a position."""
    return prefix + b"\xff" * 9
