"""Batches: every item in its place, order within a home, nothing waiting for another home."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import httpx
import pytest

from schemas import commands
from schemas.refusals import Code, Refusal, refuse
from schemas.values import Answer, AppendResult, SessionStatus, StartResult
from service.app import Service, make_app
from service.homes import Planned, by_home
from service.methods import METHODS
from service.ports import StoreHolder
from service.wire import read
from tests.service.arguments import ARGUMENTS, Json, record_args, run_args
from tests.service.fake import NOON_TEXT, FakeStore, run_meta

UNAVAILABLE = refuse(Code.UNAVAILABLE, "not now")


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
async def http(store: FakeStore) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=make_app(store))
    async with httpx.AsyncClient(transport=transport, base_url="http://store") as client:
        yield client


def append(run_id: str, session_id: str = "", event_key: str = "k") -> Json:
    """An item that appends a record."""
    args = {"record": record_args(run_id=run_id, session_id=session_id, event_key=event_key)}
    return {"method": "append_record", "args": args}


def item(method: str, **args: Any) -> Json:
    """An item of any method."""
    return {"method": method, "args": args}


def one_shot_child(run_id: str, parent_run_id: str) -> Json:
    """An item that starts a sessionless child."""
    return item(
        "start_one_shot_child_run",
        run=run_args(run_id=run_id, session_id="", parent_run_id=parent_run_id),
        parent_linked=record_args(run_id=parent_run_id, session_id=""),
        started=record_args(run_id=run_id, session_id=""),
    )


async def batch(http: httpx.AsyncClient, *items: Any) -> list[Json]:
    response = await http.post("/v1/store/batch", json={"commands": list(items)})
    assert response.status_code == 200, response.text
    assert set(response.json()) == {"results"}
    results: list[Json] = response.json()["results"]
    assert len(results) == len(items)
    return results


def codes(results: list[Json]) -> list[str]:
    return ["ok" if "ok" in result else result["error"]["code"] for result in results]


async def test_items_are_answered_in_their_places(http: httpx.AsyncClient, store: FakeStore) -> None:
    store.values = {"run-1": run_meta()}
    store.decide = lambda command: AppendResult(
        command.record.event_key,  # type: ignore[union-attr]
        inserted=True,
        session_status=SessionStatus.ACTIVE,
    )
    results = await batch(
        http,
        append("a", "s1", "k1"),
        item("load_run", run_id="run-1"),
        append("b", "s2", "k2"),
        item("load_run", run_id="missing"),
        append("a", "s1", "k3"),
    )
    assert codes(results) == ["ok", "ok", "ok", "run_not_found", "ok"]
    assert [results[index]["ok"]["id"] for index in (0, 2, 4)] == ["k1", "k2", "k3"]
    assert results[1]["ok"]["run"]["run_id"] == "run-1"
    assert results[3]["error"] | {"detail": ""} == {
        "type": "urn:runstore:problem:run_not_found",
        "title": "Run not found",
        "status": 404,
        "detail": "",
        "code": "run_not_found",
        "temporary": False,
        "ids": {},
    }


@pytest.mark.parametrize(
    "bad",
    [
        None,
        "append_record",
        [],
        {},
        {"method": None},
        {"method": 1, "args": {}},
        {"method": "append_record", "args": {}, "extra": 1},
        {"method": "append_record", "args": []},
        {"method": "append_record"},
        {"method": "append_record", "args": None},
        {"method": "append_record", "args": {"record": record_args(id="1")}},
        {"method": "nope", "args": {}},
        {"method": "batch", "args": {"commands": []}},
        {"method": "append_events", "args": {}},
    ],
)
async def test_a_malformed_item_is_an_error_of_its_own(http: httpx.AsyncClient, store: FakeStore, bad: Any) -> None:
    results = await batch(http, append("a", "s"), bad, append("a", "s"))
    assert codes(results) == ["ok", "invalid_command", "ok"]
    known = not isinstance(bad, dict) or bad.get("method") in (None, 1, "append_record")
    assert results[1]["error"]["status"] == (422 if known else 404)
    assert len(store.commands) == 2


async def test_arguments_may_be_absent_where_all_of_them_may(http: httpx.AsyncClient) -> None:
    assert codes(await batch(http, {"method": "load_session_status"})) == ["session_not_found"]


async def test_a_batch_may_be_empty(http: httpx.AsyncClient) -> None:
    assert await batch(http) == []


@pytest.mark.parametrize("body", [{}, {"commands": None}, {"commands": {}}, {"commands": [], "atomic": True}])
async def test_a_batch_of_another_shape_is_refused(http: httpx.AsyncClient, body: Json) -> None:
    response = await http.post("/v1/store/batch", json=body)
    assert (response.status_code, response.json()["code"]) == (422, "invalid_command")


async def test_a_batch_holds_at_most_1000_commands(http: httpx.AsyncClient, store: FakeStore) -> None:
    assert codes(await batch(http, *[append("a", "s")] * 1000)) == ["ok"] * 1000
    response = await http.post("/v1/store/batch", json={"commands": [append("a", "s")] * 1001})
    assert (response.status_code, response.json()["code"]) == (422, "invalid_command")
    assert len(store.commands) == 1000


async def test_after_unavailable_the_later_ones_of_that_home_are_not_attempted(
    http: httpx.AsyncClient, store: FakeStore
) -> None:
    def decide(command: commands.Command) -> Answer | Refusal:
        assert isinstance(command, commands.AppendRecord)
        if command.record.event_key == "broken":
            return UNAVAILABLE
        if command.record.event_key == "refused":
            return refuse(Code.RECORD_CONFLICT, "no")
        return AppendResult("1", inserted=True, session_status=None)

    store.decide = decide
    store.values = {"run-a": run_meta("run-a", session_id="s1")}
    results = await batch(
        http,
        append("a", "s1", "refused"),
        append("a", "s1", "fine"),
        append("b", "s1", "broken"),
        append("c", "s2", "fine"),
        append("a", "s1", "fine"),
        item("load_session", session_id="s1"),
        append("a", "s1", "fine"),
        item("load_session", session_id="s2"),
        append("c", "s2", "fine"),
    )
    assert codes(results) == [
        "record_conflict",
        "ok",
        "unavailable",
        "ok",
        "unavailable",
        "unavailable",
        "unavailable",
        "session_not_found",
        "ok",
    ]
    attempted = [(c.record.session_id, c.record.event_key) for c in store.commands]  # type: ignore[union-attr]
    assert attempted.count(("s1", "fine")) == 1
    assert ("load_session", "s1") not in store.reads
    assert results[6]["error"]["temporary"] is True
    assert results[6]["error"]["ids"]["run_id"] == "a"


async def test_an_unavailable_read_stops_its_home_too(http: httpx.AsyncClient, store: FakeStore) -> None:
    store.values = {"s": UNAVAILABLE}
    results = await batch(http, item("load_session", session_id="s"), append("a", "s"))
    assert codes(results) == ["unavailable", "unavailable"]
    assert store.commands == []


async def test_homes_do_not_wait_for_each_other(http: httpx.AsyncClient, store: FakeStore) -> None:
    second_was_asked = asyncio.Event()

    def decide(command: commands.Command) -> Answer | Refusal | Awaitable[Answer | Refusal]:
        assert isinstance(command, commands.AppendRecord)

        async def first() -> Answer:
            async with asyncio.timeout(5):
                await second_was_asked.wait()
            return AppendResult("first", inserted=True, session_status=None)

        if command.record.session_id == "s1":
            return first()
        second_was_asked.set()
        return AppendResult("second", inserted=True, session_status=None)

    store.decide = decide
    assert codes(await batch(http, append("a", "s1"), append("b", "s2"))) == ["ok", "ok"]


async def test_a_read_sees_the_commands_before_it(http: httpx.AsyncClient, store: FakeStore) -> None:
    async def slowly(started: commands.Command) -> Answer:
        await asyncio.sleep(0)
        assert isinstance(started, commands.StartRootRun)
        store.values["run-1"] = run_meta()
        return StartResult(AppendResult("1", inserted=True, session_status=SessionStatus.ACTIVE))

    store.decide = slowly
    results = await batch(
        http,
        item("load_run", run_id="run-1"),
        {"method": "start_root_run", "args": ARGUMENTS["start_root_run"]},
        item("load_run", run_id="run-1"),
        item("list_run_records", run_id="run-1", limit=1),
    )
    assert codes(results)[:3] == ["run_not_found", "ok", "ok"]


async def test_an_unopened_store_answers_each_item(store: FakeStore) -> None:
    transport = httpx.ASGITransport(app=Service(StoreHolder()))
    async with httpx.AsyncClient(transport=transport, base_url="http://store") as http:
        assert codes(await batch(http, append("a", "s"), None)) == ["unavailable", "invalid_command"]
    assert store.commands == []


# Homes


async def grouped(store: FakeStore, *items: Json) -> list[list[int]]:
    planned = []
    for index, each in enumerate(items):
        method = METHODS[each["method"]]
        arguments = read(method.arguments, each["args"])
        assert not isinstance(arguments, Refusal), arguments
        planned.append(Planned(index, method, arguments))
    return sorted([each.index for each in group] for group in await by_home(store, planned))


async def test_what_names_a_session_belongs_to_it(store: FakeStore) -> None:
    groups = await grouped(
        store,
        item("create_session", session_id="s1", created_at=NOON_TEXT),
        {"method": "start_root_run", "args": ARGUMENTS["start_root_run"]},
        append("a", "s1"),
        item("list_session_records", session_id="sess-1", limit=1),
        item("record_cancellation", run_id="run-9", reason="r", record=record_args(run_id="run-9")),
        item("end_session", session_id="s1", ended_at=NOON_TEXT),
        item("load_run", run_id="run-9"),
    )
    assert groups == [[0, 2, 5], [1, 3, 4, 6]]
    assert store.reads == []


async def test_a_sessionless_tree_is_one_home(store: FakeStore) -> None:
    groups = await grouped(
        store,
        append("root"),
        append("other"),
        one_shot_child("child", "root"),
        append("child"),
        one_shot_child("grandchild", "child"),
        append("grandchild"),
    )
    assert groups == [[0, 2, 3, 4, 5], [1]]


async def test_a_tree_is_known_by_what_the_store_tells(store: FakeStore) -> None:
    store.values = {
        "root": run_meta("root", session_id=""),
        "left": run_meta("left", session_id="", parent_run_id="root"),
        "leaf": run_meta("leaf", session_id="", parent_run_id="left"),
        "right": run_meta("right", session_id="", parent_run_id="root"),
        "other": run_meta("other", session_id=""),
    }
    assert await grouped(store, append("leaf"), append("other"), append("right")) == [[0, 2], [1]]


async def test_a_run_to_read_is_found_in_its_session(store: FakeStore) -> None:
    store.values = {"r": run_meta("r", session_id="s1")}
    groups = await grouped(
        store,
        item("purge_session", session_id="s1"),
        item("purge_session", session_id="s2"),
        item("load_run", run_id="r"),
    )
    assert groups == [[0, 2], [1]]


async def test_the_store_is_not_asked_where_only_reads_are_left(store: FakeStore) -> None:
    assert await grouped(store, item("load_run", run_id="a"), item("load_run", run_id="b")) == [[0], [1]]
    assert store.reads == []


async def test_the_store_is_not_asked_where_there_is_one_home(store: FakeStore) -> None:
    assert await grouped(store, append("a"), append("a"), item("load_run", run_id="a")) == [[0, 1, 2]]
    assert store.reads == []


async def test_runs_of_unknown_homes_keep_their_order(store: FakeStore) -> None:
    store.values = {"a": UNAVAILABLE, "b": UNAVAILABLE}
    assert await grouped(store, append("a"), append("b"), append("c")) == [[0, 1], [2]]


async def test_the_status_of_no_session_has_no_home(store: FakeStore) -> None:
    items = [item("load_session_status"), append("a", "s"), item("load_session_status", session_id="")]
    assert await grouped(store, *items) == [[0], [1], [2]]
