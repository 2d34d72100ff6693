"""A service in this process at a free loopback port, and how tests speak to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from service.events import StreamTimes
from service.ports import KafkaPlace, StorePort
from service.server import OpenStore, bind, serve


@dataclass
class Served:
    """A running service. `lines` is what it announced."""

    port: int
    http: httpx.AsyncClient
    stop: asyncio.Event
    serving: asyncio.Task[None]
    lines: list[str]

    async def raw(self, head: str, body: bytes = b"") -> Raw:
        """Send bytes just as they are (`head` without its empty line) on a connection of their own."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(head.encode("latin-1") + b"\r\nhost: x\r\n\r\n" + body)
            return await read_raw(reader)
        finally:
            writer.close()
            await writer.wait_closed()


@dataclass
class Raw:
    """An answer as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Its JSON."""
        return json.loads(self.body)


async def read_raw(reader: asyncio.StreamReader) -> Raw:
    """Read one answer that tells its length."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers["content-length"]))
    return Raw(int(head[0].split(" ")[1]), headers, body)


@asynccontextmanager
async def served(
    store: StorePort | OpenStore,
    *,
    drain_seconds: float = 5.0,
    kafka: KafkaPlace | None = None,
    stream_times: StreamTimes | None = None,
) -> AsyncIterator[Served]:
    """Serve a store, or what opens one, until the block ends."""
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    stop = asyncio.Event()
    lines: list[str] = []

    async def ready() -> StorePort:
        assert not callable(store)
        return store

    open_store = store if callable(store) else ready
    serving = asyncio.create_task(
        serve(
            open_store,
            listener,
            version="9.9",
            kafka=kafka,
            announce=lines.append,
            stop=stop,
            drain_seconds=drain_seconds,
            stream_times=stream_times,
        )
    )
    limits = httpx.Limits(max_connections=100)
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", timeout=20, limits=limits, trust_env=False
    ) as client:
        try:
            yield Served(port, client, stop, serving, lines)
        finally:
            stop.set()
            await asyncio.wait({serving})


async def until(condition: Any) -> None:
    """Wait for a condition that nothing tells of, for ten seconds at most."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.005)
