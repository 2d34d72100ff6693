"""Batches over a real store, in memory: what one command does, the next one of its home meets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from engine.environment import SystemEnvironment
from engine.pending import QueueLimits
from service.app import make_app
from tests.contract.builders import Command, Json, Run, create_session, end_session, purge_session
from tests.contract.makers import LogDown, in_memory

ROOT = Run("run-1", "s1")
CHILD = Run("run-1/child", "s1", parent="run-1")
TREE = Run("tree")
LEAF = Run("tree/leaf", parent="tree")


@pytest.fixture
def faults() -> LogDown:
    return LogDown()


@pytest.fixture
async def http(faults: LogDown) -> AsyncIterator[httpx.AsyncClient]:
    async with in_memory(SystemEnvironment(""), faults, QueueLimits(), exclusive=True) as store:
        transport = httpx.ASGITransport(app=make_app(store))
        async with httpx.AsyncClient(transport=transport, base_url="http://store") as client:
            yield client


async def batch(http: httpx.AsyncClient, *items: Command) -> list[Json]:
    response = await http.post("/v1/store/batch", json={"commands": [item._asdict() for item in items]})
    assert response.status_code == 200, response.text
    results: list[Json] = response.json()["results"]
    return results


def codes(results: list[Json]) -> list[str]:
    return ["ok" if "ok" in result else result["error"]["code"] for result in results]


async def test_commands_of_one_home_meet_what_came_before(http: httpx.AsyncClient) -> None:
    results = await batch(
        http,
        ROOT.append("too/early"),
        create_session("s1"),
        ROOT.start(),
        *(ROOT.append(f"note/{number}") for number in range(40)),
        ROOT.append("note/0"),
        ROOT.append("note/1", '{"n":2}'),
        CHILD.start(),
        Command("list_session_records", {"session_id": "s1", "limit": 100}),
        CHILD.end("failed"),
        ROOT.end(),
        ROOT.append("too/late"),
        Command("load_run", {"run_id": "run-1"}),
        end_session("s1"),
        purge_session("s1"),
        Command("load_run", {"run_id": "run-1"}),
        ROOT.append("note/0"),
    )
    assert codes(results) == [
        "run_not_found",
        *["ok"] * 43,
        "record_conflict",
        *["ok"] * 4,
        "run_not_active",
        *["ok"] * 3,
        "run_not_found",
        "session_purged",
    ]
    assert results[43]["ok"] == results[3]["ok"] | {"inserted": False}
    keys = [record["event_key"] for record in results[46]["ok"]["records"]]
    assert keys == [ROOT.started_key, *(f"note/{number}" for number in range(40)), CHILD.link_key, CHILD.started_key]
    assert results[50]["ok"]["run"]["status"] == "completed"


async def test_homes_that_nobody_named_are_found(http: httpx.AsyncClient) -> None:
    started = await batch(http, TREE.start(), LEAF.start(), create_session("s1"), ROOT.start())
    assert codes(started) == ["ok"] * 4
    results = await batch(
        http, LEAF.append(), ROOT.append(), TREE.append(), LEAF.end(), TREE.end(), TREE.append("late")
    )
    assert codes(results) == [*["ok"] * 5, "run_not_active"]


async def test_an_unavailable_batch_can_be_repeated(http: httpx.AsyncClient, faults: LogDown) -> None:
    items = [create_session("s1"), ROOT.start(), ROOT.append("note/1"), TREE.start(), ROOT.append("note/2")]
    faults.down = True
    assert codes(await batch(http, *items)) == ["unavailable"] * 5
    faults.down = False
    results = await batch(http, *items)
    assert codes(results) == ["ok"] * 5
    ids = [results[index]["ok"]["id"] for index in (2, 4)]
    assert ids == sorted(set(ids))
