"""Paths are cut before they are decoded, queries are read once and strictly."""

from __future__ import annotations

import pytest

from schemas.refusals import Code, Refused
from service.query import limit_of, list_of, parse_query, payload_is_json
from service.routing import Router

ROUTER = Router(
    [
        ("GET", "/v1/sessions", "sessions"),
        ("GET", "/v1/sessions/{id}", "session"),
        ("GET", "/v1/sessions/{id}/runs", "runs"),
        ("POST", "/v1/store/batch", "batch"),
        ("GET", "/v1/both", "read"),
        ("POST", "/v1/both", "write"),
    ]
)


@pytest.mark.parametrize(
    ("path", "item", "ids"),
    [
        (b"/v1/sessions", "sessions", ()),
        (b"/v1/%73essions", "sessions", ()),
        (b"/v1/sessions/a", "session", ("a",)),
        (b"/v1/sessions/a%2Fb%2fruns", "session", ("a/b/runs",)),
        (b"/v1/sessions/%2e%2e/runs", "runs", ("..",)),
        (b"/v1/sessions/../runs", "runs", ("..",)),
        (b"/v1/sessions/a%20b+c%25", "session", ("a b+c%",)),
        (b"/v1/sessions/%E4%BD%A0/runs", "runs", ("你",)),
        (b"/v1/sessions/runs/runs", "runs", ("runs",)),
        (b"/v1/sessions/a%00b", "session", ("a\x00b",)),
    ],
)
def test_an_id_in_a_path_may_hold_anything(path: bytes, item: str, ids: tuple[str, ...]) -> None:
    found = ROUTER.find(path)
    assert found is not None
    assert (found.verbs["GET"], found.ids) == (item, ids)


@pytest.mark.parametrize(
    "path",
    [
        b"",
        b"/",
        b"*",
        b"v1/sessions",
        b"/v1",
        b"/v1/",
        b"/v1/sessions/",
        b"/v1/sessions//runs",
        b"/v1/sessions/a/runs/",
        b"/v1/sessions/a/runs/b",
        b"//v1/sessions",
        b"/v1/sessions/a%",
        b"/v1/sessions/a%2",
        b"/v1/sessions/a%zz",
        b"/v1/sessions/%ff",
        b"/v1/sessions/%ed%a0%80",
        b"/v1/sessions/\xff",
        b"/V1/sessions",
    ],
)
def test_what_is_no_path_is_not_found(path: bytes) -> None:
    assert ROUTER.find(path) is None


def test_a_path_tells_its_verbs() -> None:
    allow = {path: found.allow for path in (b"/v1/both", b"/v1/store/batch") if (found := ROUTER.find(path))}
    assert allow == {b"/v1/both": "GET, HEAD, POST", b"/v1/store/batch": "POST"}


def test_one_verb_has_one_route() -> None:
    with pytest.raises(AssertionError):
        Router([("GET", "/a/{id}", 1), ("GET", "/a/{other}", 2)])


def test_a_query_is_decoded() -> None:
    query = parse_query(b"cursor=a%2Bb+c%3D&limit=&&type=x%2Cy", ("cursor", "limit", "type"))
    assert query == {"cursor": "a+b c=", "type": "x,y"}


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        (b"nope=1", "unknown query parameter nope; known here: cursor, limit"),
        (b"Limit=1", "unknown query parameter Limit; known here: cursor, limit"),
        (b"limit=1&limit=1", "query parameter limit is given twice"),
        (b"limit=&limit=1", "query parameter limit is given twice"),
        (b"cursor=%zz", "query parameter cursor is not percent-encoded UTF-8"),
        (b"cursor=%ff", "query parameter cursor is not percent-encoded UTF-8"),
        (b"%ff=1", "unknown query parameter with that name; known here: cursor, limit"),
        (b"=1", "unknown query parameter ; known here: cursor, limit"),
    ],
)
def test_a_query_is_refused_by_the_name_of_its_parameter(query: bytes, detail: str) -> None:
    with pytest.raises(Refused) as raised:
        parse_query(query, ("cursor", "limit"))
    assert raised.value.code is Code.INVALID_COMMAND
    assert raised.value.refusal.detail == detail


def test_a_limit_is_100_unless_given() -> None:
    assert [limit_of({}), limit_of({"limit": "1"}), limit_of({"limit": "1000"})] == [100, 1, 1000]


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "+1", "1_0", " 1", "1.0", "x", "9" * 10, "9" * 9, "١"])
def test_another_limit_is_refused(limit: str) -> None:
    with pytest.raises(Refused, match="limit"):
        limit_of({"limit": limit})


def test_values_stand_between_commas() -> None:
    assert list_of({}, "type") == ()
    assert list_of({"type": "a,b"}, "type") == ("a", "b")
    for bad in (",", "a,", ",a", "a,,b"):
        with pytest.raises(Refused, match="type"):
            list_of({"type": bad}, "type")


def test_payloads_are_embedded_only_as_json() -> None:
    assert payload_is_json({"payload": "json"})
    assert not payload_is_json({})
    with pytest.raises(Refused, match="payload"):
        payload_is_json({"payload": "JSON"})
