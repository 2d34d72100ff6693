"""Many commands in one request: each is atomic by itself, the batch is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract import builders
from tests.contract.builders import Command, Json
from tests.contract.clients import HttpClient, check_problem
from tests.contract.scene import Scene, meaning

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def send(server: HttpClient, *items: Any) -> list[Json]:
    """The results of a batch; commands are written as items."""
    commands = [{"method": item.method, "args": item.args} if isinstance(item, Command) else item for item in items]
    answer = await server.post("/v1/store/batch", {"commands": commands})
    assert set(answer) == {"results"}
    results: list[Json] = answer["results"]
    assert len(results) == len(items)
    for result in results:
        assert set(result) in ({"ok"}, {"error"}), result
        if "error" in result:
            check_problem(result["error"], result["error"]["status"])
    return results


def told(results: list[Json]) -> list[str]:
    """What came of each: its code, or ok."""
    return [result["error"]["code"] if "error" in result else "ok" for result in results]


async def test_an_empty_batch_has_no_results(server: HttpClient) -> None:
    assert await send(server) == []


async def test_results_stand_in_the_order_of_the_commands(server: HttpClient, http_scene: Scene) -> None:
    sessions = [http_scene.new_session(partition=number % 8) for number in range(24)]
    results = await send(server, *(builders.create_session(session_id) for session_id in sessions))
    assert [result["ok"]["session"]["id"] for result in results] == sessions


async def test_each_result_is_what_the_method_alone_answers(server: HttpClient, http_scene: Scene) -> None:
    run = await http_scene.run()
    commands = [run.append(), run.cancel(), run.suspend()]
    firsts = [result["ok"] for result in await send(server, *commands)]
    for command, first in zip(commands, firsts, strict=True):
        assert first["inserted"] is True
        await http_scene.repeats(command, first)


async def test_commands_of_one_session_take_effect_in_order(server: HttpClient, http_scene: Scene) -> None:
    session_id = http_scene.new_session()
    run, late = http_scene.new_run(session_id), http_scene.new_run(session_id)
    child = http_scene.new_child(run)
    results = await send(
        server,
        run.append(),
        builders.create_session(session_id),
        run.append(),
        run.start(),
        run.append(),
        child.start(),
        child.append(),
        child.end(),
        child.append("note/2"),
        builders.end_session(session_id),
        late.start(),
        builders.purge_session(session_id),
        run.end(),
        builders.purge_session(session_id),
        run.append(),
    )
    assert told(results) == [
        "run_not_found", "ok", "run_not_found", "ok", "ok", "ok", "ok", "ok", "run_not_active", "ok", "ok",
        "session_has_active_runs", "ok", "ok", "session_purged",
    ]  # fmt: skip
    assert results[10]["ok"]["outcome"] == "stop"


async def test_commands_of_one_sessionless_tree_take_effect_in_order(server: HttpClient, http_scene: Scene) -> None:
    root = http_scene.new_run()
    child = http_scene.new_child(root)
    grandchild = http_scene.new_child(child)
    results = await send(
        server,
        child.start(),
        root.start(),
        child.start(),
        grandchild.start(),
        grandchild.append(),
        child.end(),
        http_scene.new_child(child).start(),
        root.append(),
        root.end(),
        root.append("note/2"),
    )
    expected = ["run_not_found", "ok", "ok", "ok", "ok", "ok", "run_not_active", "ok", "ok", "run_not_active"]
    assert told(results) == expected


async def test_records_of_one_run_keep_their_order(server: HttpClient, http_scene: Scene) -> None:
    run = await http_scene.run()
    await send(server, *(run.append(f"note/{number}") for number in range(300)))
    assert await http_scene.keys(run) == [run.started_key, *(f"note/{number}" for number in range(300))]


async def test_sessions_mixed_in_a_batch_keep_their_own_orders(server: HttpClient, http_scene: Scene) -> None:
    runs = [await http_scene.run(await http_scene.session(partition=number)) for number in range(8)]
    await send(server, *(runs[number % 8].append(f"note/{number}") for number in range(80)))
    for number, run in enumerate(runs):
        expected = [f"note/{each}" for each in range(80) if each % 8 == number]
        assert await http_scene.keys(run) == [run.started_key, *expected]


async def test_a_read_sees_the_writes_before_it_and_not_those_behind(server: HttpClient, http_scene: Scene) -> None:
    run = await http_scene.run()
    read = Command("list_run_records", {"run_id": run.run_id, "limit": 10})
    load = Command("load_run", {"run_id": run.run_id})
    listed = Command("list_runs_by_session", {"session_id": run.session_id, "statuses": ["running"]})
    results = await send(server, read, run.append(), read, load, listed, run.end(), load, listed, read)
    assert [len(results[index]["ok"]["records"]) for index in (0, 2, 8)] == [1, 2, 3]
    assert [results[index]["ok"]["run"]["status"] for index in (3, 6)] == ["running", "completed"]
    assert [len(results[index]["ok"]["runs"]) for index in (4, 7)] == [1, 0]


async def test_a_retry_inside_one_batch_is_a_retry(server: HttpClient, http_scene: Scene) -> None:
    run = await http_scene.run()
    first, second, third = await send(server, run.append(), run.append(), run.append(payload="2"))
    assert second["ok"] == {**first["ok"], "inserted": False}
    assert first["ok"]["inserted"] is True
    assert third["error"]["code"] == "record_conflict"


async def test_after_a_refusal_the_later_ones_go_on(server: HttpClient, http_scene: Scene) -> None:
    run = await http_scene.run()
    results = await send(server, run.append(), run.append(payload="2"), run.append("note/2"), run.end())
    assert told(results) == ["ok", "record_conflict", "ok", "ok"]


async def test_an_error_is_the_whole_problem_object(server: HttpClient, http_scene: Scene) -> None:
    missing = http_scene.new_run(await http_scene.session())
    (result,) = await send(server, missing.append())
    alone = await server.http.post("/v1/store/append_record", content=json.dumps(missing.append().args).encode())
    assert result["error"] == alone.json()


@pytest.mark.parametrize(
    "item",
    [
        None, 7, "load_run", [], {}, {"method": "load_run"}, {"method": None, "args": {}}, {"method": 7, "args": {}},
        {"method": "load_run", "args": []}, {"method": "load_run", "args": "x"}, {"args": {"run_id": "x"}},
        {"method": "load_run", "args": {"run_id": 7}}, {"method": "load_run", "args": {"run_id": "x"}, "more": 1},
        {"method": "batch", "args": {}}, {"method": "no_such_method", "args": {}}, {"method": "", "args": {}},
        {"method": "append_events", "args": {}}, {"method": "load_run", "args": {"run_id": "x", "unknown": 1}},
    ],
    ids=json.dumps,
)  # fmt: skip
async def test_a_malformed_item_is_an_error_of_its_own(server: HttpClient, http_scene: Scene, item: Any) -> None:
    run = await http_scene.run()
    results = await send(server, run.append(), item, run.append("note/2"))
    assert told(results) == ["ok", "invalid_command", "ok"]
    assert await http_scene.keys(run) == [run.started_key, "note/1", "note/2"]


async def test_each_command_is_atomic_by_itself(server: HttpClient, http_scene: Scene) -> None:
    parent = await http_scene.run()
    child, other = http_scene.new_child(parent), http_scene.new_child(parent)
    results = await send(
        server, child.start(), other.start().but("parent_linked.event_key", child.link_key), other.start()
    )
    assert told(results) == ["ok", "record_conflict", "ok"]
    assert await http_scene.keys(parent) == [parent.started_key, child.link_key, other.link_key]


async def test_1000_commands_are_taken(server: HttpClient, http_scene: Scene) -> None:
    run = await http_scene.run()
    results = await send(server, *(run.append(f"note/{number}") for number in range(1000)))
    assert all(result["ok"]["inserted"] for result in results)
    assert len(await http_scene.records(run)) == 1001


async def test_1001_commands_are_refused_as_a_whole(server: HttpClient, http_scene: Scene) -> None:
    run = await http_scene.run()
    command = {"method": "append_record", "args": run.append().args}
    before = await http_scene.everything()
    response = await server.http.post("/v1/store/batch", content=json.dumps({"commands": [command] * 1001}).encode())
    assert response.status_code == 422
    assert response.json()["code"] == "invalid_command"
    await http_scene.same(before)


@pytest.mark.parametrize(
    "body", [{}, {"commands": None}, {"commands": {}}, {"commands": "x"}, {"commands": [], "more": 1}], ids=json.dumps
)
async def test_a_batch_of_another_shape_is_refused(server: HttpClient, body: Json) -> None:
    response = await server.http.post("/v1/store/batch", content=json.dumps(body).encode())
    assert response.status_code == 422
    assert response.json()["code"] == "invalid_command"


async def test_a_key_twice_anywhere_refuses_the_whole_body(server: HttpClient, http_scene: Scene) -> None:
    run = await http_scene.run()
    first, second = (json.dumps({"method": "append_record", "args": run.append(f"note/{each}").args}) for each in "12")
    body = f'{{"commands":[{first},{second.replace("{", chr(123) + chr(34) + "method" + chr(34) + ": null, ", 1)}]}}'
    response = await server.http.post("/v1/store/batch", content=body.encode())
    assert response.status_code == 400
    assert await http_scene.keys(run) == [run.started_key]


async def test_session_status_in_a_batch_is_the_one_of_its_moment(server: HttpClient, http_scene: Scene) -> None:
    run = await http_scene.run()
    results = await send(server, run.append(), builders.end_session(run.session_id), run.append("note/2"), run.append())
    statuses = [meaning(results[index]["ok"])["session_status"] for index in (0, 2, 3)]
    assert statuses == ["active", "ended", "ended"]
