"""A reader of server-sent events on a socket of its own, which tests can let wait, and cut."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tests.service.served import Served

patience_seconds = 20.0


@dataclass(frozen=True)
class Got:
    """One event as it came."""

    cursor: str
    event: str
    data: bytes

    def json(self) -> Any:
        """Its data."""
        return json.loads(self.data)

    @property
    def key(self) -> str:
        """The event key of the record in it."""
        return str(self.json()["event_key"])


class Broken(Exception):
    """The connection ended in the middle."""


class Reading:
    """One stream that is read. `comments` counts those that came."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._left = b""
        self.status = 0
        self.headers: dict[str, str] = {}
        self.comments = 0
        self.bytes_read = 0

    async def head(self) -> None:
        """Read the head of the answer."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self.status = int(head[0].split(" ")[1])
        self.headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
        }

    async def problem(self) -> Any:
        """The problem that was answered in place of a stream."""
        return json.loads(await self._reader.readexactly(int(self.headers["content-length"])))

    async def next(self, seconds: float = patience_seconds) -> Got | None:
        """The next event; None at the stream's proper end. Raises `Broken`, and `TimeoutError`."""
        async with asyncio.timeout(seconds):
            while True:
                head, found, rest = self._left.partition(b"\n\n")
                if found:
                    self._left = rest
                    if head.startswith(b":"):
                        assert head == b":", "a heartbeat is nothing but a comment"
                        self.comments += 1
                        continue
                    return _event(head)
                chunk = await self._chunk()
                if not chunk:
                    assert not self._left, "a stream ends after a whole event"
                    return None
                self.bytes_read += len(chunk)
                self._left += chunk

    async def all(self, seconds: float = patience_seconds) -> list[Got]:
        """Every event to the stream's proper end."""
        found: list[Got] = []
        while (got := await self.next(seconds)) is not None:
            found.append(got)
        return found

    async def some(self, count: int) -> list[Got]:
        """The next events, so many."""
        found: list[Got] = []
        for _ in range(count):
            got = await self.next()
            assert got is not None, "the stream has ended"
            found.append(got)
        return found

    async def quiet(self, seconds: float = 0.1) -> None:
        """Nothing comes for a while."""
        with contextlib.suppress(TimeoutError):
            raise AssertionError(f"an event came: {await self.next(seconds)}")

    def cut(self) -> None:
        """End the connection at once."""
        self._writer.transport.abort()

    async def _chunk(self) -> bytes:
        try:
            size = int((await self._reader.readline()).strip() or b"-", 16)
            chunk = await self._reader.readexactly(size + 2)
        except (ValueError, asyncio.IncompleteReadError, ConnectionError) as error:
            raise Broken from error
        return chunk[:-2]


@asynccontextmanager
async def reading(
    service: Served, path: str, *, last: str = "", receive_bytes: int | None = None
) -> AsyncIterator[Reading]:
    """Read a stream from after `last`; `receive_bytes` makes the socket's own buffer small."""
    plain = socket.socket()
    if receive_bytes is not None:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", service.port))
    limit = 2**16 if receive_bytes is None else receive_bytes
    reader, writer = await asyncio.open_connection(sock=plain, limit=limit)
    head = f"GET {path} HTTP/1.1\r\nhost: x\r\n"
    writer.write((head + (f"Last-Event-ID: {last}\r\n" if last else "") + "\r\n").encode())
    found = Reading(reader, writer)
    try:
        await found.head()
        yield found
    finally:
        found.cut()


@asynccontextmanager
async def readings(
    service: Served, path: str, count: int, *, receive_bytes: int | None = None
) -> AsyncIterator[list[Reading]]:
    """Read a stream so many times at once."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(reading(service, path, receive_bytes=receive_bytes)) for _ in range(count)
        ]


async def read_all(service: Served, path: str, *, last: str = "") -> list[Got]:
    """Every event of a stream that ends."""
    async with reading(service, path, last=last) as stream:
        assert stream.status == 200, await stream.problem()
        return await stream.all()


def run_stream(run_id: str) -> str:
    """Where a run's stream is."""
    return f"/v1/runs/{quote(run_id, safe='')}/stream"


def session_stream(session_id: str) -> str:
    """Where a session's stream is."""
    return f"/v1/sessions/{quote(session_id, safe='')}/stream"


EVERYTHING = "/v1/stream"


def _event(text: bytes) -> Got:
    fields: dict[str, bytes] = {}
    for line in text.split(b"\n"):
        name, _, value = line.partition(b": ")
        assert name.decode() not in fields, "each field comes once"
        fields[name.decode()] = value
    assert list(fields) in (["id", "event", "data"], ["event", "data"]), fields
    return Got(fields.get("id", b"").decode(), fields["event"].decode(), fields["data"])
