"""How the service listens, and how it stops: no request that it took is left without an answer.

The order at start: bind, so that a port in use is known before anything is opened; then listen, so that
`/livez` answers at once; then open the store. The order at the end: take no new requests, let those under way
finish within a bound, close the store (which answers what still waits), close the connections.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any, Final

import uvicorn

from schemas.refusals import Refusal
from service.app import Service
from service.connections import Connection
from service.events import StreamTimes
from service.ports import KafkaPlace, StoreHolder, StorePort

OpenStore = Callable[[], Awaitable[StorePort]]

drain_seconds_max: Final = 10.0
"""How long requests under way may take once the service was told to stop."""

farewell_seconds_max: Final = 2
"""How long answers that the closing store gives may take to leave."""

backlog_connections_max: Final = 2048
_READY_POLL_SECONDS: Final = 0.02
_PORT_MAX: Final = 65_535
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class ServeError(Exception):
    """The service cannot listen where it was told to; the message is one line for a person."""


def bind(host: str, port: int, *, loopback_only: bool = True) -> socket.socket:
    """A socket that listens at an address; port 0 takes any free one. Connections wait until `serve` takes them.

    Raises `ServeError` for a port in use, an address that is not this machine's, and, while `loopback_only`, any
    address that other machines can reach.
    """
    family, address = _resolve(host, port)
    if loopback_only and not ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise ServeError(f"cannot listen on {host}: without tokens only loopback is served, such as 127.0.0.1")
    # asyncio turns Nagle's delay off only where the protocol is named, and else each answer takes 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(backlog_connections_max)
    except OSError as error:
        listener.close()
        raise ServeError(f"cannot listen on {url_of(host, port)}: {(error.strerror or str(error)).lower()}") from None
    listener.setblocking(False)
    return listener


def url_of(host: str, port: int) -> str:
    """The URL of an address."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(
    open_store: OpenStore,
    listener: socket.socket,
    *,
    version: str = "",
    kafka: KafkaPlace | None = None,
    announce: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
    drain_seconds: float = drain_seconds_max,
    stream_times: StreamTimes | None = None,
) -> None:
    """Serve a store at a bound socket until SIGTERM, SIGINT or `stop`, then stop gracefully.

    `open_store` runs once requests are answered. What it raises is raised here, after the service has stopped. `kafka`
    is where its log is, to be told to operators; None where that is embedded.
    `announce` is handed the one line that tells the service is ready (printed to standard output by default).
    """
    stop = stop or asyncio.Event()
    host, port = listener.getsockname()[:2]
    holder = StoreHolder()
    service = Service(holder, version, kafka, stream_times)
    server = _Server(
        uvicorn.Config(
            service,
            http=Connection,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level=logging.CRITICAL + 1,
            server_header=False,
            backlog=backlog_connections_max,
            timeout_graceful_shutdown=farewell_seconds_max,
        )
    )
    with _signals(stop):
        serving = asyncio.create_task(server.serve([listener]))
        starting = asyncio.create_task(
            _start(open_store, holder, announce or _print_line, f"runstore serving on {url_of(host, port)}")
        )
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({serving, starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done() and starting.exception() is None:
                await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _stop(service, server, holder, serving, starting, drain_seconds=drain_seconds)
            stopping.cancel()
    if not starting.cancelled():
        starting.result()


def run(
    open_store: OpenStore,
    listener: socket.socket,
    *,
    version: str = "",
    kafka: KafkaPlace | None = None,
    announce: Callable[[str], None] | None = None,
) -> None:
    """The same from a program without an event loop, on a fast one (uvloop, where there is one)."""
    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        runner.run(serve(open_store, listener, version=version, kafka=kafka, announce=announce))


class _Server(uvicorn.Server):
    """Uvicorn, which leaves signals to us: after its own handling of one it would kill the process with it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop_listening(self) -> None:
        """Take no new connections."""
        for each in getattr(self, "servers", ()):
            each.close()


async def _start(open_store: OpenStore, holder: StoreHolder, announce: Callable[[str], None], line: str) -> None:
    holder.put(await open_store())
    while not holder.ready():  # noqa: ASYNC110 - stores only tell
        await asyncio.sleep(_READY_POLL_SECONDS)
    announce(line)


async def _stop(
    service: Service,
    server: _Server,
    holder: StoreHolder,
    serving: asyncio.Task[None],
    starting: asyncio.Task[None],
    *,
    drain_seconds: float,
) -> None:
    server.stop_listening()
    service.drain()
    await _within(drain_seconds, service.idle())
    # What was answered until now is there for them; what comes later they read when they come back.
    await _within(farewell_seconds_max, service.end_streams())
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
    store = holder.get()
    try:
        if not isinstance(store, Refusal):
            await store.close()
    finally:
        await _within(farewell_seconds_max, service.idle())
        await _within(farewell_seconds_max, service.end_streams())
        server.should_exit = True
        await serving


async def _within(seconds: float, work: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return


@contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    """Let the first SIGTERM or SIGINT stop the service gracefully, and the second one end the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()

    def leave() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def on_signal() -> None:
        leave()
        stop.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        leave()


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    if not 0 <= port <= _PORT_MAX:
        raise ServeError(f"cannot listen on port {port}: a port is 0 to {_PORT_MAX}")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ServeError(f"cannot listen on {host}: {error.strerror or error}") from None
    family, _, _, _, address = found[0]
    return family, address


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop  # noqa: PLC0415 - not on Windows

    return uvloop.new_event_loop
