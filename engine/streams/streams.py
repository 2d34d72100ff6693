"""Opening streams: what is to be read, from where, and whether it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeVar

from engine.cursors import Cursors
from engine.decide.common import run_not_found
from engine.environment import Environment
from engine.partition import Partition, PartitionUnavailable
from engine.reads import Reader
from engine.router import Router
from engine.streams.portions import PortionCache
from engine.streams.sources import EverythingSource, IndexSource, Owned, Source
from engine.streams.stream import Stream
from engine.watchers import Watched
from projections import layout
from projections.queries import live_run
from projections.view import View
from schemas.refusals import Refusal, invalid
from schemas.streams import Ending, StreamEnd
from schemas.text import check_id

PlaceT = TypeVar("PlaceT")


class Streams:
    """The streams of one store. Each is from a cursor on (empty: the start) and must be closed by who opened it.

    Only records of `types` are in it, where any are given. One that does not follow ends where it found the end.
    """

    def __init__(
        self,
        partitions: Sequence[Partition],
        router: Router,
        cursors: Cursors,
        environment: Environment,
        bounded: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        """`bounded` lets what is inside take no longer than a caller waits for the proof that a state is not old."""
        self._partitions = partitions
        self._bounded = bounded
        self._router = router
        self._cursors = cursors
        self._environment = environment
        self.cache = PortionCache()
        for partition in partitions:
            partition.watchers.on_reset(self.cache.clear)

    async def run(
        self, run_id: str, cursor: str, types: Sequence[str] = (), *, follow: bool = True
    ) -> Stream[int] | Refusal:
        """The records of a run; it ends once the run is terminal and read to its end."""
        if (problem := check_id(run_id, "run_id")) is not None:
            return invalid(problem)
        find = partial(_find_run, run_id=run_id, types=types)
        try:
            async with self._bounded():
                home = await self._router.run_home(run_id)
                if await home.read(find) is None:
                    return run_not_found(run_id)
        except PartitionUnavailable as error:
            return error.refusal
        return self._opened(
            IndexSource(home, self._cursors, Watched(run_id=run_id), types, find), cursor, follow=follow
        )

    async def session(
        self, session_id: str, cursor: str, types: Sequence[str] = (), *, follow: bool = True
    ) -> Stream[int] | Refusal:
        """The records of a session's runs, in the order of its log."""
        if (problem := check_id(session_id, "session_id")) is not None:
            return invalid(problem)
        home = self._router.home_of(session_id)
        try:
            async with self._bounded():
                row = await home.read(lambda view: Reader(view, home.opener, self._cursors).session_row(session_id))
        except PartitionUnavailable as error:
            return error.refusal
        if isinstance(row, Refusal):
            return row
        find = partial(_find_session, session_id=session_id, types=types)
        return self._opened(
            IndexSource(home, self._cursors, Watched(session_id=session_id), types, find), cursor, follow=follow
        )

    async def everything(
        self, cursor: str, types: Sequence[str] = (), *, follow: bool = True
    ) -> Stream[tuple[int, ...]] | Refusal:
        """Every record of the store, in the order of the log within each partition."""
        proofs = await asyncio.gather(*map(self._prove, self._partitions), return_exceptions=True)
        missing = [proof for proof in proofs if isinstance(proof, BaseException)]
        for error in missing:
            if not isinstance(error, PartitionUnavailable):
                raise error
            if not follow or len(missing) == len(proofs):
                return error.refusal
        return self._opened(EverythingSource(self._partitions, self._cursors, types), cursor, follow=follow)

    async def _prove(self, partition: Partition) -> None:
        """Have what the partition has applied be no older than this call. Raises `PartitionUnavailable`."""
        async with self._bounded():
            await partition.read(lambda _: None)

    def _opened(self, source: Source[PlaceT], cursor: str, *, follow: bool) -> Stream[PlaceT] | Refusal:
        place = source.place(cursor) if cursor else source.start()
        if isinstance(place, Refusal):
            return place
        return Stream(source, place, None if follow else source.end(), self.cache, self._pause)

    async def _pause(self) -> None:
        await self._environment.sleep(0)


def _find_run(view: View, run_id: str, types: Sequence[str]) -> Owned | None:
    row = live_run(view, run_id)
    if row is None:
        return None
    prefixes = [layout.run_types_prefix(row.owner, row.number, name) for name in dict.fromkeys(types)]
    prefixes = prefixes or [layout.run_records_prefix(row.owner, row.number)]
    if row.running:
        return Owned(prefixes)
    return Owned(prefixes, StreamEnd(Ending.RUN_ENDED, run_id=run_id, status=row.status), row.terminal)


def _find_session(view: View, session_id: str, types: Sequence[str]) -> Owned | None:
    row = view.session(session_id)
    if row is None or row.purged:
        return None
    prefixes = [layout.session_types_prefix(row.number, name) for name in dict.fromkeys(types)]
    return Owned(prefixes or [layout.session_records_prefix(row.number)])
