"""One stream: a place, what follows it, and waiting for more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar, cast

from engine.partition import PartitionUnavailable
from engine.pending import unavailable
from engine.streams.portions import PortionCache, Read, State
from engine.streams.sources import NotProven, Source, state_of
from schemas.refusals import Refused
from schemas.streams import Portion

PlaceT = TypeVar("PlaceT")

retry_seconds: Final = 0.5
"""How long to wait before reading again where a partition could not be read."""

_PROOFS_MAX: Final = 2


class Stream(Generic[PlaceT]):
    """The records of a source from a place on. Hands out each portion once, and must be closed."""

    def __init__(
        self,
        source: Source[PlaceT],
        place: PlaceT,
        until: PlaceT | None,
        cache: PortionCache,
        pause: Callable[[], Awaitable[None]],
    ) -> None:
        """`until` None: follow. `pause` lets others have their turn."""
        self._source = source
        self._place = place
        self._until = until
        self._cache = cache
        self._pause = pause
        self._news = asyncio.Event()
        self._exhausted: State | None = None
        """The state in which nothing followed."""
        self._blocked = False
        self._counted: tuple[PlaceT, int] | None = None
        for partition in source.partitions:
            partition.watchers.join(source.watched, self._news)

    def close(self) -> None:
        """Wait for nothing any more. Safe to repeat."""
        for partition in self._source.partitions:
            partition.watchers.leave(self._source.watched, self._news)

    def wake(self) -> None:
        """End a wait."""
        self._news.set()

    async def wait(self) -> None:
        """Wait until more may follow than `take` has handed out."""
        if not self._blocked:
            await self._news.wait()
            return
        try:
            async with asyncio.timeout(retry_seconds):
                await self._news.wait()
        except TimeoutError:
            return

    async def take(self) -> Portion | None:
        """The next portion; None where nothing follows yet.

        Raises `Refused` where nothing ever will: what is read cannot be.
        """
        self._news.clear()
        self._counted = None
        while True:
            read = await self._next(self._place)
            if read is None:
                return None
            self._place = read.following
            self._exhausted = read.state if read.whole else None
            if read.portion.records or read.portion.end is not None:
                return read.portion

    async def waiting_bytes(self, bytes_max: int) -> int:
        """About how many bytes of records follow, counted until there are more than so many. Hands out nothing."""
        place, counted = self._counted or (self._place, 0)
        exhausted, blocked = self._exhausted, self._blocked
        try:
            while counted <= bytes_max:
                await self._pause()
                read = await self._next(place)
                if read is None:
                    break
                counted += read.portion.size
                if read.portion.end is not None:
                    break
                place = read.following
                self._exhausted = read.state if read.whole else None
        finally:
            self._exhausted, self._blocked = exhausted, blocked
        self._counted = place, counted
        return counted

    async def _next(self, place: PlaceT) -> Read[PlaceT] | None:
        """What follows a place; None where nothing does now."""
        if self._exhausted is not None and self._exhausted == state_of(self._source.partitions):
            if self._over():
                raise Refused(unavailable("what is streamed is served no more; read on from the last cursor later"))
            return None
        self._blocked = False
        key = self._source.name, place, self._until
        kept = self._cache.get(key)
        if kept is not None:
            return cast(Read[PlaceT], kept)
        try:
            read = await self._read(place)
        except PartitionUnavailable as error:
            if self._over():
                raise Refused(error.refusal) from error
            self._blocked = True
            return None
        if read.portion.records or read.portion.end is not None or read.following != place:
            self._cache.put(key, cast(Read[Any], read))
        return read

    def _over(self) -> bool:
        """Whether nothing will ever follow: a stream that follows goes on with the partitions that are left."""
        enough = all if self._until is None else any
        return enough(each.over for each in self._source.partitions)

    async def _read(self, place: PlaceT) -> Read[PlaceT]:
        proofs = 0
        while True:
            try:
                return self._source.read(place, self._until, proven=proofs >= _PROOFS_MAX)
            except NotProven as missing:
                proofs += 1
                await missing.partition.read(lambda _: None)
