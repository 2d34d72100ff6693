"""How a request's body is read: counted while it comes, and never beyond its bound."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final

from schemas.limits import body_bytes_max
from schemas.refusals import Code, Refusal, refuse

Headers = Iterable[tuple[bytes, bytes]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

buffered_bytes_max: Final = 256 * 1024 * 1024
"""Bytes of bodies that one service holds at a time, over all requests; beyond it answers `unavailable`."""

linger_bytes_max: Final = body_bytes_max
linger_seconds_max: Final = 2.0
"""How much of a refused body is read and thrown away, so that the answer is not lost to a reset connection."""


class Disconnected(Exception):
    """The caller went away before its request was whole; nothing was done and nobody waits for an answer."""


class Buffers:
    """How many bytes of bodies are held just now, over all requests."""

    __slots__ = ("held_bytes",)

    def __init__(self) -> None:
        self.held_bytes = 0


class Body:
    """The body of one request. `whole` is true once all of it has come."""

    __slots__ = ("_buffers", "_headers", "_held_bytes", "_receive", "whole")

    def __init__(self, headers: Headers, receive: Receive, buffers: Buffers) -> None:
        self._headers = headers
        self._receive = receive
        self._buffers = buffers
        self._held_bytes = 0
        self.whole = False

    async def read(self) -> bytes | Refusal:
        """All of it; `too_large` as soon as it is known to be beyond 16 MiB. Raises `Disconnected`."""
        declared = self.header(b"content-length")
        if declared is not None and declared.isdigit() and int(declared) > body_bytes_max:
            return too_large()
        parts: list[bytes] = []
        while True:
            parts.append(await self._next())
            if self._held_bytes > body_bytes_max:
                return too_large()
            if self.whole:
                return parts[0] if len(parts) == 1 else b"".join(parts)
            if self._buffers.held_bytes > buffered_bytes_max:
                return refuse(Code.UNAVAILABLE, "too many large bodies are being read; try again in a moment")

    async def linger(self) -> None:
        """Throw away what still comes, up to a bound in bytes and time. Raises nothing."""
        if self.header(b"expect") is not None:
            return  # the caller waits to be asked for its body, and was not
        left = linger_bytes_max
        try:
            async with asyncio.timeout(linger_seconds_max):
                while not self.whole and left > 0:
                    left -= len(await self._next())
                    self.release()
        except (TimeoutError, Disconnected):
            return

    def header(self, name: bytes) -> bytes | None:
        """A header of the request, its name in lower case; None where it is absent."""
        return next((value for key, value in self._headers if key == name), None)

    async def disconnected(self) -> None:
        """Wait until the caller goes away, whatever else it sends. For a request whose answer does not end."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def release(self) -> None:
        """The body is not held any more."""
        self._buffers.held_bytes -= self._held_bytes
        self._held_bytes = 0

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        part: bytes = message.get("body", b"")
        self._held_bytes += len(part)
        self._buffers.held_bytes += len(part)
        self.whole = not message.get("more_body", False)
        return part


def too_large() -> Refusal:
    """The refusal of a body beyond the bound."""
    return refuse(Code.TOO_LARGE, f"the body is larger than {body_bytes_max} bytes")
