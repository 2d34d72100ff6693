"""A proxy before a broker that delays, cuts and withholds, request by request, as its plan says.

It knows Kafka's framing and no more: a length, then for a request its kind and correlation ID, for an answer that ID.
So it can let a Produce request reach the broker, and make sure that its answer never comes. A connection in TLS it
cannot read.

A test starts the proxy, then a broker that advertises `proxy.address`, and tells the proxy its `target`.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Final, Self

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3

frame_bytes_max: Final = 128 << 20


class Kind(StrEnum):
    """What becomes of a request and its answer."""

    THROUGH = "through"
    """Both arrive."""

    CUT_REQUEST = "cut request"
    """The connection is cut when a part of the request was sent: the broker never has it."""

    LATE = "late"
    """The connection is cut at once, and the broker has the request still, after the fate's `delay_seconds`."""

    CUT_ANSWER = "cut answer"
    """The connection is cut when a part of the answer was sent: the broker has done what was asked."""

    DROP_AND_CUT = "drop and cut"
    """The connection is cut in place of the answer: the broker has done what was asked."""

    DROP_AND_HANG = "drop and hang"
    """Neither this answer nor a later one comes, and the connection stays: the broker does all that it is asked."""


@dataclass(frozen=True)
class Request:
    """What is known of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    length_bytes: int


@dataclass(frozen=True)
class Fate:
    """What becomes of one request: the request waits `delay_seconds`, its answer `answer_delay_seconds`.

    `portion` is how much is sent of what is cut, from 0 to less than 1.
    """

    kind: Kind = Kind.THROUGH
    delay_seconds: float = 0.0
    answer_delay_seconds: float = 0.0
    portion: float = 0.5


Plan = Callable[[Request], Fate]
"""Decides a request's fate when it comes; asked in the order in which requests come."""

PASSING: Final = Fate()


def all_pass(_request: Request) -> Fate:
    """Let everything pass at once."""
    return PASSING


def in_order(fates: Iterable[Fate], api_key: int = PRODUCE) -> Plan:
    """Give these fates, one each, to the next requests of a kind; then all pass."""
    left = iter(fates)
    return lambda request: next(left, PASSING) if request.api_key == api_key else PASSING


@dataclass
class Mischief:
    """A plan from a seed: each request of these kinds meets each fate by its chance, after a random delay.

    Answers, and what is late, wait as long at most. The same requests in the same order meet the same fates.
    """

    seed: int
    chances: Mapping[Kind, float]
    delay_seconds_max: float = 0.0
    api_keys: frozenset[int] = frozenset({PRODUCE})
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        assert sum(self.chances.values()) <= 1
        self._random = random.Random(self.seed)

    def __call__(self, request: Request) -> Fate:
        """Decide one request's fate, with the same number of random draws whatever it is."""
        if request.api_key not in self.api_keys:
            return PASSING
        drawn, delay, answer_delay, portion = (self._random.random() for _ in range(4))
        chosen = Kind.THROUGH
        for kind, chance in self.chances.items():
            drawn -= chance
            if drawn < 0:
                chosen = kind
                break
        return Fate(chosen, delay * self.delay_seconds_max, answer_delay * self.delay_seconds_max, portion)


class Proxy:
    """Stands between clients and one broker: `async with Proxy() as proxy`.

    `plan` may be set anew at any time, for the requests that come after. `counts` tells how many requests met each
    fate, by the kind of the request.
    """

    def __init__(self, plan: Plan = all_pass) -> None:
        self.plan = plan
        self.target = ""
        self.address = ""
        self.counts: Counter[tuple[int, Kind]] = Counter()
        self._server: asyncio.Server | None = None
        self._connections: dict[_Connection, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections.values():
            task.cancel()
        await asyncio.gather(*self._connections.values(), return_exceptions=True)
        await self._server.wait_closed()

    def cut(self) -> int:
        """Cut all connections, wherever they are in a request or answer; give their number. New ones are taken."""
        cut = list(self._connections)
        for connection in cut:
            connection.abort()
        return len(cut)

    def decide(self, request: Request) -> Fate:
        """Let the plan decide, and count it."""
        fate = self.plan(request)
        self.counts[request.api_key, fate.kind] += 1
        return fate

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        try:
            broker_reader, broker_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection(self, _End(reader, writer), _End(broker_reader, broker_writer))
        task = asyncio.current_task()
        assert task is not None
        self._connections[connection] = task
        try:
            await connection.run()
        except asyncio.CancelledError:
            # Only the proxy's own end cancels it, and a server's task that is cancelled is reported as a failure.
            return
        finally:
            connection.abort()
            del self._connections[connection]


@dataclass(frozen=True)
class _End:
    """One end of a connection, in frames."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def receive(self) -> bytes:
        """Read a frame, its length in front. Raises `IncompleteReadError` at the end."""
        prefix = await self.reader.readexactly(4)
        (length,) = struct.unpack(">i", prefix)
        assert 0 <= length <= frame_bytes_max
        return prefix + await self.reader.readexactly(length)

    async def send(self, frame: bytes, portion: float = 1.0) -> None:
        """Write a frame, or the beginning of one."""
        self.writer.write(frame[: int(len(frame) * portion)])
        await self.writer.drain()

    async def finish(self) -> None:
        """Close when all that was written is sent."""
        self.writer.close()
        await self.writer.wait_closed()


class _Connection:
    """A client's connection, and the one to the broker that was made for it."""

    def __init__(self, proxy: Proxy, client: _End, broker: _End) -> None:
        self._proxy = proxy
        self._client = client
        self._broker = broker
        self._fates: dict[int, Fate] = {}

    def abort(self) -> None:
        """Cut both ends."""
        self._client.writer.transport.abort()
        self._broker.writer.transport.abort()

    async def run(self) -> None:
        """Pass frames both ways until one way ends."""
        ways = [asyncio.create_task(self._requests()), asyncio.create_task(self._answers())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for outcome in await asyncio.gather(*ways, return_exceptions=True):
                if isinstance(outcome, BaseException) and not isinstance(outcome, _ENDS):
                    raise outcome

    async def _requests(self) -> None:
        while True:
            frame = await self._client.receive()
            api_key, version, correlation_id = struct.unpack_from(">hhi", frame, 4)
            fate = self._proxy.decide(Request(api_key, version, correlation_id, len(frame)))
            self._fates[correlation_id] = fate
            if fate.kind is Kind.LATE:
                self._client.writer.transport.abort()
            await asyncio.sleep(fate.delay_seconds)
            if fate.kind is Kind.CUT_REQUEST:
                await self._broker.send(frame, fate.portion)
                return
            await self._broker.send(frame)
            if fate.kind is Kind.LATE:
                # The client is gone; the broker's answer ends it.
                await asyncio.get_running_loop().create_future()

    async def _answers(self) -> None:
        is_silent = False
        while True:
            frame = await self._broker.receive()
            (correlation_id,) = struct.unpack_from(">i", frame, 4)
            fate = self._fates.pop(correlation_id)
            is_silent |= fate.kind is Kind.DROP_AND_HANG
            if fate.kind in {Kind.DROP_AND_CUT, Kind.LATE}:
                return
            await asyncio.sleep(fate.answer_delay_seconds)
            if fate.kind is Kind.CUT_ANSWER:
                await self._client.send(frame, fate.portion)
                await self._client.finish()
                return
            if not is_silent and not self._client.writer.transport.is_closing():
                await self._client.send(frame)


_ENDS: Final = (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError)
"""How one way of a connection ends when the other, or one of its ends, has ended."""
