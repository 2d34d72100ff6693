"""Listings: records page by page, runs of a session, and the views of sessions and runs."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from schemas.refusals import Refused
from tests.contract import builders
from tests.contract.builders import Command, Json, Run
from tests.contract.makers import MAKERS, Place
from tests.contract.scene import Scene, all_records, meaning

pytestmark = pytest.mark.asyncio(loop_scope="session")

METHODS = ["list_run_records", "list_session_records"]
MIB = 1024 * 1024


def subject_of(method: str, run: Run) -> Json:
    """What a listing of records is of."""
    return {"run_id": run.run_id} if method == "list_run_records" else {"session_id": run.session_id}


def view_of(method: str, run: Run) -> str:
    """The view that shows the same records."""
    kind, name = ("runs", run.run_id) if method == "list_run_records" else ("sessions", run.session_id)
    return f"/v1/{kind}/{quote(name, safe='')}/records"


async def page_of(scene: Scene, method: str, run: Run, limit: int, cursor: str = "") -> Json:
    """One page of records."""
    return await scene.do(Command(method, {**subject_of(method, run), "cursor": cursor, "limit": limit}))


async def run_with_notes(scene: Scene, count: int) -> Run:
    """A run with so many ordinary records after its start."""
    run = await scene.run()
    for number in range(count):
        await scene.do(run.append(f"note/{number}", payload=str(number)))
    return run


# Pages of records


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 9, 1000])
async def test_pages_together_are_the_whole_history_oldest_first(scene: Scene, method: str, limit: int) -> None:
    run = await run_with_notes(scene, 7)
    records = await all_records(scene.client, method, subject_of(method, run), limit)
    assert [record["payload"] for record in records] == ["{}", *map(str, range(7))]


@pytest.mark.parametrize("method", METHODS)
async def test_the_next_cursor_is_empty_when_nothing_follows(scene: Scene, method: str) -> None:
    run = await run_with_notes(scene, 3)
    assert not (await page_of(scene, method, run, 4)).get("next_cursor")
    page = await page_of(scene, method, run, 3)
    assert page["next_cursor"]
    last = await page_of(scene, method, run, 1, page["next_cursor"])
    assert len(last["records"]) == 1
    assert not last.get("next_cursor")


@pytest.mark.parametrize("method", METHODS)
async def test_a_page_never_changes_by_appends_after_it(scene: Scene, method: str) -> None:
    run = await run_with_notes(scene, 4)
    first = await page_of(scene, method, run, 3)
    second = await page_of(scene, method, run, 2, first["next_cursor"])
    for number in range(4, 8):
        await scene.do(run.append(f"note/{number}", payload=str(number)))
        assert await page_of(scene, method, run, 3) == first
        again = await page_of(scene, method, run, 2, first["next_cursor"])
        assert again["records"] == second["records"]
    await scene.do(run.end())
    assert await page_of(scene, method, run, 3) == first


@pytest.mark.parametrize("method", METHODS)
async def test_a_cursor_goes_on_to_what_was_appended_since(scene: Scene, method: str) -> None:
    run = await run_with_notes(scene, 3)
    page = await page_of(scene, method, run, 3)
    await scene.do(run.append("note/3", payload="3"))
    rest = await page_of(scene, method, run, 10, page["next_cursor"])
    assert [record["payload"] for record in rest["records"]] == ["2", "3"]


@pytest.mark.parametrize("method", METHODS)
async def test_a_listing_of_more_than_1000_records(scene: Scene, method: str) -> None:
    run = await scene.run()
    for start in (0, 505):
        await scene.do_all([run.append(f"note/{start + index}") for index in range(505)])
    first = await page_of(scene, method, run, 1000)
    assert len(first["records"]) <= 1000
    records = await all_records(scene.client, method, subject_of(method, run))
    assert len(records) == 1011
    assert len({record["event_key"] for record in records}) == 1011
    assert records[: len(first["records"])] == first["records"]


@pytest.mark.parametrize("method", METHODS)
async def test_a_listing_of_large_records_loses_none(scene: Scene, method: str) -> None:
    run = await scene.run()
    for number in range(5):
        await scene.do(run.append(f"note/{number}", payload=f'"{number}{"x" * (4 * MIB - 3)}"'))
    records = await all_records(scene.client, method, subject_of(method, run))
    assert [record["payload"][1] for record in records[1:]] == list("01234")
    assert all(len(record["payload"]) == 4 * MIB for record in records[1:])


async def test_session_order_is_commit_order(scene: Scene) -> None:
    session_id = await scene.session()
    parent = await scene.run(session_id)
    child = await scene.child(parent)
    other = await scene.run(session_id)
    expected = [
        (parent.run_id, parent.started_key), (parent.run_id, child.link_key), (child.run_id, child.started_key),
        (other.run_id, other.started_key),
    ]  # fmt: skip
    for number, run in enumerate((other, child, parent, child, other)):
        await scene.do(run.append(f"note/{number}"))
        expected.append((run.run_id, f"note/{number}"))
    for limit in (1, 4, 1000):
        records = await scene.session_records(session_id, limit)
        assert [(record["run_id"], record["event_key"]) for record in records] == expected


async def test_a_listing_holds_nothing_of_ids_that_begin_alike(scene: Scene) -> None:
    base = scene.new_id("s")
    runs: list[Run] = []
    for tail in ("", "/", "/1", "0", "\u00ff"):
        await scene.do(builders.create_session(base + tail))
        runs.append(await scene.run(base + tail, run_id=scene.new_id("r") if not runs else runs[0].run_id + tail))
    for run in runs:
        await scene.do(run.append())
        assert [record["run_id"] for record in await scene.records(run)] == [run.run_id] * 2
    for run in runs:
        assert [record["run_id"] for record in await scene.session_records(run.session_id)] == [run.run_id] * 2
        listed = await scene.do(Command("list_runs_by_session", {"session_id": run.session_id}))
        assert [found["run_id"] for found in listed["runs"]] == [run.run_id]


async def test_an_empty_session_has_an_empty_listing(scene: Scene) -> None:
    session_id = await scene.session()
    page = await scene.do(Command("list_session_records", {"session_id": session_id, "limit": 10}))
    assert page["records"] == []
    assert not page.get("next_cursor")
    assert await scene.do(Command("list_runs_by_session", {"session_id": session_id})) == {"runs": []}


async def test_records_of_a_missing_run_or_session_are_not_listed(scene: Scene) -> None:
    run = scene.new_run(scene.new_session())
    await scene.refuses("run_not_found", Command("list_run_records", {"run_id": run.run_id, "limit": 10}))
    await scene.refuses(
        "session_not_found", Command("list_session_records", {"session_id": run.session_id, "limit": 1})
    )
    await scene.refuses("session_not_found", Command("list_runs_by_session", {"session_id": run.session_id}))


# Cursors


@pytest.mark.parametrize("method", METHODS)
async def test_a_cursor_is_good_for_its_own_listing_only(scene: Scene, method: str) -> None:
    run, other = await run_with_notes(scene, 3), await run_with_notes(scene, 3)
    cursor = (await page_of(scene, method, run, 2))["next_cursor"]
    for each, wanted in ((run, METHODS[1 - METHODS.index(method)]), (other, METHODS[0]), (other, METHODS[1])):
        args = {**subject_of(wanted, each), "cursor": cursor, "limit": 10}
        await scene.refuses("invalid_cursor", Command(wanted, args))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "cursor", ["x", "0", "1", "2", "a b", "😀", "AAAA", "=" * 8, "x" * 5000, "../..", "\x00"], ids=ascii
)
async def test_a_cursor_that_nobody_issued_is_refused(scene: Scene, method: str, cursor: str) -> None:
    run = await run_with_notes(scene, 3)
    await scene.refuses("invalid_cursor", Command(method, {**subject_of(method, run), "cursor": cursor, "limit": 10}))


@pytest.mark.parametrize("method", METHODS)
async def test_a_cursor_with_any_character_changed_is_refused(scene: Scene, method: str) -> None:
    run = await run_with_notes(scene, 3)
    cursor = (await page_of(scene, method, run, 2))["next_cursor"]
    changed = [
        cursor[:index] + ("A" if cursor[index] != "A" else "B") + cursor[index + 1 :] for index in range(len(cursor))
    ]
    for wrong in [*changed, cursor[:-1], cursor + "A", cursor + "=", cursor + " ", " " + cursor, cursor.swapcase()]:
        code = await scene.code_of(Command(method, {**subject_of(method, run), "cursor": wrong, "limit": 10}))
        assert code == "invalid_cursor", wrong


async def test_a_record_id_is_no_cursor(scene: Scene) -> None:
    run = await run_with_notes(scene, 3)
    record_id = (await scene.records(run))[1]["id"]
    await scene.refuses(
        "invalid_cursor", Command("list_run_records", {"run_id": run.run_id, "cursor": record_id, "limit": 1})
    )


@pytest.mark.parametrize("cursor", [7, True, [], {}])
async def test_a_cursor_is_text(scene: Scene, cursor: object) -> None:
    run = await run_with_notes(scene, 3)
    await scene.refuses(
        "invalid_command", Command("list_run_records", {"run_id": run.run_id, "cursor": cursor, "limit": 1})
    )


@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind != "model"])
async def test_a_cursor_of_another_store_is_refused(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """A cursor holds for the store that made it, even where another store has the very same records."""
    places = [Place(tmp_path / name, request) for name in ("one", "two")]
    async with MAKERS[kind](places[0]) as one, MAKERS[kind](places[1]) as two:
        run = Run("run", "session")
        cursors = []
        for client in (one, two):
            for command in (builders.create_session("session"), run.start(), run.append()):
                await client.call(command.method, command.args)
            page = await client.call("list_run_records", {"run_id": "run", "limit": 1})
            cursors.append(page["next_cursor"])
        with pytest.raises(Refused) as refused:
            await two.call("list_run_records", {"run_id": "run", "limit": 1, "cursor": cursors[0]})
        assert refused.value.code.value == "invalid_cursor"
        assert await two.call("list_run_records", {"run_id": "run", "limit": 1, "cursor": cursors[1]})


@pytest.mark.parametrize("method", METHODS)
async def test_a_cursor_is_the_same_in_methods_and_views(scene: Scene, method: str) -> None:
    run = await run_with_notes(scene, 5)
    by_method = await page_of(scene, method, run, 2)
    by_view = await scene.client.get(view_of(method, run), limit=2)
    assert meaning(by_view) == meaning(by_method)
    rest = await page_of(scene, method, run, 10, by_method["next_cursor"])
    assert meaning(await scene.client.get(view_of(method, run), limit=10, cursor=by_view["next_cursor"])) == meaning(
        rest
    )


# Runs of a session


async def test_runs_are_listed_in_start_order(scene: Scene) -> None:
    session_id = await scene.session()
    names = [scene.new_id(letter) for letter in "zamby"]
    first = await scene.run(session_id, run_id=names[0], started_at="2030-01-01T00:00:00.000Z")
    for name, year in zip(names[1:4], (1999, 2040, 1980), strict=True):
        await scene.run(session_id, run_id=name, started_at=f"{year}-01-01T00:00:00.000Z")
    await scene.do(first.end())
    await scene.do(builders.end_session(session_id))
    await scene.run(session_id, run_id=names[4])
    listed = await scene.do(Command("list_runs_by_session", {"session_id": session_id}))
    assert [run["run_id"] for run in listed["runs"]] == names
    assert [run["start_outcome"] for run in listed["runs"]] == ["proceed"] * 4 + ["stop"]
    for run in listed["runs"]:
        loaded = await scene.do(Command("load_run", {"run_id": run["run_id"]}))
        assert meaning(run) == meaning(loaded["run"])


@pytest.mark.parametrize(
    "statuses",
    [
        ["running"],
        ["suspended"],
        ["completed"],
        ["failed"],
        ["canceled"],
        ["failed", "running"],
        ["failed", "failed"],
        [],
    ],
    ids=str,
)
async def test_runs_are_filtered_by_status(scene: Scene, statuses: list[str]) -> None:
    session_id = await scene.session()
    order = ["completed", "running", "failed", "suspended", "canceled", "running"]
    for status in order:
        await scene.run(session_id, status)
    listed = await scene.do(Command("list_runs_by_session", {"session_id": session_id, "statuses": statuses}))
    assert [run["status"] for run in listed["runs"]] == [each for each in order if each in statuses or not statuses]


@pytest.mark.parametrize("status", ["pending", "paused", "", "RUNNING", "running ", "active", 7, None, ["running"]])
async def test_an_unknown_status_is_refused(scene: Scene, status: object) -> None:
    session_id = await scene.session()
    for statuses in ([status], ["running", status]):
        command = Command("list_runs_by_session", {"session_id": session_id, "statuses": statuses})
        await scene.refuses("invalid_command", command)


# Views


@pytest.mark.parametrize("method", METHODS)
async def test_views_of_records_show_100_where_no_limit_is_given(scene: Scene, method: str) -> None:
    run = await scene.run()
    await scene.do_all([run.append(f"note/{number}") for number in range(120)])
    page = await scene.client.get(view_of(method, run))
    assert len(page["records"]) == 100
    rest = await scene.client.get(view_of(method, run), cursor=page["next_cursor"])
    assert len(rest["records"]) == 21
    assert not rest.get("next_cursor")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("types", "expected"), [("b", ["1", "4"]), ("a,b", ["0", "1", "3", "4"]), ("d", [])])
async def test_views_of_records_are_filtered_by_type(
    scene: Scene, method: str, types: str, expected: list[str]
) -> None:
    run = await scene.run()
    for number in range(6):
        await scene.do(run.append(f"note/{number}", payload=str(number), kind="abc"[number % 3]))
    found: list[str] = []
    page: Json = {"next_cursor": ""}
    while True:
        page = await scene.client.get(view_of(method, run), type=types, limit=1, cursor=page["next_cursor"])
        found += [record["payload"] for record in page["records"]]
        if not page.get("next_cursor"):
            break
    assert found == expected


async def test_a_run_is_shown_with_its_family(scene: Scene) -> None:
    parent = await scene.run()
    before = await scene.child(parent, "suspended", agent_id="agent.research")
    run = await scene.child(parent, agent_id="agent.research", predecessor=before.run_id)
    shown = await scene.client.get(f"/v1/runs/{quote(parent.run_id, safe='')}")
    assert meaning(shown["run"]) == await scene.load(parent)
    link = {"agent_id": "agent.research", "tool_name": "research.ask", "tool_call_id": "call-1"}
    assert shown["children"] == [{"run_id": each.run_id, **link} for each in (before, run)]
    assert (shown["record_count"], shown["has_checkpoint"], shown["successors"]) == (3, False, [])
    shown = await scene.client.get(f"/v1/runs/{quote(before.run_id, safe='')}")
    assert (shown["record_count"], shown["has_checkpoint"], shown["successors"]) == (2, True, [run.run_id])
    shown = await scene.client.get(f"/v1/runs/{quote(run.run_id, safe='')}")
    assert (shown["predecessor"], shown["successors"], shown["children"]) == (before.run_id, [], [])


async def test_a_session_is_shown_with_its_counts(scene: Scene) -> None:
    session_id = await scene.session()
    for status in ("running", "failed", "failed"):
        await scene.run(session_id, status)
    path = f"/v1/sessions/{quote(session_id, safe='')}"
    shown = await scene.client.get(path)
    assert meaning(shown["session"]) == {"id": session_id, "status": "active", "created_at": builders.CREATED}
    assert {status: count for status, count in shown["run_counts"].items() if count} == {"running": 1, "failed": 2}
    assert shown["last_activity_at"].endswith("Z")
    listed = await scene.client.get(f"{path}/runs", status="failed")
    assert [run["status"] for run in listed["runs"]] == ["failed", "failed"]


@pytest.mark.parametrize("tail", ["", "/runs", "/records"])
async def test_views_of_a_purged_session_tell_so(scene: Scene, tail: str) -> None:
    run = await scene.purged_run()
    with pytest.raises(Refused) as refused:
        await scene.client.get(f"/v1/sessions/{quote(run.session_id, safe='')}{tail}")
    assert refused.value.code.value == "session_purged"
    if tail != "/runs":
        with pytest.raises(Refused) as refused:
            await scene.client.get(f"/v1/runs/{quote(run.run_id, safe='')}{tail}")
        assert refused.value.code.value == "run_not_found"


async def test_sessions_are_listed_newest_first_then_by_id(empty_scene: Scene) -> None:
    scene = empty_scene
    assert (await scene.client.get("/v1/sessions"))["sessions"] == []
    days = {"s-c": 2, "s-b": 2, "s-a": 3, "s-e": 1, "s-d": 2, "s-é": 2, "s-B": 2}
    for session_id, day in days.items():
        await scene.do(builders.create_session(session_id, f"2026-01-0{day}T00:00:00.000Z"))
    await scene.run("s-b", "completed")
    await scene.run("s-b")
    await scene.do(builders.end_session("s-d"))
    await scene.do(builders.create_session("gone", "2026-01-02T00:00:00.000Z"))
    await scene.do(builders.end_session("gone"))
    await scene.do(builders.purge_session("gone"))
    expected = ["s-a", "s-B", "s-b", "s-c", "s-d", "s-é", "s-e"]
    rows: list[Json] = []
    for limit in (1, 2, 3, 100):
        rows.clear()
        cursor = ""
        while True:
            page = await scene.client.get("/v1/sessions", limit=limit, cursor=cursor)
            assert len(page["sessions"]) <= limit
            rows += page["sessions"]
            cursor = page.get("next_cursor") or ""
            if not cursor:
                break
        assert [row["id"] for row in rows] == expected
    assert {status: count for status, count in rows[2]["run_counts"].items() if count} == {"completed": 1, "running": 1}
    assert [row["id"] for row in (await scene.client.get("/v1/sessions", status="ended"))["sessions"]] == ["s-d"]
    assert rows[4]["ended_at"] == builders.ENDED


async def test_a_cursor_of_the_list_of_sessions_is_of_nothing_else(empty_scene: Scene) -> None:
    scene = empty_scene
    run = await run_with_notes(scene, 3)
    await scene.session()
    of_sessions = (await scene.client.get("/v1/sessions", limit=1))["next_cursor"]
    args = {"run_id": run.run_id, "cursor": of_sessions, "limit": 1}
    await scene.refuses("invalid_cursor", Command("list_run_records", args))
    of_run = (await page_of(scene, "list_run_records", run, 1))["next_cursor"]
    with pytest.raises(Refused) as refused:
        await scene.client.get("/v1/sessions", cursor=of_run)
    assert refused.value.code.value == "invalid_cursor"


@pytest.mark.parametrize(
    "query", [{"limit": 0}, {"limit": 1001}, {"limit": "x"}, {"status": "pending"}, {"unknown": 1}], ids=json.dumps
)
async def test_a_query_of_another_form_is_refused(scene: Scene, query: Json) -> None:
    with pytest.raises(Refused) as refused:
        await scene.client.get("/v1/sessions", **query)
    assert refused.value.code.value == "invalid_command"
