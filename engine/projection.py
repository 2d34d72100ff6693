"""A partition's projection over its life: opened, caught up, rebuilt beside the old one, swapped, reopened.

Where the rows live is behind `ProjectionFiles`: folders on disk, or memory for a simulation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from engine.batch import Batch
from engine.durable import make_folder, write_whole
from engine.environment import Environment
from engine.logs.interface import Log
from engine.logs.manifest import read_manifest
from engine.logs.wal import cut_at_damage
from projections.errors import ProjectionDamaged, ProjectionError
from projections.layout import VIEW_VERSION
from projections.position_rule import PositionRule
from projections.rebuild import Store, Verified, catch_up, resume, unchanged, verify
from projections.rocks import RocksView, destroy
from projections.rows import Applied
from projections.view import MemoryView, View

log = logging.getLogger("runstore.projection")

_CURRENT: Final = "CURRENT"


class LogRewritten(Exception):
    """The log is not the one that this projection was folded from: it was cut, or written again, while it was open."""

    def __init__(self, partition: int, end: int, applied: int) -> None:
        super().__init__(
            f"partition {partition}: the log was truncated or rewritten at or before position {end}, and {applied} had "
            "been applied: acknowledged records may be lost"
        )


class ProjectionFiles(Protocol):
    """Where a partition's projections are kept: the current one, and new ones made beside it."""

    def open_current(self) -> Store | None:
        """Open the current projection; None when there is none. Raises `ProjectionDamaged`."""
        ...

    def make_new(self) -> Store:
        """Make an empty projection beside the current one."""
        ...

    def adopt(self, new: Store) -> None:
        """Make a new projection the current one, in one step."""
        ...

    def tidy(self) -> None:
        """Drop every projection that is neither current nor open."""
        ...

    def release(self, store: Store) -> None:
        """Close a projection."""
        ...

    def discard(self, store: Store) -> None:
        """Close a projection that is not current and drop it."""
        ...


class Projection:
    """One partition's projection and the position rule that says how far it has read the log."""

    def __init__(self, partition: int, the_log: Log, files: ProjectionFiles, environment: Environment) -> None:
        self._partition = partition
        self._log = the_log
        self._files = files
        self._environment = environment
        self._store: Store | None = None
        self.rule = self._new_rule()
        self._beside = False
        self.rebuild_progress: float | None = None
        self.rebuilt_why = ""
        """Why the projection was rebuilt when it was last opened; empty when it was not."""

    @property
    def store(self) -> Store:
        """The current projection, for the partition's loop alone."""
        assert self._store is not None, "the projection has not been opened"
        return self._store

    @property
    def view(self) -> View:
        """The current projection, for reading."""
        return self.store

    @property
    def void_records(self) -> int:
        """How many records of the log did not count."""
        return self.rule.void_records

    async def reopen(self, *, rebuild: bool = False) -> None:
        """Open the projection, or close and open it again, and apply the log to its end.

        It is rebuilt where it cannot be trusted, or where `rebuild` says so.
        """
        self.close()
        self.rebuilt_why = ""
        if rebuild:
            self.rebuilt_why = "it was found damaged"
            await self._rebuild_now()
            return
        try:
            self._store = self._files.open_current()
            if self._store is None:
                if await self._log.end(self._partition) > 0:
                    self.rebuilt_why = "it was missing"
                    log.warning("partition %d: there is no projection; it is rebuilt from the log", self._partition)
            elif (rule := await self._resume()) is not None:
                self.rule = rule
                await catch_up(self._log, self._partition, self.store, rule, pause=self._pause)
                if not rule.rewrites_seen:
                    return
                self.rebuilt_why = "the log goes on from another history"
                log.critical(
                    "partition %d: the log was truncated or rewritten before position %d, and acknowledged records may "
                    "be lost. The projection is rebuilt from the log as it is.",
                    self._partition,
                    rule.end,
                )
        except ProjectionDamaged as error:
            self.rebuilt_why = f"it was damaged: {error}"
            log.error("partition %d: %s; it is rebuilt from the log", self._partition, error)
        await self._rebuild_now()

    async def check_log(self) -> None:
        """Raise `LogRewritten` unless the log still holds what was read of it last."""
        if not await unchanged(self._log, self._partition, self.rule):
            raise LogRewritten(self._partition, self.rule.applied().batch_end, self.rule.end)

    def close(self) -> None:
        """Release the projection. Safe to repeat."""
        if self._store is not None:
            store, self._store = self._store, None
            try:
                self._files.release(store)
            except ProjectionError as error:
                log.error("partition %d: closing the projection: %s", self._partition, error)

    def land(self, batch: Batch) -> None:
        """Commit a batch that has landed where it was decided for."""
        self.rule.landed(batch.records, batch.data)
        self.store.commit(batch.overlay, self.rule.applied())

    async def rebuild_beside(self, turn_lock: asyncio.Lock) -> None:
        """Fold the log into a new projection while the old one serves; swap when the new one has caught up.

        The last stretch is folded under `turn_lock`, while no batch is in flight.
        """
        if self._beside:
            return
        self._beside = True
        self.rebuild_progress = 0.0
        serving, new = self._store, self._files.make_new()
        try:
            rule = self._new_rule()
            await self._follow(new, rule)
            async with turn_lock:
                await catch_up(self._log, self._partition, new, rule, until=self.rule.end)
                await self._check_swap(serving, rule)
                self._files.adopt(new)
                old, self._store, self.rule = self._store, new, rule
        except BaseException:
            self._files.discard(new)
            raise
        finally:
            self._beside = False
            self.rebuild_progress = None
        if old is not None:
            self._drop(old)

    async def _check_swap(self, serving: Store | None, rule: PositionRule) -> None:
        """Refuse a new projection that is not of the log as it is now.

        What it read may have been cut away meanwhile; the one that serves may have noticed, and been opened again.
        """
        if self._store is not serving:
            raise ProjectionError("the projection was opened again meanwhile; start the rebuild again")
        if not self._log.exclusive and not await unchanged(self._log, self._partition, rule):
            raise LogRewritten(self._partition, rule.end, self.rule.end)

    async def _follow(self, new: Store, rule: PositionRule) -> None:
        """Fold the log into a new projection up to where this one has applied it, however that moves on meanwhile."""
        while (reached := rule.end) < self.rule.end:
            await catch_up(
                self._log,
                self._partition,
                new,
                rule,
                until=self.rule.end,
                progress=self._note(rule),
                pause=self._pause,
            )
            if rule.end == reached:
                raise LogRewritten(self._partition, reached, self.rule.end)

    def _drop(self, old: Store) -> None:
        """Remove a projection that another has replaced; one that cannot be removed now is at the next start."""
        try:
            self._files.discard(old)
        except (ProjectionError, OSError) as error:
            log.warning("partition %d: the former projection could not be removed: %s", self._partition, error)

    async def verify(self, turn_lock: asyncio.Lock) -> Verified:
        """Fold the log into a fresh projection and compare it with this one, which must not change meanwhile."""
        fresh = self._files.make_new()
        try:
            async with turn_lock:
                voids_legal = not self._log.exclusive
                return await verify(
                    self._log, self._partition, self.view, fresh, voids_legal=voids_legal, pause=self._pause
                )
        finally:
            self._files.discard(fresh)

    async def _resume(self) -> PositionRule | None:
        applied = self.store.applied()
        if applied.view_version != VIEW_VERSION:
            self.rebuilt_why = f"it was of view version {applied.view_version}"
            log.warning(
                "partition %d: the projection is of view version %d, this is %d; it is rebuilt",
                self._partition,
                applied.view_version,
                VIEW_VERSION,
            )
            return None
        end = await self._log.end(self._partition)
        rule = None
        if applied.position <= end or self._only_holes_follow(applied, end):
            rule = await resume(self._log, self._partition, applied, voids_legal=not self._log.exclusive)
        if rule is None:
            self.rebuilt_why = "it was folded from another log"
            log.critical(
                "partition %d: the log ends at position %d and is not the one this projection was folded from "
                "up to position %d: it was truncated or rewritten, and acknowledged records may be lost. "
                "The projection is rebuilt from the log as it is.",
                self._partition,
                end,
                applied.position,
            )
        return rule

    def _only_holes_follow(self, applied: Applied, end: int) -> bool:
        """Whether all that was applied after the log's end was void: it is missing from a log that has moved here."""
        return self._log.exclusive and applied.batch_end <= end

    async def _rebuild_now(self) -> None:
        self.close()
        new = self._files.make_new()
        rule = self._new_rule()
        self.rebuild_progress = 0.0
        try:
            progress = await self._note_until_end()
            await catch_up(self._log, self._partition, new, rule, progress=progress, pause=self._pause)
            self._files.adopt(new)
            self._files.tidy()
        except BaseException:
            self._files.discard(new)
            raise
        finally:
            if not self._beside:
                self.rebuild_progress = None
        self._store, self.rule = new, rule

    def _new_rule(self) -> PositionRule:
        return PositionRule(self._partition, voids_legal=not self._log.exclusive)

    async def _pause(self) -> None:
        """Let callers of other partitions, and of this one, have their turn."""
        await self._environment.sleep(0)

    def _note(self, rule: PositionRule) -> Callable[[int], None]:
        return lambda end: self._set_progress(end, max(self.rule.end, rule.end))

    async def _note_until_end(self) -> Callable[[int], None]:
        end = await self._log.end(self._partition)
        return lambda reached: self._set_progress(reached, end)

    def _set_progress(self, reached: int, end: int) -> None:
        self.rebuild_progress = min(1.0, reached / end) if end else 1.0


class DiskFiles:
    """Projections as folders below one folder a partition; a small file names the current one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: set[Path] = set()
        # Its name is durable, or a loss of power would cost a rebuild.
        make_folder(folder)

    def open_current(self) -> Store | None:
        """See `ProjectionFiles`. What an interrupted rebuild left behind is removed."""
        self.tidy()
        name = self._current_name()
        if name is None or not (self._folder / name).is_dir():
            return None
        _refuse_damaged_manifest(self._folder / name)
        cut_at_damage(self._folder / name)
        view = self._opened(name)
        try:
            view.check()
        except ProjectionDamaged:
            self.release(view)
            raise
        return view

    def make_new(self) -> Store:
        """See `ProjectionFiles`."""
        taken = [int(path.name[2:]) for path in self._folder.glob("g-*") if path.name[2:].isdigit()]
        return self._opened(f"g-{max(taken, default=0) + 1:06d}")

    def adopt(self, new: Store) -> None:
        """See `ProjectionFiles`. The rows are on disk before the file that names them."""
        view = _rocks(new)
        view.flush()
        write_whole(self._folder / _CURRENT, view.path.name + "\n")

    def tidy(self) -> None:
        """See `ProjectionFiles`."""
        name = self._current_name()
        for path in self._folder.iterdir():
            if path.is_dir() and path.name != name and path not in self._open:
                destroy(path)

    def release(self, store: Store) -> None:
        """See `ProjectionFiles`."""
        view = _rocks(store)
        self._open.discard(view.path)
        view.close()

    def discard(self, store: Store) -> None:
        """See `ProjectionFiles`."""
        self.release(store)
        destroy(_rocks(store).path)

    def _opened(self, name: str) -> RocksView:
        path = self._folder / name
        view = RocksView(path)
        self._open.add(path)
        return view

    def _current_name(self) -> str | None:
        try:
            return (self._folder / _CURRENT).read_text(encoding="ascii").strip() or None
        except (OSError, UnicodeDecodeError):
            return None


def _refuse_damaged_manifest(database: Path) -> None:
    """RocksDB may loop for ever over an edit of an unknown type, so it must not meet one."""
    manifest = read_manifest(database)
    if manifest is not None and manifest.damage is not None:
        expected = ", which is expected after a loss of power" if manifest.torn else ""
        damage = manifest.damage
        raise ProjectionDamaged(f"{manifest.path} is damaged at byte {damage.offset}: {damage.reason}{expected}")


class MemoryFiles:
    """Projections in memory, which survive a restart of the partition as long as this object does."""

    def __init__(self) -> None:
        self._current: MemoryView | None = None

    def open_current(self) -> Store | None:
        """See `ProjectionFiles`."""
        return self._current

    def make_new(self) -> Store:
        """See `ProjectionFiles`."""
        return MemoryView()

    def adopt(self, new: Store) -> None:
        """See `ProjectionFiles`."""
        assert isinstance(new, MemoryView)
        self._current = new

    def tidy(self) -> None:
        """See `ProjectionFiles`."""

    def release(self, store: Store) -> None:
        """See `ProjectionFiles`."""

    def discard(self, store: Store) -> None:
        """See `ProjectionFiles`."""


def _rocks(store: Store) -> RocksView:
    assert isinstance(store, RocksView)
    return store
