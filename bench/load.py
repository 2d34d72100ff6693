"""Load over HTTP: connections that stay open, each with one request on its way, and a client as cheap as can be.

The two cores are shared by the client and the service, so what the client does not need the service has.
Requests are bytes made ready but for a counter, and an answer is read no further than needed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from bench.measuring import Measured, measure_tasks
from bench.ours import CANCELED, STARTED, loop_factory
from bench.workers import Handler
from bench.workload import AGENT, TERMINAL_KEY, Content, contents

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length: "
_TIME: Final = "2026-09-22T09:20:00.000Z"
_PREPARED: Final = 70


@dataclass(frozen=True, slots=True)
class HttpLoad:
    """What to measure: `append_record` at a port of this machine, over so many connections, for so long."""

    port: int
    connections: int
    seconds: float
    round: int


class ServiceRefused(Exception):
    """The service answered something else than a record that it inserted."""


def make_handler(_folder: Path) -> Handler:
    """Return what measures a service; None ends it."""

    def handle(load: HttpLoad | None) -> Measured | None:
        if load is None:
            return None
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_measure(load))

    return handle


async def _measure(load: HttpLoad) -> Measured:
    appenders = await asyncio.gather(*(_Appender.make(load, number) for number in range(load.connections)))
    callers: list[Callable[[], Awaitable[None]]] = [appender.append for appender in appenders]
    try:
        return await measure_tasks(load.seconds, callers)
    finally:
        for appender in appenders:
            appender.close()


class _Appender:
    """A connection with a session and a run of its own."""

    def __init__(self, connection: _Connection, port: int, run_id: str, session_id: str) -> None:
        self._connection = connection
        self._port = port
        self._run = run_id
        self._session = session_id
        self._sent = 0
        self._prepared: list[tuple[bytes, bytes]] = []

    @classmethod
    async def make(cls, load: HttpLoad, number: int) -> _Appender:
        """Connect, create the session and start the run."""
        _, connection = await asyncio.get_running_loop().create_connection(_Connection, "127.0.0.1", load.port)
        name = f"{load.round}-{number:04d}"
        self = cls(connection, load.port, f"http-run-{name}", f"http-sess-{name}")
        await self._call("create_session", {"session_id": self._session, "created_at": _TIME})
        run = {
            "agent_id": AGENT,
            "run_id": self._run,
            "session_id": self._session,
            "parent_run_id": "",
            "predecessor_run_id": "",
            "started_at": _TIME,
            "labels": {},
        }
        started = self._record(Content("run_started", STARTED), f"{self._run}/start")
        canceled = self._record(Content("run_completed", CANCELED), TERMINAL_KEY)
        await self._call("start_root_run", {"run": run, "started": started, "canceled": canceled})
        mark = "(key)"
        source = contents(name)
        for _ in range(_PREPARED):
            body = json.dumps({"record": self._record(next(source), mark)}).encode()
            before, _, after = body.partition(mark.encode())
            self._prepared.append((before, after))
        return self

    async def append(self) -> None:
        """Append one record and wait for its answer."""
        before, after = self._prepared[self._sent % _PREPARED]
        self._sent += 1
        answer = await self._connection.ask(self._request("append_record", b"%b%d%b" % (before, self._sent, after)))
        if b'"inserted":true' not in answer:
            raise ServiceRefused(answer.decode(errors="replace"))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    async def _call(self, method: str, arguments: dict[str, object]) -> None:
        answer = await self._connection.ask(self._request(method, json.dumps(arguments).encode()))
        if not answer.startswith(b"HTTP/1.1 200"):
            raise ServiceRefused(answer.decode(errors="replace"))

    def _request(self, method: str, body: bytes) -> bytes:
        head = f"POST /v1/store/{method} HTTP/1.1\r\nhost: 127.0.0.1:{self._port}\r\n"
        kind = "content-type: application/json\r\ncontent-length: "
        return f"{head}{kind}{len(body)}\r\n\r\n".encode() + body

    def _record(self, content: Content, event_key: str) -> dict[str, object]:
        return {
            "event_key": event_key,
            "run_id": self._run,
            "agent_id": AGENT,
            "session_id": self._session,
            "turn_id": "turn-1",
            "type": content.type,
            "timestamp": _TIME,
            "payload": content.payload,
        }


class _Connection(asyncio.Protocol):
    """One connection with at most one request on its way."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class.

    def data_received(self, data: bytes) -> None:
        self._received += data
        head_end = self._received.find(_HEAD_END)
        if head_end < 0:
            return
        at = self._received.lower().find(_LENGTH, 0, head_end) + len(_LENGTH)
        length = int(self._received[at : self._received.index(b"\r", at)])
        if len(self._received) >= head_end + len(_HEAD_END) + length and self._answer is not None:
            answer, self._answer = self._answer, None
            received, self._received = self._received, b""
            answer.set_result(received)

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ServiceRefused("the service closed the connection"))

    async def ask(self, request: bytes) -> bytes:
        """Send a request and wait for the whole answer, head and body."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """Close it."""
        assert self._transport is not None
        self._transport.close()
