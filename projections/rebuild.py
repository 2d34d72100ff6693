"""Catching up, rebuilding and verifying: the log folded into a projection, from a log that is handed in.

All three are the same loop – read, position rule, fold, commit – from another start. The live write folds the same way
on an overlay and commits that; there is no other way for a projection to change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from projections.digest import Difference, digest, first_difference
from projections.fold import fold
from projections.position_rule import CountedCommand, Entry, PositionRule
from projections.rows import Applied
from projections.view import Changes, Overlay, View
from schemas.log_record import NO_POSITION

READ_RECORDS_MAX: Final = 250
"""How many records are folded before others have their turn."""


class Source(Protocol):
    """A log that can be read, as far as projections need it."""

    async def read(self, partition: int, position: int, records_max: int = READ_RECORDS_MAX) -> Sequence[Entry]:
        """Entries at `position` and after, in order; none only at the end."""
        ...


class Store(View, Changes, Protocol):
    """A projection that can be read and committed to."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What `verify` found for one partition: both digests, and where they differ first (None: equal)."""

    partition: int
    position: int
    live: str
    rebuilt: str
    difference: Difference | None

    @property
    def equal(self) -> bool:
        """True when the projection is what the log says."""
        return self.difference is None


def apply(view: Store, rule: PositionRule, commands: Iterable[CountedCommand]) -> None:
    """Fold whole commands and commit them together with how far the rule has read."""
    overlay = Overlay(view)
    for command in commands:
        for record in command.records:
            fold(overlay, record)
    view.commit(overlay, rule.applied())


async def resume(source: Source, partition: int, applied: Applied, *, voids_legal: bool) -> PositionRule | None:
    """The position rule where a projection stopped, or None when the log is not the one it was folded from.

    Reads the last batch that the projection applied and compares its digest: a log cut below it, or written again,
    shows.
    """
    batch: list[Entry] | None = []
    if applied.batch_start != NO_POSITION:
        batch = await _stretch(source, partition, applied.batch_start, applied.batch_end)
    return None if batch is None else PositionRule.resumed(partition, applied, batch, voids_legal=voids_legal)


async def unchanged(source: Source, partition: int, rule: PositionRule) -> bool:
    """True while the log still holds what the rule has read since the start of the last batch, void records too."""
    begin, end, digest = rule.seen()
    found = await _stretch(source, partition, begin, end)
    return found is not None and hashlib.sha256(b"".join(entry.data for entry in found)).digest() == digest


async def _stretch(source: Source, partition: int, begin: int, end: int) -> list[Entry] | None:
    """The entries from one offset up to another; None where the log ends before."""
    found: list[Entry] = []
    while begin < end:
        entries = [entry for entry in await source.read(partition, begin, end - begin) if entry.offset < end]
        if not entries:
            return None
        found.extend(entries)
        begin = entries[-1].offset + 1
    return found


async def catch_up(
    source: Source,
    partition: int,
    view: Store,
    rule: PositionRule,
    *,
    until: int | None = None,
    progress: Callable[[int], None] | None = None,
    pause: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Apply what the log holds after `rule.end`, to its end or up to offset `until`.

    `progress` is told each new end. `pause` is awaited after each `READ_RECORDS_MAX` records, so that others may run: a
    log that is read from local files never waits by itself.
    """
    while until is None or rule.end < until:
        entries = await source.read(partition, rule.end, READ_RECORDS_MAX)
        if until is not None:
            entries = [entry for entry in entries if entry.offset < until]
        if not entries:
            break
        apply(view, rule, rule.feed(entries))
        if progress is not None:
            progress(rule.end)
        if pause is not None:
            await pause()


async def verify(
    source: Source,
    partition: int,
    live: View,
    fresh: Store,
    *,
    voids_legal: bool,
    pause: Callable[[], Awaitable[None]] | None = None,
) -> Verified:
    """Fold the log into `fresh`, up to where `live` has applied it, and compare the two."""
    applied = live.applied()
    rule = PositionRule(partition, voids_legal=voids_legal)
    await catch_up(source, partition, fresh, rule, until=applied.position, pause=pause)
    left, right = digest(live), digest(fresh)
    difference = None if left == right else first_difference(live, fresh)
    return Verified(partition, applied.position, left, right, difference)
