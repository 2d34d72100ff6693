"""What only HTTP can ask: bodies that are no JSON, paths, verbs, sizes, and the status of each refusal."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx
import pytest

from tests.contract import builders
from tests.contract.builders import Command, Json, compact
from tests.contract.clients import HttpClient, check_problem
from tests.contract.scene import Scene, meaning
from tests.contract.test_errors import REFUSING

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1024 * 1024
JSON_TYPE = {"content-type": "application/json"}
STATUSES = {
    "session_not_found": 404, "run_not_found": 404, "run_suspension_not_found": 404, "session_ended": 409,
    "session_active": 409, "session_has_active_runs": 409, "run_conflict": 409, "run_terminal_conflict": 409,
    "run_cancellation_conflict": 409, "run_suspension_conflict": 409, "record_conflict": 409, "run_not_active": 409,
    "run_session_mismatch": 409, "record_owner_mismatch": 409, "continuation_mismatch": 409, "session_purged": 410,
    "invalid_command": 422, "invalid_cursor": 422,
}  # fmt: skip


def refused(response: httpx.Response, status: int, code: str) -> Json:
    """The response is this refusal, as a problem object."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"].startswith("application/problem+json")
    problem: Json = response.json()
    check_problem(problem, status)
    assert problem["code"] == code
    return problem


async def post(server: HttpClient, method: str, body: bytes | str) -> httpx.Response:
    """Post bytes to a method of the store."""
    content = body if isinstance(body, bytes) else body.encode()
    return await server.http.post(f"/v1/store/{method}", content=content, headers=JSON_TYPE)


@pytest.mark.parametrize("code", STATUSES)
async def test_each_code_has_its_status(http_scene: Scene, server: HttpClient, code: str) -> None:
    command = await REFUSING[code](http_scene)
    response = await post(server, command.method, json.dumps(command.args))
    refused(response, STATUSES[code], code)


async def test_an_answer_is_one_json_object(server: HttpClient, http_scene: Scene) -> None:
    response = await post(server, "create_session", json.dumps(builders.create_session(http_scene.new_session()).args))
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("application/json")
    assert set(response.json()) == {"session"}


# Bodies


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"{", b"{}{}", b"{} x", b"nope", b"\xef\xbb\xbf{}", b'{"session_id":NaN}', b"{'session_id':'x'}",
        b'{"session_id":"x",}', b'{"session_id":"\xff"}', b'{"session_id":"\xed\xa0\x80"}',
        b'{"session_id":"\xc0\xaf"}', b'{"session_id":"x\x00"}', b'{"session_id":"a\nb"}',
        b'{"session_id":"\\ud800"}', b'{"\\udc00":"x"}',
        b'{"session_id":"x","session_id":"x"}', b'{"session_id":"x","\\u0073ession_id":"y"}', b'{"session_id":01}',
        '{"session_id":"x"}'.encode("utf-16"), '{"session_id":"x"}'.encode("utf-32-le"),
    ],
    ids=ascii,
)  # fmt: skip
async def test_a_body_that_is_no_clean_json_text_is_400(server: HttpClient, body: bytes) -> None:
    refused(await post(server, "load_session", body), 400, "invalid_command")


@pytest.mark.parametrize(
    "body", [b"[]", b"null", b"7", b'"x"', b"true", b'[{"session_id":"x"}]', b'{"session_id":7}', b"{}", b'{"a":1}']
)
async def test_a_body_of_another_shape_is_422(server: HttpClient, body: bytes) -> None:
    refused(await post(server, "load_session", body), 422, "invalid_command")


@pytest.mark.parametrize("twice", ["run", "run_id", "labels"])
async def test_a_key_twice_is_400_however_deep(server: HttpClient, http_scene: Scene, twice: str) -> None:
    run = http_scene.new_run(await http_scene.session(), labels={"labels": "x"})
    body = json.dumps(run.start().args)
    key = f'"{twice}": '
    assert key in body
    doubled = body.replace(key, f'"{twice}": null, {key}', 1)
    refused(await post(server, "start_root_run", doubled), 400, "invalid_command")
    assert await http_scene.code_of(Command("load_run", {"run_id": run.run_id})) == "run_not_found"


async def test_equal_keys_inside_a_payload_are_the_payloads_own_affair(http_scene: Scene) -> None:
    run = await http_scene.run()
    await http_scene.do(run.append(payload='{"a":1,"a":1}'))
    assert await http_scene.payload_of(run, "note/1") == '{"a":1,"a":1}'


@pytest.mark.parametrize("form", ["\\ud800", "\\udfff\\ud800"])
async def test_a_lone_surrogate_outside_a_payload_is_400(server: HttpClient, http_scene: Scene, form: str) -> None:
    run = await http_scene.run()
    for field in ("turn_id", "event_key", "type", "agent_id"):
        body = json.dumps(run.append().args).replace(f'"{field}": "', f'"{field}": "{form}', 1)
        refused(await post(server, "append_record", body), 400, "invalid_command")


async def test_escapes_of_a_body_are_only_its_form(server: HttpClient, http_scene: Scene) -> None:
    run = await http_scene.run()
    payload = '{"é":"\\ud800 😀"}'
    first = await post(server, "append_record", json.dumps(run.append(payload=payload).args, ensure_ascii=True))
    again = await post(server, "append_record", json.dumps(run.append(payload=payload).args, ensure_ascii=False))
    assert (first.json()["inserted"], again.json()["inserted"]) == (True, False)
    assert await http_scene.payload_of(run, "note/1") == payload


async def test_white_space_around_a_body_does_not_matter(server: HttpClient, http_scene: Scene) -> None:
    session_id = await http_scene.session()
    response = await post(server, "load_session", f" \r\n\t{compact({'session_id': session_id})} \n")
    assert response.status_code == 200


# Sizes


def padded(body: str, length: int) -> bytes:
    """A body filled up with spaces to a length."""
    return body.encode() + b" " * (length - len(body.encode()))


async def test_a_body_of_16_mib_is_read(server: HttpClient, http_scene: Scene) -> None:
    body = compact({"session_id": await http_scene.session()})
    assert (await post(server, "load_session", padded(body, 16 * MIB))).status_code == 200


@pytest.mark.parametrize("path", ["/v1/store/load_session", "/v1/store/create_session", "/v1/store/batch"])
async def test_a_body_of_one_byte_more_is_413(server: HttpClient, http_scene: Scene, path: str) -> None:
    session_id = http_scene.new_session()
    body = compact(builders.create_session(session_id).args)
    response = await server.http.post(path, content=padded(body, 16 * MIB + 1), headers=JSON_TYPE)
    refused(response, 413, "too_large")
    assert await http_scene.code_of(Command("load_session", {"session_id": session_id})) == "session_not_found"


async def test_a_body_without_a_told_length_is_413_all_the_same(server: HttpClient) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(17):
            yield b" " * MIB

    response = await server.http.post("/v1/store/load_session", content=parts(), headers=JSON_TYPE)
    refused(response, 413, "too_large")


async def test_an_oversized_body_alone_is_413(server: HttpClient, http_scene: Scene) -> None:
    """A payload or a checkpoint over its own limit in a body that is not is 422."""
    run = await http_scene.run()
    append = run.append(payload='"' + "x" * (4 * MIB) + '"')
    refused(await post(server, "append_record", json.dumps(append.args)), 422, "invalid_command")
    suspend = run.suspend(data=b"x" * (8 * MIB + 1))
    refused(await post(server, "record_suspension", json.dumps(suspend.args)), 422, "invalid_command")


# Paths and verbs


@pytest.mark.parametrize(
    "path",
    [
        "/v1/store/no_such_method", "/v1/store/", "/v1/store", "/v1/store/LOAD_RUN", "/v1/store/load_run/", "/v1",
        "/v2/x",
        "/v1/store/load_run/x", "/v1/nothing", "/v1/store/load_run%2F", "/v1/store/load_run%20",
    ],
)  # fmt: skip
async def test_an_unknown_path_is_404(server: HttpClient, path: str) -> None:
    response = await server.http.post(path, content=b"{}", headers=JSON_TYPE)
    refused(response, 404, "invalid_command")


@pytest.mark.parametrize("verb", ["GET", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", ["/v1/store/load_run", "/v1/store/batch"])
async def test_another_verb_is_405_and_tells_which(server: HttpClient, verb: str, path: str) -> None:
    response = await server.http.request(verb, path)
    refused(response, 405, "invalid_command")
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/runs/x", "/v1/sessions/x/records"])
async def test_a_view_is_read_with_get_only(server: HttpClient, path: str) -> None:
    response = await server.http.post(path, content=b"{}", headers=JSON_TYPE)
    refused(response, 405, "invalid_command")
    assert "GET" in response.headers["allow"]


@pytest.mark.parametrize(
    "tail",
    [
        "/agent/research.ask/call-1", "/", "//", "%2F", "%", "%25", "?x=1", "#x", "&x", "+", " ", "é", "e\u0301", "😀",
        "...", "/../x", "/./x", "\\", "\u2028", "\ufeff", ";a=b", ":8080", "@", "/records", "/runs", "/transcript",
    ],
    ids=ascii,
)  # fmt: skip
async def test_ids_in_paths_are_percent_encoded(http_scene: Scene, tail: str) -> None:
    session_id = http_scene.new_id("s") + tail
    await http_scene.do(builders.create_session(session_id))
    run = await http_scene.run(session_id, run_id=http_scene.new_id("r") + tail)
    for name, subject, kind in ((run.run_id, "run", "runs"), (session_id, "session", "sessions")):
        path = f"/v1/{kind}/{quote(name, safe='')}"
        shown = (await http_scene.client.get(path))[subject]
        assert shown["run_id" if subject == "run" else "id"] == name
        records = (await http_scene.client.get(f"{path}/records"))["records"]
        assert [record["run_id"] for record in records] == [run.run_id]


@pytest.mark.parametrize("name", ["", "%00", "%0A", "%7F", "%C2%85", "%ff", "%ed%a0%80", "x" * 513])
@pytest.mark.parametrize("kind", ["runs", "sessions"])
async def test_an_id_in_a_path_follows_the_rules(server: HttpClient, kind: str, name: str) -> None:
    response = await server.http.get(f"/v1/{kind}/{name}/records")
    assert response.status_code in (404, 422), response.text
    refused(response, response.status_code, "invalid_command")


async def test_empty_fields_of_answers_mean_nothing_more(http_scene: Scene) -> None:
    run = await http_scene.one_shot()
    answer = await http_scene.do(Command("load_run", {"run_id": run.run_id}))
    assert all(answer["run"].get(name) in ("", None) for name in ("session_id", "parent_run_id", "cancellation_reason"))
    assert not answer["run"].get("labels")
    assert set(meaning(answer["run"])) == {"agent_id", "run_id", "status", "start_outcome", "started_at", "updated_at"}
