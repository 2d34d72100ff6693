"""The interface over a real server: paths, verbs, bodies, answers and problems."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio

from schemas import commands
from schemas.limits import body_bytes_max
from schemas.refusals import Code, refuse
from schemas.values import (
    RunDetail,
    RunStatus,
    Session,
    SessionDetail,
    SessionPage,
    SessionStatus,
)
from service.body import linger_seconds_max
from service.methods import METHODS
from service.routing import answered
from tests.service.arguments import ARGUMENTS, record_args
from tests.service.fake import NOON, NOON_TEXT, FakePartition, FakeState, FakeStore, page, run_meta
from tests.service.served import Served, read_raw, served, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

HARD_IDS = ["a/b", "a%2Fb", "..", "a b", "a+b", "你好?#&=", "a;b", "%", "run-1/agent/x.y/call-4d", "\u2028"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[tuple[Served, FakeStore]]:
    store = FakeStore()
    async with served(store) as service:
        await until(lambda: service.lines)
        yield service, store


@pytest.fixture
def store(running: tuple[Served, FakeStore]) -> FakeStore:
    fresh, used = FakeStore(), running[1]
    vars(used).update(vars(fresh))
    return used


@pytest.fixture
def service(running: tuple[Served, FakeStore], store: FakeStore) -> Served:
    assert store is running[1]
    return running[0]


def problem_of(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert (response.status_code, problem["status"], problem["code"]) == (status, status, code), problem
    assert set(problem) == {"type", "title", "status", "detail", "code", "temporary", "ids"}
    assert problem["temporary"] is (code == "unavailable")
    return problem


async def test_a_command_is_done(service: Served, store: FakeStore) -> None:
    response = await service.http.post("/v1/store/append_record", json=ARGUMENTS["append_record"])
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"id": "0001", "inserted": True, "session_status": "active"}
    assert len(store.commands) == 1
    assert isinstance(store.commands[0], commands.AppendRecord)


@pytest.mark.parametrize("method", METHODS)
async def test_every_method_has_its_path(service: Served, store: FakeStore, method: str) -> None:
    store.decide = lambda _: refuse(Code.RUN_CONFLICT, "no", run_id="r")
    response = await service.http.post(f"/v1/store/{method}", json=ARGUMENTS[method])
    assert response.status_code in (404, 409)
    assert response.json()["code"] in ("run_conflict", "run_not_found", "session_not_found")
    assert len(store.commands) + len(store.reads) == 1


async def test_a_refusal_is_a_problem_with_its_ids(service: Served, store: FakeStore) -> None:
    store.decide = lambda _: refuse(Code.RECORD_CONFLICT, "another record", run_id="r", event_key="k")
    response = await service.http.post("/v1/store/append_record", json=ARGUMENTS["append_record"])
    problem = problem_of(response, 409, "record_conflict")
    assert problem["detail"] == "another record"
    assert problem["ids"] == {"run_id": "r", "event_key": "k"}


async def test_unavailable_tells_when_to_try_again(service: Served, store: FakeStore) -> None:
    store.decide = lambda _: refuse(Code.UNAVAILABLE, "not now")
    response = await service.http.post("/v1/store/append_record", json=ARGUMENTS["append_record"])
    problem_of(response, 503, "unavailable")
    assert int(response.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "the body: not JSON"),
        (b"{", "the body: not JSON"),
        (b"{} {}", "the body: not JSON"),
        (b'{"session_id":NaN}', "the body: not JSON"),
        (b"\xef\xbb\xbf{}", "the body: not JSON"),
        (b'{"session_id":"\xff"}', "the body: not valid UTF-8"),
        (b'{"session_id":"a","session_id":"a"}', "the body: a key stands twice"),
        (b'{"record":{"payload":"1","payload":"1"}}', "the body: a key stands twice"),
        (b'{"session_id":"\\ud800"}', "the body: a text holds a lone surrogate"),
        (b"[" * 100_000, "the body: not JSON"),
    ],
)
async def test_a_body_that_is_no_strict_json_is_400(
    service: Served, store: FakeStore, body: bytes, detail: str
) -> None:
    for path in ("/v1/store/load_session", "/v1/store/append_record", "/v1/store/batch"):
        problem = problem_of(await service.http.post(path, content=body), 400, "invalid_command")
        assert problem["detail"].startswith(detail)
    assert (store.commands, store.reads) == ([], [])


async def test_an_escaped_surrogate_inside_a_payload_is_kept(service: Served, store: FakeStore) -> None:
    payload = '{"a":"\\ud800","a":1e999}'
    await service.http.post("/v1/store/append_record", json={"record": record_args(payload=payload)})
    command = store.commands[0]
    assert isinstance(command, commands.AppendRecord)
    assert command.record.payload == payload.encode()


@pytest.mark.parametrize("body", [b"[]", b"null", b'"x"', b"1", b'{"record":[]}', b'{"record":{}}', b'{"nope":1}'])
async def test_json_of_another_shape_is_422(service: Served, store: FakeStore, body: bytes) -> None:
    problem_of(await service.http.post("/v1/store/append_record", content=body), 422, "invalid_command")
    assert store.commands == []


async def test_a_refused_command_names_its_ids(service: Served) -> None:
    body = {"record": record_args(timestamp="yesterday", payload="secret")}
    problem = problem_of(await service.http.post("/v1/store/append_record", json=body), 422, "invalid_command")
    assert problem["ids"]["run_id"] == "run-1"
    assert problem["detail"].startswith("record.timestamp: ")
    assert "secret" not in json.dumps(problem)


def exactly(size: int) -> bytes:
    """A command of exactly so many bytes."""
    empty = json.dumps({"record": record_args(payload='""')}).encode()
    body = json.dumps({"record": record_args(payload=json.dumps("x" * (size - len(empty))))}).encode()
    assert len(body) == size
    return body


async def test_a_body_of_16_mib_is_read(service: Served, store: FakeStore) -> None:
    response = await service.http.post("/v1/store/append_record", content=exactly(body_bytes_max))
    assert response.status_code == 200, response.text
    assert len(store.commands) == 1


async def test_a_larger_body_is_413(service: Served, store: FakeStore) -> None:
    response = await service.http.post("/v1/store/append_record", content=exactly(body_bytes_max + 1))
    problem_of(response, 413, "too_large")
    assert response.headers["connection"] == "close"
    assert store.commands == []


async def test_a_larger_body_without_length_is_413(service: Served, store: FakeStore) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(17 * 16):
            yield b" " * 65536

    response = await service.http.post("/v1/store/append_record", content=parts())
    problem_of(response, 413, "too_large")
    assert store.commands == []


async def test_an_endless_body_is_not_read_to_its_end(service: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(b"POST /v1/store/append_record HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
    sent = 0
    try:
        while sent < 3 * body_bytes_max:
            writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
            sent += 65536
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()
    assert body_bytes_max < sent < 3 * body_bytes_max
    assert reader.exception() is None or isinstance(reader.exception(), ConnectionError)


async def test_a_caller_that_asks_first_is_told_413_at_once(service: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    head = (
        b"POST /v1/store/append_record HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 99999999\r\n\r\n"
    )
    writer.write(head)
    async with asyncio.timeout(linger_seconds_max / 2):
        answer = await read_raw(reader)
        assert (answer.status, answer.json()["code"]) == (413, "too_large")
        assert await reader.read() == b""
    writer.close()


async def test_a_command_whose_body_breaks_off_is_not_done(service: Served, store: FakeStore) -> None:
    body = json.dumps(ARGUMENTS["append_record"]).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(b"POST /v1/store/append_record HTTP/1.1\r\nhost: x\r\ncontent-length: 9999\r\n\r\n" + body)
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await service.http.get("/livez")).status_code == 200
    assert store.commands == []


@pytest.mark.parametrize(
    ("verb", "path", "allow"),
    [
        ("GET", "/v1/store/append_record", "POST"),
        ("HEAD", "/v1/store/append_record", "POST"),
        ("PUT", "/v1/store/batch", "POST"),
        ("POST", "/v1/sessions", "GET, HEAD"),
        ("DELETE", "/v1/runs/a%2Fb", "GET, HEAD"),
        ("OPTIONS", "/livez", "GET, HEAD"),
        ("GET", "/v1/admin/rebuild", "POST"),
    ],
)
async def test_another_verb_is_405(service: Served, verb: str, path: str, allow: str) -> None:
    response = await service.http.request(verb, path)
    assert response.headers["allow"] == allow
    assert response.status_code == 405
    if verb != "HEAD":
        problem_of(response, 405, "invalid_command")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/store",
        "/v1/store/",
        "/v1/store/nope",
        "/v1/store/append_events",
        "/v1/runs/a/nope",
        "/v1/runs/",
    ],
)
async def test_an_unknown_path_is_404(service: Served, path: str) -> None:
    for verb in ("GET", "POST"):
        problem_of(await service.http.request(verb, path), 404, "invalid_command")


@pytest.mark.parametrize("path", ["/v1/runs/%", "/v1/runs/%zz", "/v1/runs/%ff", "/v1/runs/%C3%28/records"])
async def test_a_badly_encoded_path_is_404(service: Served, store: FakeStore, path: str) -> None:
    answer = await service.raw(f"GET {path} HTTP/1.1")
    assert (answer.status, answer.json()["code"]) == (404, "invalid_command")
    assert store.reads == []


@pytest.mark.parametrize("hard", HARD_IDS)
async def test_an_id_in_a_path_may_hold_anything(service: Served, store: FakeStore, hard: str) -> None:
    encoded = "".join(f"%{byte:02x}" for byte in hard.encode())
    store.values = {hard: run_meta()}
    for path, read in (
        (f"/v1/sessions/{encoded}", ("session_detail", hard)),
        (f"/v1/sessions/{encoded}/runs", ("list_runs_by_session", hard, ())),
        (f"/v1/sessions/{encoded}/records", ("list_session_records", hard, "", 100, ())),
        (f"/v1/runs/{encoded}", ("run_detail", hard)),
        (f"/v1/runs/{encoded}/records", ("list_run_records", hard, "", 100, ())),
    ):
        store.reads.clear()
        await service.raw(f"GET {path} HTTP/1.1")
        assert store.reads == [read]


async def test_heads_are_answered_like_gets(service: Served, store: FakeStore) -> None:
    store.values = {"run-1": page(b"1")}
    for path in ("/livez", "/v1/status", "/v1/runs/run-1/records", "/v1/runs/missing", "/openapi.json"):
        get, head = await service.http.get(path), await service.http.head(path)
        assert head.content == b""
        assert head.status_code == get.status_code
        assert {name: head.headers[name] for name in ("content-type", "content-length")} == {
            name: get.headers[name] for name in ("content-type", "content-length")
        }


async def test_sessions_are_listed(service: Served, store: FakeStore) -> None:
    store.values = {"list_sessions": SessionPage((), "next")}
    assert (await service.http.get("/v1/sessions")).json() == {"sessions": [], "next_cursor": "next"}
    await service.http.get("/v1/sessions", params={"status": "ended", "cursor": "a+/=", "limit": "7"})
    await service.http.get("/v1/sessions?status=&cursor=&limit=")
    assert store.reads == [
        ("list_sessions", "", "", 100),
        ("list_sessions", "ended", "a+/=", 7),
        ("list_sessions", "", "", 100),
    ]


async def test_a_session_is_shown(service: Served, store: FakeStore) -> None:
    session = Session("s", SessionStatus.ACTIVE, NOON)
    store.values = {"s": SessionDetail(session, {RunStatus.RUNNING: 2}, NOON)}
    assert (await service.http.get("/v1/sessions/s")).json() == {
        "session": {"id": "s", "status": "active", "created_at": NOON_TEXT},
        "run_counts": {"running": 2},
        "last_activity_at": NOON_TEXT,
    }


async def test_runs_of_a_session_are_filtered(service: Served, store: FakeStore) -> None:
    store.values = {"s": (run_meta(),)}
    response = await service.http.get("/v1/sessions/s/runs?status=running,failed")
    assert [run["run_id"] for run in response.json()["runs"]] == ["run-1"]
    assert store.reads == [("list_runs_by_session", "s", ("running", "failed"))]


async def test_a_run_is_shown(service: Served, store: FakeStore) -> None:
    store.values = {"r": RunDetail(run_meta(), (), "p", (), 3, has_checkpoint=False)}
    shown = (await service.http.get("/v1/runs/r")).json()
    assert set(shown) == {"run", "children", "predecessor", "successors", "record_count", "has_checkpoint"}


@pytest.mark.parametrize("path", ["/v1/runs/x/records", "/v1/sessions/x/records"])
async def test_records_are_paged_and_filtered(service: Served, store: FakeStore, path: str) -> None:
    store.values = {"x": page(b'{"a":\n1.0e2}', next_cursor="c2")}
    text = (await service.http.get(path, params={"cursor": "c1", "limit": "5", "type": "usage,planner_note"})).json()
    assert text["records"][0]["payload"] == '{"a":\n1.0e2}'
    assert text["next_cursor"] == "c2"
    assert store.reads[0][1:] == ("x", "c1", 5, ("usage", "planner_note"))
    embedded = (await service.http.get(path, params={"payload": "json"})).content
    assert b'"payload":{"a": 1.0e2}' in embedded


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/sessions?nope=1", "nope"),
        ("/v1/sessions?payload=json", "payload"),
        ("/v1/sessions?status=purged", "status"),
        ("/v1/sessions/s?limit=1", "limit"),
        ("/v1/sessions/s/runs?status=pending", "status"),
        ("/v1/sessions/s/records?limit=0", "limit"),
        ("/v1/sessions/s/records?type=a,,b", "type"),
        ("/v1/runs/r?cursor=x", "cursor"),
        ("/v1/runs/r/records?cursor=a&cursor=b", "cursor"),
        ("/v1/runs/r/records?payload=text", "payload"),
        ("/v1/runs/r/records?types=a", "types"),
        ("/livez?x=1", "x"),
    ],
)
async def test_a_query_is_refused_by_name(service: Served, store: FakeStore, path: str, name: str) -> None:
    problem = problem_of(await service.http.get(path), 422, "invalid_command")
    assert name in problem["detail"]
    assert store.reads == []


async def test_commands_take_no_query(service: Served, store: FakeStore) -> None:
    response = await service.http.post("/v1/store/append_record?dry_run=1", json=ARGUMENTS["append_record"])
    assert "dry_run" in problem_of(response, 422, "invalid_command")["detail"]
    assert store.commands == []


async def test_operators_see_how_the_store_stands(service: Served, store: FakeStore) -> None:
    assert (await service.http.get("/livez")).json() == {"live": True}
    assert (await service.http.get("/readyz")).json() == {"ready": True}
    status = (await service.http.get("/v1/status")).json()
    assert {name: status[name] for name in ("version", "log", "ready")} == {
        "version": "9.9",
        "log": "embedded",
        "ready": True,
    }
    store.is_ready = False
    problem_of(await service.http.get("/readyz"), 503, "unavailable")
    assert (await service.http.get("/v1/status")).json()["ready"] is False


async def test_who_is_not_ready_says_which_partition_and_why(service: Served, store: FakeStore) -> None:
    store.is_ready = False
    why = "no broker has answered within 2.0 s"
    store.state = FakeState(
        partitions=(
            FakePartition(last_error="what is over"),
            FakePartition(1, "recovering", last_error=why),
            FakePartition(2, "starting"),
        )
    )
    problem = problem_of(await service.http.get("/readyz"), 503, "unavailable")
    assert problem["detail"] == f"partition 1 is recovering, partition 2 is starting; {why}"
    told = (await service.http.get("/metrics")).text
    for partition, serves in enumerate((1.0, 0.0, 0.0)):
        assert f'runstore_partition_serving{{partition="{partition}"}} {serves}\n' in told
    store.state = FakeState()
    problem = problem_of(await service.http.get("/readyz"), 503, "unavailable")
    assert problem["detail"].startswith("the store is closing, or its key store has failed")


async def test_a_rebuild_is_started(service: Served, store: FakeStore) -> None:
    for body in (b"", b"{}"):
        response = await service.http.post("/v1/admin/rebuild", content=body)
        assert (response.status_code, response.json()) == (200, {})
    assert store.rebuilds == 2
    problem_of(await service.http.post("/v1/admin/rebuild", json={"fast": True}), 422, "invalid_command")
    problem_of(await service.http.post("/v1/admin/rebuild", content=b"now"), 400, "invalid_command")
    assert store.rebuilds == 2


async def test_metrics_count_commands_by_method_and_code(service: Served, store: FakeStore) -> None:
    async def counted(method: str, code: str) -> float:
        text = (await service.http.get("/metrics")).text
        prefix = f'runstore_commands_total{{code="{code}",method="{method}"}} '
        return next((float(line[len(prefix) :]) for line in text.splitlines() if line.startswith(prefix)), 0.0)

    before = [await counted("load_run", "run_not_found"), await counted("end_session", "ok")]
    await service.http.post("/v1/store/load_run", json=ARGUMENTS["load_run"])
    batch = [{"method": method, "args": ARGUMENTS[method]} for method in ("load_run", "end_session")]
    await service.http.post("/v1/store/batch", json={"commands": batch})
    after = [await counted("load_run", "run_not_found"), await counted("end_session", "ok")]
    assert [now - then for now, then in zip(after, before, strict=True)] == [2, 1]
    response = await service.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    for expected in (
        'runstore_partition_log_end{partition="0"} 12.0',
        'runstore_partition_applied{partition="0"} 10.0',
        'runstore_partition_lag{partition="0"} 2.0',
        'runstore_partition_queued{partition="0"} 4.0',
        'runstore_partition_void_records_total{partition="0"} 3.0',
        'runstore_partition_lost_records{partition="0"} 1.0',
        'runstore_build_info{log="embedded",version="9.9"} 1.0',
        "runstore_ready 1.0",
        "runstore_requests_in_flight 1.0",
    ):
        assert expected in response.text
    assert 'runstore_request_seconds_count{route="/v1/store/load_run"}' in response.text
    assert store.commands


async def test_metrics_have_no_label_that_callers_make_up(service: Served) -> None:
    await service.http.post("/v1/store/made_up", json={})
    await service.http.post("/v1/store/batch", json={"commands": [{"method": "made_up"}]})
    await service.http.get("/v1/runs/made_up")
    assert "made_up" not in (await service.http.get("/metrics")).text


async def test_a_bug_is_unavailable_and_leaks_nothing(
    service: Served, store: FakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(command: commands.Command) -> Any:
        raise ValueError(f"secret {command!r}")

    store.decide = broken
    body = {"record": record_args(payload='"secret"')}
    with caplog.at_level(logging.DEBUG):
        one = await service.http.post("/v1/store/append_record", json=body)
        batch = await service.http.post(
            "/v1/store/batch", json={"commands": [{"method": "append_record", "args": body}]}
        )
    problem = problem_of(one, 503, "unavailable")
    assert batch.json()["results"][0]["error"]["code"] == "unavailable"
    told = [record.getMessage() for record in caplog.records if record.name == "runstore.service"]
    assert len(told) == 2
    request_id = problem["detail"].rpartition(" ")[2]
    assert request_id in told[0]
    assert "ValueError" in told[0]
    assert "secret" not in one.text + batch.text + caplog.text
    assert "Traceback" not in one.text + batch.text + caplog.text


async def test_answers_are_not_kept_between(service: Served) -> None:
    for path in ("/livez", "/v1/runs/missing", "/nope"):
        response = await service.http.get(path)
        assert response.headers["cache-control"] == "no-store"


async def test_the_description_is_served(service: Served) -> None:
    described = (await service.http.get("/openapi.json")).json()
    assert described["info"]["version"] == "9.9"
    assert quote("/v1/runs/{id}", safe="/{}") in described["paths"]


async def test_a_lone_surrogate_in_an_answer_is_shown_as_its_escape() -> None:
    # A tool call's ID may be any text of a payload; such an answer failed for ever.
    reply = answered({"tool_call_id": "\ud83d", "name": "é"})
    assert json.loads(reply.body) == {"tool_call_id": "\ud83d", "name": "é"}
    assert b"\\ud83d" in reply.body


@pytest.mark.parametrize(
    "body", [b"[" * 100_000 + b"]" * 100_000, b'{"session_id":1e400}', b'{"session_id":' + b"9" * 5000 + b"}"]
)
async def test_json_that_fits_no_field_is_422(service: Served, body: bytes) -> None:
    response = await service.http.post("/v1/store/load_session", content=body)
    assert (response.status_code, response.json()["code"]) == (422, "invalid_command")
