"""The streams over HTTP: `text/event-stream` of a run, of a session, of every record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from schemas.refusals import Code, Refusal, Refused, refuse
from service.events import EventStream, StreamTimes
from service.metrics import Metrics
from service.ports import StoreHolder, StorePort, StreamPort
from service.query import flag_of, list_of, payload_is_json
from service.routing import Call, Parameter, Reply, Route, live
from service.view import PAYLOAD, found

CONTENT_TYPE: Final = "text/event-stream"

stream_readers_max: Final = 5000
"""Streams that are read at a time; beyond it answers `unavailable`."""

LAST_EVENT_ID: Final = "Last-Event-ID"

_PARAMETERS: Final = (
    Parameter(
        "cursor",
        {"type": "string"},
        "Where to read on: the `id` of an event, or a page's `next_cursor`. The header Last-Event-ID wins.",
    ),
    Parameter("types", {"type": "string"}, "Only records of this type, or of these with commas between."),
    Parameter(
        "follow", {"type": "boolean", "default": True}, "`false` ends the stream at the end that it found at start."
    ),
    PAYLOAD,
)

_OF_CONSUMER: Final = tuple(each for each in _PARAMETERS if each.name != "types")


@dataclass(frozen=True, slots=True)
class _Asked:
    """From where on, which types, and whether what comes later too."""

    cursor: str
    types: tuple[str, ...]
    follow: bool


Opened = Callable[[StorePort, tuple[str, ...], _Asked], Awaitable[StreamPort | Refusal]]
"""Opens a stream of a store, by the IDs in the path."""


class EventStreams:
    """The streams of one service, those being read among them."""

    def __init__(self, holder: StoreHolder, metrics: Metrics, times: StreamTimes) -> None:
        self._holder = holder
        self._metrics = metrics
        self._times = times
        self._running: set[EventStream] = set()
        self.ended = asyncio.Event()
        """Set once all have been told to end, and have."""
        self._ending = False
        metrics.count_readers(lambda: len(self._running))

    def routes(self) -> Iterator[Route]:
        """Every stream's route."""
        known: tuple[tuple[str, str, str, tuple[Parameter, ...], Opened, tuple[Code, ...]], ...] = (
            (
                "/v1/consumers/{name}/stream",
                "stream_consumer",
                "Follow what a consumer reads, from what it has committed; its cursors are its own.",
                _OF_CONSUMER,
                lambda store, ids, asked: store.consumers.stream(ids[0], asked.cursor, follow=asked.follow),
                (Code.CONSUMER_NOT_FOUND, Code.RUN_NOT_FOUND, Code.SESSION_NOT_FOUND, Code.SESSION_PURGED),
            ),
            (
                "/v1/runs/{id}/stream",
                "stream_run",
                "Follow a run's records; `run_stream_end` comes once it is terminal and read to its end.",
                _PARAMETERS,
                lambda store, ids, asked: store.streams.run(ids[0], asked.cursor, asked.types, follow=asked.follow),
                (Code.RUN_NOT_FOUND,),
            ),
            (
                "/v1/sessions/{id}/stream",
                "stream_session",
                "Follow a session's records, in commit order.",
                _PARAMETERS,
                lambda store, ids, asked: store.streams.session(ids[0], asked.cursor, asked.types, follow=asked.follow),
                (Code.SESSION_NOT_FOUND, Code.SESSION_PURGED),
            ),
            (
                "/v1/stream",
                "stream_all",
                "Follow every record of the store, one-shot runs' too; in log order within each partition.",
                _PARAMETERS,
                lambda store, _, asked: store.streams.everything(asked.cursor, asked.types, follow=asked.follow),
                (),
            ),
        )
        for path, name, summary, parameters, opened, codes in known:
            yield Route(
                "GET",
                path,
                partial(self._show, opened),
                name,
                summary,
                None,
                parameters=parameters,
                codes=(*codes, Code.INVALID_CURSOR),
                content_type=CONTENT_TYPE,
                tag="streams",
                headers=(Parameter(LAST_EVENT_ID, {"type": "string"}, "The `id` of the last event that was read."),),
            )

    def end(self) -> None:
        """End every stream, each with what is there for it."""
        self._ending = True
        for each in list(self._running):
            each.end()
        self._check_ended()

    def _check_ended(self) -> None:
        if self._ending and not self._running:
            self.ended.set()

    def begin(self, stream: EventStream) -> None:
        """A stream is about to be sent."""
        self._running.add(stream)
        if self._ending:
            stream.end()

    def done(self, stream: EventStream) -> None:
        """It has been sent, or will not be."""
        self._running.discard(stream)
        stream.close()
        self._check_ended()

    async def _show(self, opened: Opened, call: Call) -> Reply:
        if len(self._running) >= stream_readers_max:
            raise Refused(refuse(Code.UNAVAILABLE, "too many streams are being read; try again in a moment"))
        embed, follow = payload_is_json(call.query), flag_of(call.query, "follow", default=True)
        asked = _Asked(_cursor(call), list_of(call.query, "types"), follow)
        stream = found(await opened(self._holder.require(), call.ids, asked))
        return live(EventStream(stream, embed=embed, times=self._times, metrics=self._metrics), CONTENT_TYPE.encode())


def _cursor(call: Call) -> str:
    """Where to read on; what is no ASCII was never issued, and is refused as any other such cursor."""
    last = call.body.header(LAST_EVENT_ID.lower().encode())
    return last.decode("latin-1") if last else call.query.get("cursor", "")
