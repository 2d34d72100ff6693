"""Sending a stream as server-sent events, at the pace at which its reader takes them.

One event a record: `id` its cursor, `event` its type, `data` the record as pages show it. What a reader has not taken
is at most what the connection buffers and one portion, which all readers at the same place share: the next one is
read when the last has been sent. A reader whose connection takes nothing for a while, and for whom more than
`unread_bytes_max` wait by then, is dropped, and goes on from its cursor when it comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from schemas.refusals import Refused
from schemas.streams import Ending, Portion, StreamEnd
from service import render
from service.json_text import encoded
from service.metrics import Metrics
from service.ports import StreamPort

SendBytes = Callable[[bytes], Awaitable[None]]

unread_bytes_max: Final = 4 * 1024 * 1024
"""How much may wait for a reader that takes nothing."""

piece_bytes_max: Final = 64 * 1024
"""How much is handed to a connection at a time, so that a large record does not lie in its buffer whole."""

_HEARTBEAT: Final = b":\n\n"


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """How long streams wait. `heartbeat_seconds`: until a comment keeps an idle connection open.

    `stall_seconds`: until a connection that takes nothing counts as one that does not read.
    """

    heartbeat_seconds: float = 10.0
    stall_seconds: float = 1.0


class Dropped(Exception):
    """The reader does not read, or what it reads cannot go on: its connection ends in the middle."""


class EventStream:
    """One stream on its way to one reader."""

    def __init__(self, stream: StreamPort, *, embed: bool, times: StreamTimes, metrics: Metrics) -> None:
        """`embed`: payloads as JSON."""
        self._stream = stream
        self._form, self._make = ("embedded", _embedded) if embed else ("text", _text)
        self._times = times
        self._metrics = metrics
        self._closing = False
        self._gone = False

    def end(self) -> None:
        """Send what is there, then end: the service is stopping."""
        self._closing = True
        self._stream.wake()

    def close(self) -> None:
        """Not to be sent, or sent."""
        self._stream.close()

    async def run(self, send: SendBytes, disconnected: Awaitable[None]) -> None:
        """Send to the stream's end, or until the reader goes away. Raises `Dropped`."""
        watching = asyncio.ensure_future(disconnected)
        watching.add_done_callback(self._left)
        try:
            await self._run(send)
        except Refused as refused:
            raise Dropped(refused.refusal.detail) from refused
        finally:
            watching.cancel()

    def _left(self, _: object) -> None:
        self._gone = True
        self._stream.wake()

    async def _run(self, send: SendBytes) -> None:
        while not self._gone:
            chunk, over = await self._chunk()
            for start in range(0, len(chunk), piece_bytes_max):
                await self._send(send, chunk[start : start + piece_bytes_max])
            if over or (self._closing and not chunk):
                return
            if not chunk:
                await self._idle(send)

    async def _chunk(self) -> tuple[bytes, bool]:
        """What is there to send now, and whether the stream is over with it."""
        pieces: list[bytes] = []
        size = 0
        while size < piece_bytes_max and not self._gone:
            portion = await self._stream.take()
            if portion is None:
                break
            pieces.append(portion.once(self._form, self._make))
            size += len(pieces[-1])
            self._metrics.stream_events(len(portion.records))
            if portion.end is not None:
                return b"".join(pieces), True
        return b"".join(pieces), False

    async def _idle(self, send: SendBytes) -> None:
        try:
            async with asyncio.timeout(self._times.heartbeat_seconds):
                await self._stream.wait()
        except TimeoutError:
            await self._send(send, _HEARTBEAT)

    async def _send(self, send: SendBytes, piece: bytes) -> None:
        while not self._gone:
            try:
                async with asyncio.timeout(self._times.stall_seconds):
                    await send(piece)
            except TimeoutError:
                # Nothing of the piece was sent: a connection that is full waits before it takes any.
                if self._closing or await self._stream.waiting_bytes(unread_bytes_max) > unread_bytes_max:
                    self._metrics.stream_dropped()
                    raise Dropped("the reader does not read") from None
            else:
                return


def _text(portion: Portion) -> bytes:
    return _events(portion, render.record)


def _embedded(portion: Portion) -> bytes:
    return _events(portion, render.embedded_record)


def _events(portion: Portion, shown: Callable[[Any], Mapping[str, object]]) -> bytes:
    parts = [
        b"id: %b\nevent: %b\ndata: %b\n\n"
        % (each.cursor.encode(), each.record.content.type.encode(), encoded(shown(each.record)))
        for each in portion.records
    ]
    if portion.end is not None and portion.end.ending is not Ending.CAUGHT_UP:
        parts.append(_end(portion.end))
    return b"".join(parts)


def _end(end: StreamEnd) -> bytes:
    """The last event of a stream, without a cursor: it is no record."""
    told = {"run_id": end.run_id, "session_id": end.session_id, "status": end.status}
    data = encoded({name: value for name, value in told.items() if value})
    return b"event: %b\ndata: %b\n\n" % (end.ending.value.encode(), data)
