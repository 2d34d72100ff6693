"""How the service starts and stops: nothing printed but one line, no request lost."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from schemas.commands import Command
from schemas.refusals import Code, refuse
from schemas.values import Answer, AppendResult
from service.ports import KafkaPlace, StorePort
from service.server import ServeError, bind, url_of
from tests.service.arguments import ARGUMENTS
from tests.service.fake import FakeStore
from tests.service.served import read_raw, served, until

ROOT = Path(__file__).parents[2]
BODY = httpx.Request("POST", "http://x", json=ARGUMENTS["append_record"]).content
APPEND = (
    b"POST /v1/store/append_record HTTP/1.1\r\nhost: x\r\ncontent-length: "
    + str(len(BODY)).encode()
    + b"\r\n\r\n"
    + BODY
)


class Gate:
    """A store whose commands wait until they are let go."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.store.decide = self.wait
        self.open = asyncio.Event()

    async def wait(self, _command: Command) -> Answer:
        await self.open.wait()
        return AppendResult("0001", inserted=True, session_status=None)


# Binding


def test_a_port_in_use_is_told_in_one_line() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServeError) as raised:
            bind("127.0.0.1", port)
    assert str(raised.value) == f"cannot listen on http://127.0.0.1:{port}: address already in use"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104 - refused here
def test_other_machines_are_not_served_without_tokens(host: str) -> None:
    with pytest.raises(ServeError, match="without tokens only loopback is served"):
        bind(host, 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.9.9.9"])
def test_loopback_is_served(host: str) -> None:
    with bind(host, 0) as listener:
        assert listener.getsockname()[1] > 0


@pytest.mark.parametrize(
    ("host", "port"), [("127.0.0.1", 70_000), ("127.0.0.1", -1), ("", 0), ("no.such.host.invalid", 0)]
)
def test_what_is_no_address_is_told_in_one_line(host: str, port: int) -> None:
    with pytest.raises(ServeError, match="cannot listen on ") as raised:
        bind(host, port)
    assert "\n" not in str(raised.value)


async def test_a_service_tells_where_its_log_is() -> None:
    async with served(FakeStore()) as service:
        assert (await service.http.get("/v1/status")).json()["kafka"] is None
    async with served(FakeStore(), kafka=KafkaPlace("a:1,b:2", "p.log", "p.keys")) as service:
        told = (await service.http.get("/v1/status")).json()["kafka"]
    assert told == {"bootstrap_servers": "a:1,b:2", "log_topic": "p.log", "keys_topic": "p.keys"}


def test_an_address_of_six_has_brackets() -> None:
    assert url_of("::1", 8420) == "http://[::1]:8420"


# Starting


async def test_requests_are_answered_while_the_store_is_opened() -> None:
    opened, store = asyncio.Event(), FakeStore()
    store.is_ready = False

    async def open_store() -> StorePort:
        await opened.wait()
        return store

    async with served(open_store) as service:
        assert (await service.http.get("/livez")).status_code == 200
        for path in ("/readyz", "/v1/status", "/v1/sessions"):
            response = await service.http.get(path)
            assert (response.status_code, response.json()["code"]) == (503, "unavailable")
        response = await service.http.post("/v1/store/append_record", content=BODY)
        assert (response.status_code, response.json()["code"]) == (503, "unavailable")
        assert "runstore_ready 0.0" in (await service.http.get("/metrics")).text

        opened.set()
        while (await service.http.post("/v1/store/append_record", content=BODY)).status_code != 200:
            pass
        assert (await service.http.get("/readyz")).status_code == 503
        assert service.lines == []

        store.is_ready = True
        await until(lambda: service.lines)
        assert (await service.http.get("/readyz")).status_code == 200
        assert service.lines == [f"runstore serving on http://127.0.0.1:{service.port}"]
    assert store.closed == 1


async def test_a_store_that_does_not_open_ends_the_service() -> None:
    async def open_store() -> StorePort:
        raise RuntimeError("the folder is locked")

    async with served(open_store) as service:
        with pytest.raises(RuntimeError, match="the folder is locked"):
            await service.serving
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", service.port)


async def test_a_service_stops_while_the_store_is_opened() -> None:
    canceled = asyncio.Event()

    async def open_store() -> StorePort:
        try:
            await asyncio.Event().wait()
        finally:
            canceled.set()
        raise AssertionError

    async with served(open_store) as service:
        await service.http.get("/livez")
        service.stop.set()
        await service.serving
    assert canceled.is_set()
    assert service.lines == []


# Stopping


async def test_what_is_under_way_is_finished_and_then_the_store_is_closed() -> None:
    gate = Gate()
    async with served(gate.store) as service:
        await until(lambda: service.lines)
        under_way = asyncio.create_task(service.http.post("/v1/store/append_record", content=BODY))
        await until(lambda: gate.store.commands)
        service.stop.set()
        await until(lambda: not listening(service.port))
        assert gate.store.closed == 0
        gate.open.set()
        response = await under_way
        assert (response.status_code, response.json()["id"]) == (200, "0001")
        assert response.headers["connection"] == "close"
        await service.serving
    assert gate.store.closed == 1


async def test_new_requests_on_kept_connections_are_unavailable() -> None:
    gate = Gate()
    async with served(gate.store) as service:
        await until(lambda: service.lines)
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await read_raw(reader)).status == 200
        under_way = asyncio.create_task(service.http.post("/v1/store/append_record", content=BODY))
        await until(lambda: gate.store.commands)
        service.stop.set()
        await until(lambda: not listening(service.port))

        writer.write(APPEND)
        answer = await read_raw(reader)
        assert (answer.status, answer.json()["code"], answer.headers["connection"]) == (503, "unavailable", "close")
        assert "retry-after" in answer.headers
        assert await reader.read() == b""
        writer.close()
        assert len(gate.store.commands) == 1
        gate.open.set()
        assert (await under_way).status_code == 200


async def test_what_does_not_finish_is_answered_by_the_closing_store() -> None:
    gate = Gate()
    gate.store.decide = lambda _: later()

    async def later() -> Answer:
        await gate.open.wait()
        return refuse(Code.UNAVAILABLE, "closing")  # type: ignore[return-value]

    async def close() -> None:
        gate.open.set()

    gate.store.close = close  # type: ignore[method-assign]
    async with served(gate.store, drain_seconds=0.05) as service:
        await until(lambda: service.lines)
        under_way = asyncio.create_task(service.http.post("/v1/store/append_record", content=BODY))
        await until(lambda: gate.store.commands)
        service.stop.set()
        response = await under_way
        assert (response.status_code, response.json()["detail"]) == (503, "closing")
        await service.serving


def listening(port: int) -> bool:
    """Whether a port takes connections."""
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


# As a program


@asynccontextmanager
async def program(port: int, opening: str = "0") -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.service.serve_fake",
        str(port),
        opening,
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(20):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().rstrip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_program_when_its_answers_are_given(number: signal.Signals) -> None:
    async with program(0) as process:
        line = await line_of(process)
        address = line.removeprefix("runstore serving on ")
        assert address.startswith("http://127.0.0.1:")
        async with httpx.AsyncClient(base_url=address, trust_env=False) as http:
            under_way = asyncio.create_task(http.post("/v1/store/append_record", content=BODY))
            assert await line_of(process) == "asked"
            process.send_signal(number)
            await until(lambda: not listening(int(address.rpartition(":")[2])))
            assert process.stdin is not None
            process.stdin.write(b"go\n")
            assert (await under_way).status_code == 200
        assert await line_of(process) == "closed"
        assert await process.wait() == 0
        assert process.stderr is not None
        assert await process.stderr.read() == b""


async def test_a_second_signal_ends_the_program_at_once() -> None:
    async with program(0) as process:
        port = int((await line_of(process)).rpartition(":")[2])
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            under_way = asyncio.create_task(http.post("/v1/store/append_record", content=BODY))
            assert await line_of(process) == "asked"
            process.send_signal(signal.SIGTERM)
            await until(lambda: not listening(port))
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == -signal.SIGTERM
            with pytest.raises(httpx.TransportError):
                await under_way


async def test_the_program_tells_that_its_port_is_in_use() -> None:
    with bind("127.0.0.1", 0) as taken:
        async with program(taken.getsockname()[1]) as process:
            out, err = await process.communicate()
    assert (process.returncode, out) == (2, b"")
    assert err.decode().count("\n") == 1
    assert "address already in use" in err.decode()


async def test_the_program_tells_that_its_store_does_not_open() -> None:
    async with program(0, "fail") as process:
        out, err = await process.communicate()
    assert (process.returncode, out, err) == (1, b"", b"the folder is locked\n")
