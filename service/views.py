"""What can be read with GET: sessions, runs and their records, each derived from the log's records alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from schemas.refusals import Code, Refused, invalid
from schemas.values import Page, RunStatus, SessionStatus
from service import answers, render
from service.answers import JsonObject
from service.json_text import encoded
from service.ports import StoreHolder, StorePort
from service.query import Query, limit_of, list_of, parse_query, payload_is_json
from service.replays import REPLAY_VIEWS
from service.routing import Call, Parameter, Reply, Route, Router, answered
from service.view import PAYLOAD, View, found


async def get(store: StorePort, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Read a view as HTTP would, by its path with percent-encoded IDs. Raises `Refused`."""
    place = _ROUTER.find(path.encode())
    if place is None:
        raise Refused(invalid("there is no view at this path"))
    view = place.verbs["GET"]
    answer = await view.read(store, place.ids, parse_query(urlencode(query or {}).encode(), view.known))
    shown: dict[str, Any] = json.loads(encoded(answer))
    return shown


class Views:
    """The views of one store, over HTTP."""

    def __init__(self, holder: StoreHolder) -> None:
        self._holder = holder

    def routes(self) -> Iterator[Route]:
        """Every view's route."""
        for view in VIEWS:
            yield Route(
                "GET",
                view.path,
                partial(self._show, view),
                view.name,
                view.summary,
                view.answer,
                parameters=view.parameters,
                codes=view.codes,
                tag="views",
            )

    async def _show(self, view: View, call: Call) -> Reply:
        return answered(await view.read(self._holder.require(), call.ids, call.query))


async def _sessions(store: StorePort, _ids: tuple[str, ...], query: Query) -> JsonObject:
    limit, status = limit_of(query), query.get("status", "")
    if status:
        _check_status(SessionStatus, (status,))
    return render.session_page(found(await store.list_sessions(status, query.get("cursor", ""), limit)))


async def _consumers(store: StorePort, _ids: tuple[str, ...], _query: Query) -> JsonObject:
    return {"consumers": [render.consumer(each) for each in found(await store.consumers.list())]}


async def _session(store: StorePort, ids: tuple[str, ...], _query: Query) -> JsonObject:
    return render.session_detail(found(await store.session_detail(ids[0])))


async def _session_runs(store: StorePort, ids: tuple[str, ...], query: Query) -> JsonObject:
    statuses = list_of(query, "status")
    _check_status(RunStatus, statuses)
    runs = found(await store.list_runs_by_session(ids[0], statuses))
    return {"runs": [render.run(each) for each in runs]}


async def _session_records(store: StorePort, ids: tuple[str, ...], query: Query) -> JsonObject:
    cursor, limit, types, shown = _page_query(query)
    return shown(found(await store.list_session_records(ids[0], cursor, limit, types)))


async def _run(store: StorePort, ids: tuple[str, ...], _query: Query) -> JsonObject:
    return render.run_detail(found(await store.run_detail(ids[0])))


async def _run_records(store: StorePort, ids: tuple[str, ...], query: Query) -> JsonObject:
    cursor, limit, types, shown = _page_query(query)
    return shown(found(await store.list_run_records(ids[0], cursor, limit, types)))


def _page_query(query: Query) -> tuple[str, int, tuple[str, ...], Callable[[Page], JsonObject]]:
    shown = render.embedded_page if payload_is_json(query) else render.page
    return query.get("cursor", ""), limit_of(query), list_of(query, "type"), shown


def _check_status(kind: type[RunStatus | SessionStatus], values: tuple[str, ...]) -> None:
    names = [each.value for each in kind]
    if not set(values) <= set(names):
        raise Refused(invalid(f"query parameter status must be one of {', '.join(names)}"))


_CURSOR: Final = Parameter("cursor", {"type": "string"}, "Where to read on: the `next_cursor` of the page before.")
_LIMIT: Final = Parameter(
    "limit",
    {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
    "How many entries at most; a page may be shorter.",
)
_TYPE: Final = Parameter("type", {"type": "string"}, "Only records of this type, or of these with commas between.")
_RUN_STATUS: Final = Parameter(
    "status", {"type": "string"}, f"Only runs of this status, or of these with commas between: {', '.join(RunStatus)}."
)
_SESSION_STATUS: Final = Parameter(
    "status", {"type": "string", "enum": [each.value for each in SessionStatus]}, "Only sessions of this status."
)
_PAGE: Final = (_CURSOR, _LIMIT, _TYPE, PAYLOAD)
_EITHER_PAGE: Final = answers.PageAnswer | answers.EmbeddedPageAnswer
_OF_SESSION: Final = (Code.SESSION_NOT_FOUND, Code.SESSION_PURGED)

VIEWS: Final = (
    View(
        "/v1/sessions",
        "list_sessions",
        "List sessions, newest first; purged ones are not listed.",
        answers.SessionPageAnswer,
        _sessions,
        (_SESSION_STATUS, _CURSOR, _LIMIT),
        (Code.INVALID_CURSOR,),
    ),
    View(
        "/v1/sessions/{id}",
        "show_session",
        "Show a session and how its runs stand.",
        answers.SessionDetailAnswer,
        _session,
        (),
        _OF_SESSION,
    ),
    View(
        "/v1/sessions/{id}/runs",
        "show_session_runs",
        "List a session's runs in start order.",
        answers.RunsAnswer,
        _session_runs,
        (_RUN_STATUS,),
        _OF_SESSION,
    ),
    View(
        "/v1/sessions/{id}/records",
        "show_session_records",
        "Read a page of a session's records, in commit order.",
        _EITHER_PAGE,
        _session_records,
        _PAGE,
        (*_OF_SESSION, Code.INVALID_CURSOR),
    ),
    View(
        "/v1/runs/{id}",
        "show_run",
        "Show a run, its family and the size of its history.",
        answers.RunDetailAnswer,
        _run,
        (),
        (Code.RUN_NOT_FOUND,),
    ),
    View(
        "/v1/runs/{id}/records",
        "show_run_records",
        "Read a page of a run's records.",
        _EITHER_PAGE,
        _run_records,
        _PAGE,
        (Code.RUN_NOT_FOUND, Code.INVALID_CURSOR),
    ),
    View(
        "/v1/consumers",
        "list_consumers",
        "List the named consumers, by name, with what each has committed.",
        answers.ConsumersAnswer,
        _consumers,
        (),
        (),
    ),
    *REPLAY_VIEWS,
)
"""Every view. Each may also refuse with `invalid_command` and `unavailable`."""

_ROUTER: Final = Router([("GET", view.path, view) for view in VIEWS])
