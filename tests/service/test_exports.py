"""How exports are sent: line by line, and with their refusal where they cannot go on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx
import pytest

from schemas.refusals import Code, Refused, refuse
from schemas.replays import ExportedRun
from schemas.values import Checkpoint, Record, Session, SessionStatus
from tests.service.fake import NOON, FakeStore, record, run_meta
from tests.service.served import served, until

PAYLOAD = b'{"n":1.10,"s":"\\ud800"}'


@dataclass
class Exported:
    """An export of one run with some records, which may be refused after them."""

    session: Session | None = field(default_factory=lambda: Session("sess-1", SessionStatus.ACTIVE, NOON))
    count: int = 3
    refusal: Code | None = None
    handed_out: int = 0
    bug: bool = False

    async def runs(self) -> AsyncIterator[ExportedRun]:
        yield ExportedRun(run_meta("child"), "before")
        yield ExportedRun(run_meta("run-1"), "")

    async def records(self) -> AsyncIterator[Record]:
        for number in range(self.count):
            self.handed_out += 1
            yield Record(f"{number:04}", record(payload=PAYLOAD))
        if self.refusal is not None:
            raise Refused(refuse(self.refusal, "gone", session_id="sess-1"))
        if self.bug:
            raise ValueError("secret")

    async def checkpoints(self) -> AsyncIterator[tuple[str, Checkpoint]]:
        yield "run-1", Checkpoint("cp", b"\xff")


async def lines_of(path: str, export: Exported) -> list[bytes]:
    store = FakeStore()
    store.values = {"run-1": export, "sess-1": export}
    async with served(store) as service:
        await until(lambda: service.lines)
        response = await service.http.get(path)
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/jsonl"
        assert response.headers["cache-control"] == "no-store"
        assert response.content.endswith(b"\n")
        return response.content.splitlines()


async def test_a_run_is_a_line_that_names_it_and_its_records() -> None:
    lines = await lines_of("/v1/runs/run-1/export", Exported(None))
    head, *records = [json.loads(line) for line in lines]
    assert (head["format"], head["run"]["run_id"], head["run"]["predecessor_run_id"]) == (
        "runstore.run.v1",
        "run-1",
        "",
    )
    assert [each["id"] for each in records] == ["0000", "0001", "0002"]
    assert {each["payload"] for each in records} == {PAYLOAD.decode()}


@pytest.mark.parametrize("kind", ["sessions/sess-1", "trees/run-1"])
async def test_what_can_be_imported_says_that_it_is_whole(kind: str) -> None:
    export = Exported() if kind.startswith("s") else Exported(None)
    lines = [json.loads(line) for line in await lines_of(f"/v1/{kind}/export", export)]
    head = lines.pop(0)
    if export.session is None:
        assert head == {"format": "runstore.tree.v1"}
    else:
        assert (head["format"], head["session"]["id"]) == ("runstore.session.v1", "sess-1")
    assert [next(iter(line)) for line in lines] == ["run", "run", "record", "record", "record", "checkpoint", "end"]
    assert lines[0]["run"]["predecessor_run_id"] == "before"
    assert lines[-2] == {"checkpoint": {"run_id": "run-1", "id": "cp", "data": "/w=="}}
    assert lines[-1] == {"end": {"runs": 2, "records": 3, "checkpoints": 1}}


@pytest.mark.parametrize("path", ["/v1/runs/run-1/export", "/v1/sessions/sess-1/export", "/v1/trees/run-1/export"])
async def test_an_export_that_cannot_go_on_ends_with_the_problem(path: str) -> None:
    lines = await lines_of(path, Exported(count=1000, refusal=Code.SESSION_PURGED))
    problem = json.loads(lines[-1])["error"]
    assert (problem["code"], problem["status"], problem["ids"]) == ("session_purged", 410, {"session_id": "sess-1"})
    assert sum(b'"event_key"' in line for line in lines) == 1000


async def test_a_bug_breaks_the_connection_and_tells_nothing_private(caplog: pytest.LogCaptureFixture) -> None:
    store = FakeStore()
    store.values = {"sess-1": Exported(bug=True)}
    async with served(store) as service:
        await until(lambda: service.lines)
        with pytest.raises(httpx.RemoteProtocolError):
            await service.http.get("/v1/sessions/sess-1/export")
        assert "runstore_unexpected_errors_total 1.0" in (await service.http.get("/metrics")).text
    assert "ValueError" in caplog.text
    assert "secret" not in caplog.text


async def test_a_refusal_before_the_first_line_is_a_problem() -> None:
    async with served(FakeStore()) as service:
        await until(lambda: service.lines)
        for path, code in (
            ("/v1/runs/x/export", "run_not_found"),
            ("/v1/trees/x/export", "run_not_found"),
            ("/v1/sessions/x/export", "session_not_found"),
        ):
            response = await service.http.get(path)
            assert (response.status_code, response.json()["code"]) == (404, code)


async def test_head_reads_nothing_and_the_connection_stays() -> None:
    store, export = FakeStore(), Exported()
    store.values = {"run-1": export}
    async with served(store) as service:
        await until(lambda: service.lines)
        response = await service.http.head("/v1/runs/run-1/export")
        assert (response.status_code, response.content, export.handed_out) == (200, b"", 0)
        assert (await service.http.get("/v1/runs/run-1/export")).content.count(b"\n") == 4
