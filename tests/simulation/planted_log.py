"""Faults in what counts of a log and what it does: the position rule, the fold, catching up, resuming."""

from __future__ import annotations

from typing import Final

from tests.simulation.planting import Planted

_COUNTS: Final = "projections.position_rule:PositionRule._counts"
_FEED: Final = "projections.position_rule:PositionRule.feed"
_LANDED: Final = "projections.position_rule:PositionRule.landed"
_RESUMED: Final = "projections.position_rule:PositionRule.resumed"
_RUN_CHANGED: Final = "projections.fold:_run_changed"

POSITIONS: Final = (
    Planted(
        "position-rule-off",
        "a record counts only where its own position says",
        _COUNTS,
        "if record.position != entry.offset:",
        "if record.position > entry.offset:",
        ((_COUNTS, "if entry.offset != expected:", "if record.position != expected:"),),
    ),
    Planted(
        "every-batch-counts",
        "anything else than a record at its own position, after what it follows, is void",
        _COUNTS,
        "if record.position != entry.offset:",
        "if record.position > entry.offset:",
        (
            (_COUNTS, "if record.prev != self.prev():", "if len(record.prev) != len(self.prev()):"),
            (_COUNTS, "if entry.offset != expected:", "if record.position > entry.offset:"),
        ),
    ),
    Planted(
        "later-records-of-a-void-batch-count",
        "a batch that landed elsewhere is void as a whole",
        _COUNTS,
        "if record.position != entry.offset:",
        "if record.prev and record.position != entry.offset:",
        ((_COUNTS, "if entry.offset != expected:", "if entry.offset < expected:"),),
    ),
    Planted(
        "prev-unchecked",
        "a batch at the right offset with another prev is void",
        _COUNTS,
        "if record.prev != self.prev():",
        "if len(record.prev) != len(self.prev()):",
    ),
    Planted(
        "prev-unchecked-at-resume",
        "a projection is continued only on the log that it was folded from",
        _RESUMED,
        "if applied.batch_start != NO_POSITION and digest.digest() != applied.batch_digest:",
        "if applied.batch_start != NO_POSITION and not batch:",
    ),
    Planted(
        "projection-of-a-cut-log-kept",
        "a projection that has applied more than the log holds is rebuilt",
        _RESUMED,
        "if applied.batch_start != NO_POSITION and digest.digest() != applied.batch_digest:",
        "if applied.batch_start > applied.batch_end:",
        (
            ("projections.rebuild:_stretch", "            return None\n", "            break\n"),
            (
                "engine.projection:Projection._resume",
                "if applied.position <= end or self._only_holes_follow(applied, end):",
                "if end >= 0:",
            ),
        ),
    ),
    Planted(
        "last-ignored",
        "a projection applies whole commands only",
        _FEED,
        "if record.last:",
        "if self._held:",
    ),
    Planted(
        "held-records-dropped-between-reads",
        "a command whose last record has not been read yet is held back, and not lost",
        _FEED,
        "    return commands\n",
        "    self._held, self._held_data = [], []\n    return commands\n",
    ),
    Planted(
        "applied-position-past-a-held-command",
        "the applied position is the end of whole commands",
        _FEED,
        "    if not self._held:\n",
        "    if True:\n",
    ),
    Planted(
        "prev-of-all-history",
        "prev is the digest of the last counted batch alone, live as when it is read",
        _LANDED,
        "    self._digest = hashlib.sha256()\n",
        "",
    ),
    Planted(
        "applied-position-one-batch-behind",
        "the applied position is in the same write as the batch that it tells of",
        "engine.projection:Projection.land",
        "    self.rule.landed(batch.records, batch.data)\n    self.store.commit(batch.overlay, self.rule.applied())\n",
        "    applied = self.rule.applied()\n"
        "    self.rule.landed(batch.records, batch.data)\n"
        "    self.store.commit(batch.overlay, applied)\n",
    ),
)

FOLDS: Final = (
    Planted(
        "updated-at-from-the-clock",
        "updated_at comes from the log, so that a rebuild gives the same value",
        _RUN_CHANGED,
        "            terminal=record.position,\n            updated_at=record.appended_at,\n",
        '            terminal=record.position,\n            updated_at=__import__("time").time_ns() // 1_000_000,\n',
    ),
    Planted(
        "updated-at-from-the-caller",
        "updated_at is when the change was appended",
        _RUN_CHANGED,
        "            terminal=record.position,\n            updated_at=record.appended_at,\n",
        "            terminal=record.position,\n            updated_at=record.timestamp,\n",
    ),
    Planted(
        "cancellation-leaves-updated-at",
        "a cancellation is a change of its run",
        _RUN_CHANGED,
        "            intent=record.position,\n            updated_at=record.appended_at,\n",
        "            intent=record.position,\n",
    ),
    Planted(
        "event-key-of-a-start-not-indexed",
        "an event key of a lifecycle record is held like any other",
        "projections.fold:_index",
        "view.put(layout.event_key(owner, run, record.event_key), position)",
        "if record.type != RUN_STARTED:\n        view.put(layout.event_key(owner, run, record.event_key), position)",
    ),
    Planted(
        "event-key-of-a-terminal-record-not-indexed",
        "an event key of a lifecycle record is held like any other",
        "projections.fold:_index",
        "view.put(layout.event_key(owner, run, record.event_key), position)",
        'if record.terminal_status == "none":\n'
        "        view.put(layout.event_key(owner, run, record.event_key), position)",
    ),
    Planted(
        "run-counts-never-go-down",
        "a run that ends is counted as running no more",
        "projections.fold:_count",
        "changes[before] = getattr(row, before) - 1",
        "changes[before] = getattr(row, before)",
    ),
    Planted(
        "run-counts-miss-stopped-runs",
        "a run in a session is counted by its status",
        "projections.fold:_count",
        "changes = {after: getattr(row, after) + 1}",
        'changes = {after: getattr(row, after) + (after != "suspended")}',
    ),
    Planted(
        "record-count-misses-cancellations",
        "a run's record count is the number of its records",
        _RUN_CHANGED,
        "            intent=record.position,\n"
        "            updated_at=record.appended_at,\n"
        "            record_count=row.record_count + 1,\n",
        "            intent=record.position,\n            updated_at=record.appended_at,\n",
    ),
    Planted(
        "links-missing-from-the-session",
        "a session's records are all records of its runs, in commit order",
        "projections.fold:_index",
        "    if row.session_id:\n",
        "    if row.session_id and not record.child_run_id:\n",
    ),
    Planted(
        "purge-takes-the-neighbour-too",
        "a purge removes one session's runs and records, and no other's",
        "projections.layout:owned_ranges",
        "table + number_bytes(owner + 1)",
        "table + number_bytes(owner + 2)",
    ),
    Planted(
        "purge-forgets-the-runs",
        "runs of a purged session answer run_not_found",
        "projections.queries:live_run",
        "return None if session_is_purged(rows, row.session_id) else row",
        "return row",
    ),
)
