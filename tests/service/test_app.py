"""What the application does by itself, whatever serves it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, MutableMapping
from typing import Any

import httpx
import pytest

from schemas.commands import Command
from schemas.values import Answer, AppendResult
from service import app, body
from service.app import Service, make_app
from service.ports import StoreHolder
from tests.service.arguments import ARGUMENTS
from tests.service.fake import FakeStore


def client(service: Service) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=service), base_url="http://store")


Message = MutableMapping[str, Any]


async def exchange(service: Service, verb: str, path: str, *received: Message) -> list[Message]:
    """What the application sends when it is handed these messages."""
    waiting, sent = list(received), []

    async def receive() -> Message:
        return waiting.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": verb, "raw_path": path.encode(), "query_string": b"", "headers": []}
    await service(scope, receive, send)
    return sent


def part(content: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": content, "more_body": more}


async def test_a_head_has_the_length_of_its_get_and_no_body() -> None:
    start, content = await exchange(make_app(FakeStore()), "HEAD", "/livez")
    assert (b"content-length", str(len(b'{"live":true}')).encode()) in start["headers"]
    assert content["body"] == b""


async def test_a_caller_that_goes_away_is_no_bug(caplog: pytest.LogCaptureFixture) -> None:
    store = FakeStore()
    service = make_app(store)
    gone = {"type": "http.disconnect"}
    assert await exchange(service, "POST", "/v1/store/load_run", part(b"{", more=True), gone) == []
    assert (store.reads, caplog.records, service.in_flight) == ([], [], 0)


async def test_only_http_is_served() -> None:
    async def nothing(*_: object) -> Any:
        raise AssertionError

    with pytest.raises(RuntimeError, match="only HTTP"):
        await make_app(FakeStore())({"type": "websocket"}, nothing, nothing)


async def test_too_many_requests_are_unavailable_and_operators_still_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "requests_in_flight_max", 1)
    store, asked, go = FakeStore(), asyncio.Event(), asyncio.Event()

    def decide(_command: Command) -> Awaitable[Answer]:
        async def answer() -> Answer:
            asked.set()
            await go.wait()
            return AppendResult("1", inserted=True, session_status=None)

        return answer()

    store.decide = decide
    service = make_app(store)
    async with client(service) as http:
        first = asyncio.create_task(http.post("/v1/store/append_record", json=ARGUMENTS["append_record"]))
        await asked.wait()
        second = await http.post("/v1/store/append_record", json=ARGUMENTS["append_record"])
        assert (second.status_code, second.json()["code"]) == (503, "unavailable")
        assert (await http.get("/livez")).status_code == 200
        go.set()
        assert (await first).status_code == 200
        assert service.in_flight == 0


async def test_many_large_bodies_at_once_are_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "buffered_bytes_max", 10)
    service = Service(StoreHolder(FakeStore()))
    first = await exchange(
        service, "POST", "/v1/store/load_run", part(b"{" + b" " * 20, more=True), part(b" ", more=True), part(b"}")
    )
    assert first[0]["status"] == 503
    second = await exchange(service, "POST", "/v1/store/load_run", part(b"{}"))
    assert second[0]["status"] == 422, "what was read before is not held any more"
