"""The stores that the suite is run against.

A kind of store joins by a maker in `MAKERS`: an asynchronous context manager that takes a place with an empty folder
and gives a `Client`. `CLOGGED` holds makers of stores that can be made unable to write, which is part of the contract
too.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pytest

from engine.environment import SystemEnvironment
from engine.kafka.settings import KafkaSettings
from engine.keys import MemoryKeyStore
from engine.logs.simulated import AppendFault, Faults, SimulatedLog
from engine.opening import StoreSettings, assemble, open_store
from engine.pending import QueueLimits
from engine.projection import MemoryFiles
from engine.store import Store
from schemas.refusals import Code, Refusal, Refused
from service import consumers, methods, render, views
from tests.contract import builders
from tests.contract.builders import PARTITIONS, Command, Json
from tests.contract.clients import Client, Cloggable, HttpClient, call_each
from tests.kafka.brokers import Brokers
from tests.kafka.proxy import Proxy
from tests.kafka.topics import own_topics
from tests.model.reference import Reference
from tests.service.served import served


@dataclass(frozen=True)
class Place:
    """Where a store is made: an empty folder, and what the test that asks can ask for."""

    folder: Path
    request: pytest.FixtureRequest

    def topics(self) -> KafkaSettings:
        """Topics of its own on the broker that all tests share."""
        return own_topics(self.request.getfixturevalue("bootstrap_servers"))


Maker = Callable[[Place], AbstractAsyncContextManager[Client]]
ClogMaker = Callable[[Place], AbstractAsyncContextManager[Cloggable]]


class InProcess:
    """A store in this process, asked through the service's functions without HTTP."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def call(self, method: str, args: Json) -> Json:
        """See `Client`."""
        return await methods.call(self.store, method, args)

    async def get(self, path: str, **query: Any) -> Json:
        """See `Client`."""
        return await views.get(self.store, path, {name: str(value) for name, value in query.items()})

    async def send(self, verb: str, path: str, body: Any = None) -> Json:
        """See `Client`."""
        _, _, quoted, *rest = path.strip("/").split("/")
        name = unquote(quoted)
        if verb == "DELETE":
            found = await consumers.delete(self.store, name)
        elif rest == ["commit"]:
            found = await consumers.commit(self.store, name, body)
        else:
            found = await consumers.put(self.store, name, body)
        if isinstance(found, Refusal):
            raise Refused(found)
        return dict(found)

    async def consume(self, name: str, cursor: str = "") -> list[tuple[str, Json]]:
        """See `Client`."""
        stream = await self.store.consumers.stream(name, cursor, follow=False)
        if isinstance(stream, Refusal):
            raise Refused(stream)
        found: list[tuple[str, Json]] = []
        try:
            while True:
                portion = await stream.take()
                if portion is None:
                    await stream.wait()
                    continue
                found += [(each.cursor, dict(render.record(each.record))) for each in portion.records]
                if portion.end is not None:
                    return found
        finally:
            stream.close()

    async def call_all(self, commands: Sequence[Command]) -> list[Json | Refused]:
        """See `Client`."""
        return await call_each(self, commands)


@asynccontextmanager
async def in_memory(
    environment: SystemEnvironment, faults: Faults, limits: QueueLimits, *, exclusive: bool
) -> AsyncIterator[Store]:
    """A store over a simulated log, with keys and projections in memory."""
    log = SimulatedLog(PARTITIONS, environment, faults, exclusive=exclusive)
    files: dict[int, MemoryFiles] = {}
    store = await assemble(
        log,
        MemoryKeyStore(environment),
        lambda partition: files.setdefault(partition, MemoryFiles()),
        environment,
        limits,
        log_kind="simulated",
        release=log.close,
    )
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def on_disk(folder: Path) -> AsyncIterator[Store]:
    """A store over the embedded log."""
    store = await open_store(StoreSettings(folder, PARTITIONS), SystemEnvironment(""))
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def on_kafka(folder: Path, kafka: KafkaSettings) -> AsyncIterator[Store]:
    """A store over topics."""
    store = await open_store(StoreSettings(folder, PARTITIONS, log="kafka", kafka=kafka), SystemEnvironment(""))
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def simulated(_place: Place) -> AsyncIterator[Client]:
    """In process, over the simulated log without faults, which another process could write to at any time."""
    async with in_memory(SystemEnvironment(""), Faults(), QueueLimits(), exclusive=False) as store:
        yield InProcess(store)


@asynccontextmanager
async def embedded(place: Place) -> AsyncIterator[Client]:
    """In process, over the embedded log."""
    async with on_disk(place.folder) as store:
        yield InProcess(store)


@asynccontextmanager
async def http(place: Place) -> AsyncIterator[Client]:
    """Through a real server on a free loopback port, over the embedded log."""
    async with on_disk(place.folder) as store, served(store) as service:
        yield HttpClient(service.http)


@asynccontextmanager
async def kafka(place: Place) -> AsyncIterator[Client]:
    """In process, over topics of its own on the broker that all tests share."""
    async with on_kafka(place.folder, place.topics()) as store:
        yield InProcess(store)


class Model(Reference):
    """The reference model as a client."""

    async def call_all(self, commands: Sequence[Command]) -> list[Json | Refused]:
        """See `Client`."""
        return await call_each(self, commands)


@asynccontextmanager
async def model(_place: Place) -> AsyncIterator[Client]:
    """The reference model."""
    yield Model()


MAKERS: Final[dict[str, Maker]] = {
    "simulated": simulated,
    "embedded": embedded,
    "http": http,
    "kafka": kafka,
    "model": model,
}

# Stores that can be made unable to write

NOBODY: Final = "127.0.0.1:1"
"""An address where no broker is."""


def fillers() -> Iterator[str]:
    """IDs of sessions that no test asks for."""
    return (f"filler-{number}" for number in itertools.count())


class LogDown(Faults):
    """A log that refuses appends while it is down, and the store over it."""

    def __init__(self) -> None:
        self.down = False

    def on_append(self, partition: int, position: int, batch: Sequence[bytes]) -> AppendFault:
        """See `Faults`."""
        del partition, position, batch
        return AppendFault(refused=self.down)


class CloggedByLog:
    """A store whose log refuses to append."""

    def __init__(self, client: Client, faults: LogDown) -> None:
        self.client = client
        self._faults = faults

    async def clog(self) -> None:
        """See `Cloggable`."""
        self._faults.down = True

    async def unclog(self) -> None:
        """See `Cloggable`."""
        self._faults.down = False


@asynccontextmanager
async def log_down(_place: Place) -> AsyncIterator[Cloggable]:
    """A store whose log can be made to refuse appends."""
    faults = LogDown()
    async with in_memory(SystemEnvironment(""), faults, QueueLimits(), exclusive=True) as store:
        yield CloggedByLog(InProcess(store), faults)


@asynccontextmanager
async def log_down_http(_place: Place) -> AsyncIterator[Cloggable]:
    """The same behind HTTP."""
    faults = LogDown()
    async with (
        in_memory(SystemEnvironment(""), faults, QueueLimits(), exclusive=True) as store,
        served(store) as service,
    ):
        yield CloggedByLog(HttpClient(service.http), faults)


class SlowLog(Faults):
    """A log whose appends wait at a gate while it is shut; `waiting` tells of each that came to it."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = asyncio.Queue[int]()

    def on_append(self, partition: int, position: int, batch: Sequence[bytes]) -> AppendFault:
        """See `Faults`."""
        del position, batch
        if self.gate.is_set():
            return AppendFault()
        self.waiting.put_nowait(partition)
        return AppendFault(delay_seconds=GateEnvironment.UNTIL_OPEN)


class GateEnvironment(SystemEnvironment):
    """The real world, but that one length of sleep means to wait for a gate."""

    UNTIL_OPEN: Final = 123456789.0

    def __init__(self, gate: asyncio.Event) -> None:
        super().__init__("")
        self._gate = gate

    async def sleep(self, seconds: float) -> None:
        """See `Environment`."""
        if seconds == self.UNTIL_OPEN:
            await self._gate.wait()
        else:
            await super().sleep(seconds)


class CloggedByQueue:
    """A store with a batch under way in every partition, and a queue of one behind it that is full."""

    def __init__(self, store: Store, log: SlowLog) -> None:
        self.client: Client = InProcess(store)
        self._store = store
        self._log = log
        self._session_ids = fillers()
        self._fillers: list[asyncio.Task[Json]] = []

    async def clog(self) -> None:
        """See `Cloggable`."""
        self._log.gate.clear()
        for partition in range(PARTITIONS):
            self._fill(partition)
        for _ in range(PARTITIONS):
            await self._log.waiting.get()
        for partition in range(PARTITIONS):
            self._fill(partition)
        while any(not each.queued for each in (await self._store.status()).partitions):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0)

    async def unclog(self) -> None:
        """See `Cloggable`."""
        self._log.gate.set()
        await asyncio.gather(*self._fillers)
        self._fillers.clear()

    def _fill(self, partition: int) -> None:
        """Send a command that its partition has to write."""
        session_id = next(each for each in self._session_ids if builders.place(each) == partition)
        command = builders.create_session(session_id)
        self._fillers.append(asyncio.create_task(self.client.call(command.method, command.args)))


@asynccontextmanager
async def queue_full(_place: Place) -> AsyncIterator[Cloggable]:
    """A store whose queues can be filled behind a log that does not answer."""
    log = SlowLog()
    limits = QueueLimits(queue_commands_max=1)
    async with in_memory(GateEnvironment(log.gate), log, limits, exclusive=True) as store:
        yield CloggedByQueue(store, log)


class CloggedByBroker:
    """A store that can be cut off from its broker."""

    def __init__(self, store: Store, proxy: Proxy) -> None:
        self.client: Client = InProcess(store)
        self._proxy = proxy
        self._target = proxy.target
        self._fillers = fillers()

    async def clog(self) -> None:
        """See `Cloggable`."""
        self._proxy.target = NOBODY
        self._proxy.cut()

    async def unclog(self) -> None:
        """See `Cloggable`. The store finds out by itself, a moment later."""
        self._proxy.target = self._target
        for partition in range(PARTITIONS):
            filler = next(filler for filler in self._fillers if builders.place(filler) == partition)
            while not await self._can_write(builders.create_session(filler)):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)

    async def _can_write(self, command: Command) -> bool:
        (outcome,) = await self.client.call_all([command])
        assert not isinstance(outcome, Refused) or outcome.code is Code.UNAVAILABLE
        return not isinstance(outcome, Refused)


@asynccontextmanager
async def broker_gone(place: Place) -> AsyncIterator[Cloggable]:
    """A store on a broker of its own, behind a proxy that can be shut."""
    async with Proxy() as proxy, Brokers(place.folder / "kafka", advertised={1: proxy.address}) as brokers:
        proxy.target = brokers.bootstrap
        async with on_kafka(place.folder / "store", own_topics(proxy.address)) as store:
            yield CloggedByBroker(store, proxy)


class CloggedModel(Model):
    """The reference model, refusing every change while it is clogged."""

    READS: Final = ("load_", "list_")

    def __init__(self) -> None:
        super().__init__()
        self.clogged = False

    @property
    def client(self) -> Client:
        """See `Cloggable`."""
        return self

    async def clog(self) -> None:
        """See `Cloggable`."""
        self.clogged = True

    async def unclog(self) -> None:
        """See `Cloggable`."""
        self.clogged = False

    def apply(self, method: str, args: Json) -> Json:
        """See `Reference`."""
        if self.clogged and not method.removeprefix("memory/").startswith(self.READS):
            raise Refused(Refusal(Code.UNAVAILABLE, "the log cannot be written"))
        return super().apply(method, args)

    async def send(self, verb: str, path: str, body: Any = None) -> Json:
        """See `Client`."""
        if self.clogged:
            raise Refused(Refusal(Code.UNAVAILABLE, "the log cannot be written"))
        return await super().send(verb, path, body)


@asynccontextmanager
async def clogged_model(_place: Place) -> AsyncIterator[Cloggable]:
    """The reference model with a switch."""
    yield CloggedModel()


CLOGGED: Final[dict[str, ClogMaker]] = {
    "log_down": log_down,
    "log_down_http": log_down_http,
    "queue_full": queue_full,
    "broker_gone": broker_gone,
    "model": clogged_model,
}
