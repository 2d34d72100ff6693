"""Every code has its status, and a problem tells what a caller needs."""

from __future__ import annotations

import msgspec
import pytest

from schemas.refusals import Code, refuse
from service.problems import STATUS, problem
from service.routing import refused

CONFLICTS = {code for code in Code if code.value.endswith("_conflict")} | {
    Code.SESSION_ENDED,
    Code.SESSION_ACTIVE,
    Code.SESSION_HAS_ACTIVE_RUNS,
    Code.RUN_NOT_ACTIVE,
    Code.RUN_SESSION_MISMATCH,
    Code.RECORD_OWNER_MISMATCH,
    Code.CONTINUATION_MISMATCH,
}


def test_every_code_has_its_status() -> None:
    assert set(STATUS) == set(Code)
    assert {code for code, status in STATUS.items() if status == 409} == CONFLICTS
    assert {code for code, status in STATUS.items() if status == 404} == {
        code for code in Code if code.value.endswith("_not_found")
    }
    assert {code.value: status for code, status in STATUS.items() if status not in (404, 409)} == {
        "invalid_command": 422,
        "invalid_cursor": 422,
        "transcript_invalid": 422,
        "too_large": 413,
        "unauthenticated": 401,
        "forbidden": 403,
        "session_purged": 410,
        "unavailable": 503,
    }


@pytest.mark.parametrize("code", Code)
def test_a_problem_is_whole(code: Code) -> None:
    shown = problem(refuse(code, "what happened", run_id="r", session_id=""))
    assert shown == {
        "type": f"urn:runstore:problem:{code.value}",
        "title": shown["title"],
        "status": STATUS[code],
        "detail": "what happened",
        "code": code.value,
        "temporary": code is Code.UNAVAILABLE,
        "ids": {"run_id": "r"},
    }
    assert shown["title"]


@pytest.mark.parametrize("code", Code)
def test_a_refusal_is_a_problem_over_http(code: Code) -> None:
    reply = refused(refuse(code, "d"))
    headers = dict(reply.headers)
    assert reply.status == STATUS[code]
    assert reply.outcome == code.value
    assert headers[b"content-type"] == b"application/problem+json"
    assert (b"retry-after" in headers) is (code is Code.UNAVAILABLE)
    assert msgspec.json.decode(reply.body)["status"] == reply.status


def test_a_status_may_be_another() -> None:
    reply = refused(refuse(Code.INVALID_COMMAND, "d"), 405, ((b"allow", b"GET"),))
    assert reply.status == msgspec.json.decode(reply.body)["status"] == 405
    assert dict(reply.headers)[b"allow"] == b"GET"
