"""One request, from its head to the end of its answer, as a plain ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from time import perf_counter
from typing import Any, Final

import msgspec

from schemas.refusals import Code, Refused, invalid, refuse
from service.batch import Batches
from service.body import Body, Buffers, Disconnected, Receive
from service.browsers import foreign
from service.commands import Commands
from service.connections import abort
from service.consumers import Consumers
from service.events import Dropped, EventStream, StreamTimes
from service.exports import Exports
from service.metrics import Metrics
from service.openapi import describe
from service.operations import Operations
from service.ports import KafkaPlace, StoreHolder, StorePort
from service.query import parse_query
from service.routing import Call, Reply, Route, Router, refused, text
from service.streams import EventStreams
from service.unexpected import unexpected
from service.views import Views

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

requests_in_flight_max: Final = 2000
"""Requests that wait for their answer at a time; beyond it answers `unavailable`. Operators' routes do not count."""

_CLOSE: Final = ((b"connection", b"close"),)


def make_app(store: StorePort, version: str = "") -> Service:
    """The HTTP interface of a store that is open already."""
    return Service(StoreHolder(store), version)


class Service:
    """The HTTP interface of a store, as an ASGI application."""

    def __init__(
        self,
        holder: StoreHolder,
        version: str = "",
        kafka: KafkaPlace | None = None,
        stream_times: StreamTimes | None = None,
    ) -> None:
        self.in_flight = 0
        self._version = version
        self._draining = False
        self._idle = asyncio.Event()
        self._buffers = Buffers()
        self._metrics = Metrics(lambda: self.in_flight)
        self._streams = EventStreams(holder, self._metrics, stream_times or StreamTimes())
        self.routes: tuple[Route, ...] = tuple(self._routes(holder, kafka))
        self._router = Router([(route.verb, route.path, route) for route in self.routes])
        self._description: bytes | None = None

    def drain(self) -> None:
        """Take no request any more: each that still comes is `unavailable`, and its connection ends."""
        self._draining = True
        self._check_idle()

    async def idle(self) -> None:
        """Wait until no request waits for its answer any more, streams apart. For after `drain`."""
        await self._idle.wait()

    async def end_streams(self) -> None:
        """End every stream with what is there for its reader, and wait until all have ended."""
        self._streams.end()
        await self._streams.ended.wait()

    def _check_idle(self) -> None:
        if self._draining and self.in_flight == 0:
            self._idle.set()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served here, not {scope['type']}")
        begun = perf_counter()
        self.in_flight += 1
        body = Body(scope["headers"], receive, self._buffers)
        found = self._router.find(scope["raw_path"])
        route = found.verbs.get(scope["method"]) if found is not None else None
        try:
            if self._draining:
                reply = refused(refuse(Code.UNAVAILABLE, "the service is stopping"), close=True)
            elif (stranger := foreign(scope["headers"])) is not None:
                reply = refused(stranger)
            elif found is None:
                reply = refused(invalid("there is nothing at this path"), 404)
            elif route is None:
                allow = found.allow
                reply = refused(invalid(f"this path takes {allow} only"), 405, ((b"allow", allow.encode()),))
            else:
                reply = await self._handle(route, found.ids, scope["query_string"], body)
            if reply.live is None:
                await self._send(reply, scope["method"], body, send)
        except Disconnected:
            return
        finally:
            body.release()
            self.in_flight -= 1
            self._metrics.request(route.path if route is not None else "none", perf_counter() - begun)
            self._check_idle()
        if reply.live is not None:
            await self._send_events(reply, reply.live, scope, body, send)

    async def _handle(self, route: Route, ids: tuple[str, ...], query: bytes, body: Body) -> Reply:
        if self.in_flight > requests_in_flight_max and route.tag != "operations":
            return refused(refuse(Code.UNAVAILABLE, "too many requests wait for their answers; try again in a moment"))
        try:
            return await route.handler(Call(ids, parse_query(query, route.known) if query else {}, body))
        except Refused as refusal:
            return refused(refusal.refusal)
        except Disconnected:
            raise
        except Exception as error:  # noqa: BLE001 - bugs stay inside
            self._metrics.bug()
            return refused(unexpected(error))

    async def _send(self, reply: Reply, verb: str, body: Body, send: Send) -> None:
        if reply.chunks is not None:
            await self._stream(reply, reply.chunks, verb, send)
            return
        close = reply.close or self._draining
        headers = [*reply.headers, (b"content-length", str(len(reply.body)).encode())]
        if close:
            headers += _CLOSE
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        content = b"" if verb == "HEAD" else reply.body
        if close and not body.whole:
            await send({"type": "http.response.body", "body": content, "more_body": True})
            await body.linger()
            content = b""
        await send({"type": "http.response.body", "body": content})

    async def _stream(self, reply: Reply, chunks: AsyncIterator[bytes], verb: str, send: Send) -> None:
        headers = [*reply.headers, *(_CLOSE if self._draining else ())]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        if verb != "HEAD":
            try:
                async for chunk in chunks:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except Exception as error:  # noqa: BLE001 - bugs stay inside
                # What was sent cannot be taken back, but nobody may take it for whole: the connection breaks.
                self._metrics.bug()
                unexpected(error)
                return
        await send({"type": "http.response.body", "body": b""})

    async def _send_events(self, reply: Reply, stream: EventStream, scope: Message, body: Body, send: Send) -> None:
        async def send_bytes(piece: bytes) -> None:
            await send({"type": "http.response.body", "body": piece, "more_body": True})

        self._streams.begin(stream)
        try:
            headers = [*reply.headers, *(_CLOSE if self._draining else ())]
            await send({"type": "http.response.start", "status": reply.status, "headers": headers})
            if scope["method"] != "HEAD":
                await stream.run(send_bytes, body.disconnected())
            await send({"type": "http.response.body", "body": b""})
        except Dropped:
            abort(scope)
        except Exception as error:  # noqa: BLE001 - bugs stay inside
            self._metrics.bug()
            unexpected(error)
            abort(scope)
        finally:
            self._streams.done(stream)

    def _routes(self, holder: StoreHolder, kafka: KafkaPlace | None) -> Iterator[Route]:
        yield from Commands(holder, self._metrics).routes()
        yield from Batches(holder, self._metrics).routes()
        yield from Views(holder).routes()
        yield from Exports(holder).routes()
        yield from Consumers(holder).routes()
        yield from self._streams.routes()
        yield from Operations(holder, self._metrics, kafka).routes()
        yield Route(
            "GET",
            "/openapi.json",
            self._describe,
            "openapi",
            "Read this description.",
            dict[str, Any],
            tag="operations",
        )

    async def _describe(self, _call: Call) -> Reply:
        if self._description is None:
            self._description = msgspec.json.encode(describe(self.routes, self._version))
        return text(self._description, b"application/json")
