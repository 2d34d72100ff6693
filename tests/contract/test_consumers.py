"""Named consumers: durable reading, at least once, never a gap."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, Final
from urllib.parse import quote

import pytest

from schemas.refusals import Refused
from tests.contract import builders
from tests.contract.builders import PARTITIONS, Json, Run
from tests.contract.clients import Cloggable, HttpClient
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")

ALL: Final = {"scope": "all"}


class Consumer:
    """One consumer in a scene."""

    def __init__(self, scene: Scene, name: str = "") -> None:
        self.client = scene.client
        self.name = name or scene.new_id("c")
        self.path = f"/v1/consumers/{quote(self.name, safe='')}"

    async def put(self, scope: Any = "all", **more: Any) -> Json:
        return await self.client.send("PUT", self.path, {"scope": scope, **more})

    async def commit(self, cursor: Any) -> Json:
        return await self.client.send("POST", f"{self.path}/commit", {"cursor": cursor})

    async def delete(self) -> Json:
        return await self.client.send("DELETE", self.path)

    async def read(self, cursor: str = "") -> list[tuple[str, Json]]:
        return await self.client.consume(self.name, cursor)

    async def keys(self, *runs: Run, cursor: str = "") -> list[str]:
        """The event keys of what is read, of these runs only."""
        ids = {run.run_id for run in runs}
        return [record["event_key"] for _, record in await self.read(cursor) if record["run_id"] in ids]

    async def listed(self) -> Json | None:
        listing = (await self.client.get("/v1/consumers"))["consumers"]
        found = [each for each in listing if each["name"] == self.name]
        assert len(found) <= 1
        return found[0] if found else None


async def refused(code: str, asked: Any, name: str = "") -> None:
    with pytest.raises(Refused) as caught:
        await asked
    assert caught.value.code == code, caught.value
    assert caught.value.code.temporary is (code == "unavailable")
    assert name in caught.value.refusal.detail


async def with_notes(scene: Scene, run: Run, *names: str) -> None:
    for name in names:
        await scene.do(run.append(name, "{}"))


def scope_of(kind: str, run: Run) -> Any:
    """A scope that covers a run."""
    return {"all": "all", "session": {"session": run.session_id}, "run": {"run": run.run_id}}[kind]


each_scope = pytest.mark.parametrize("kind", ["all", "session", "run"])


@each_scope
async def test_a_consumer_is_made_and_listed(scene: Scene, kind: str) -> None:
    consumer, scope = Consumer(scene), scope_of(kind, await scene.run())
    expected = {"name": consumer.name, "scope": scope, "types": [], "from": "start", "cursor": ""}
    assert await consumer.listed() is None
    assert await consumer.put(scope, types=[], **{"from": "start"}) == expected
    assert await consumer.listed() == expected
    typed = Consumer(scene)
    answer = await typed.put(scope, types=["note", "a b", "note"])
    assert answer == {**expected, "name": typed.name, "types": ["a b", "note"]} == await typed.listed()


async def test_consumers_are_listed_by_name(scene: Scene) -> None:
    made = [Consumer(scene) for _ in range(12)]
    for consumer in reversed(made):
        await consumer.put()
    names = [each["name"] for each in (await scene.client.get("/v1/consumers"))["consumers"]]
    assert names == sorted(names, key=str.encode)
    assert {consumer.name for consumer in made} <= set(names)
    # They lie in more than one partition.
    assert len({builders.place(f"consumer:{consumer.name}") for consumer in made}) > 1


@each_scope
async def test_the_same_again_is_a_retry(scene: Scene, kind: str) -> None:
    consumer, run = Consumer(scene), await scene.run()
    first = await consumer.put(scope_of(kind, run), types=["b", "a"])
    for more in (
        {"types": ["a", "b"]},
        {"types": ["b", "a", "a"], "from": "start"},
        {"types": ["a", "b"], "from": None},
    ):
        assert await consumer.put(scope_of(kind, run), **more) == first
    await with_notes(scene, run, "1")
    now = Consumer(scene)
    made = await now.put(scope_of(kind, run), **{"from": "now"})
    await with_notes(scene, run, "2")
    assert await now.put(scope_of(kind, run), **{"from": "now"}) == made
    assert await now.keys(run) == ["2"]


@pytest.mark.parametrize("change", ["scope", "types", "more types", "from"])
async def test_another_definition_is_a_conflict(scene: Scene, change: str) -> None:
    consumer, run, other = Consumer(scene), await scene.run(), await scene.run()
    made = await consumer.put({"run": run.run_id}, types=["note"])
    changed: dict[str, Json] = {
        "scope": {"scope": {"run": other.run_id}, "types": ["note"]},
        "types": {"scope": {"run": run.run_id}},
        "more types": {"scope": {"run": run.run_id}, "types": ["note", "other"]},
        "from": {"scope": {"run": run.run_id}, "types": ["note"], "from": "now"},
    }
    await refused("consumer_conflict", consumer.put(**changed[change]), consumer.name)
    await refused("consumer_conflict", consumer.put({"session": run.session_id}, types=["note"]), consumer.name)
    assert await consumer.listed() == made


@each_scope
async def test_a_consumer_reads_from_the_start_and_on_from_what_it_committed(scene: Scene, kind: str) -> None:
    run = await scene.run()
    await with_notes(scene, run, "1", "2")
    consumer = Consumer(scene)
    await consumer.put(scope_of(kind, run))
    events = [event for event in await consumer.read() if event[1]["run_id"] == run.run_id]
    assert [record["event_key"] for _, record in events] == [run.started_key, "1", "2"]
    # Nothing is committed by reading.
    assert await consumer.keys(run) == [run.started_key, "1", "2"]
    answer = await consumer.commit(events[1][0])
    assert answer["cursor"] != ""
    assert await consumer.listed() == answer
    assert await consumer.keys(run) == ["2"]
    await with_notes(scene, run, "3")
    assert await consumer.keys(run) == ["2", "3"]
    # A cursor of its stream is where to read on, whatever is committed.
    assert await consumer.keys(run, cursor=events[0][0]) == ["1", "2", "3"]
    assert await consumer.keys(run, cursor=answer["cursor"]) == ["2", "3"]


@each_scope
async def test_what_is_read_is_what_pages_show(scene: Scene, kind: str) -> None:
    run = await scene.run()
    payload = '{"n": 1.10, "\\u0000": "\\ud800", "big": 123456789012345678901234567890}'
    await scene.do(run.append("odd", payload))
    consumer = Consumer(scene)
    await consumer.put(scope_of(kind, run))
    read = [record for _, record in await consumer.read() if record["run_id"] == run.run_id]
    assert read == await scene.records(run)
    assert read[-1]["payload"] == payload


@each_scope
async def test_from_now_reads_what_comes_after(scene: Scene, kind: str) -> None:
    run = await scene.run()
    await with_notes(scene, run, "1")
    consumer = Consumer(scene)
    made = await consumer.put(scope_of(kind, run), **{"from": "now"})
    assert made["from"] == "now"
    assert await consumer.keys(run) == []
    await with_notes(scene, run, "2")
    assert await consumer.keys(run) == ["2"]


@each_scope
async def test_only_records_of_its_types_are_read(scene: Scene, kind: str) -> None:
    run = await scene.run()
    for number, name in enumerate(("a", "b", "c", "a")):
        await scene.do(run.append(f"{number}", "{}", name))
    consumer = Consumer(scene)
    await consumer.put(scope_of(kind, run), types=["c", "a"])
    events = [event for event in await consumer.read() if event[1]["run_id"] == run.run_id]
    assert [record["event_key"] for _, record in events] == ["0", "2", "3"]
    await consumer.commit(events[1][0])
    assert await consumer.keys(run) == ["3"]


@each_scope
async def test_a_commit_backwards_or_again_changes_nothing(scene: Scene, kind: str) -> None:
    run = await scene.run()
    await with_notes(scene, run, "1", "2", "3")
    consumer = Consumer(scene)
    await consumer.put(scope_of(kind, run))
    events = [event for event in await consumer.read() if event[1]["run_id"] == run.run_id]
    first = await consumer.commit(events[2][0])
    for cursor in (events[0][0], events[2][0], first["cursor"], events[1][0]):
        assert await consumer.commit(cursor) == first
    assert await consumer.keys(run) == ["3"]
    assert await consumer.listed() == first


@each_scope
async def test_cutting_after_every_event_and_committing_misses_nothing(scene: Scene, kind: str) -> None:
    run = await scene.run()
    await with_notes(scene, run, *(f"{number}" for number in range(6)))
    consumer = Consumer(scene)
    await consumer.put(scope_of(kind, run))
    seen: list[str] = []
    while True:
        events = [event for event in await consumer.read() if event[1]["run_id"] == run.run_id]
        if not events:
            break
        cursor, record = events[0]
        seen.append(record["event_key"])
        await consumer.commit(cursor)
    assert seen == [run.started_key, *(f"{number}" for number in range(6))]


async def test_commits_at_once_leave_the_furthest(scene: Scene) -> None:
    run = await scene.run()
    await with_notes(scene, run, *(f"{number}" for number in range(8)))
    consumer = Consumer(scene)
    await consumer.put({"run": run.run_id})
    cursors = [cursor for cursor, _ in await consumer.read()]
    await asyncio.gather(*(consumer.commit(cursor) for cursor in (*cursors[:-1:2], *cursors[1:-1:2])))
    assert await consumer.keys(run) == ["7"]


async def test_a_consumer_of_everything_reads_every_partition(scene: Scene) -> None:
    before = Consumer(scene)
    await before.put(**{"from": "now"})
    runs = [await scene.run(await scene.session(partition=partition)) for partition in range(PARTITIONS)]
    shot = await scene.one_shot()
    everything = [run.started_key for run in (*runs, shot)]
    assert sorted(await before.keys(*runs, shot)) == sorted(everything)
    left = set(everything)
    while left:
        events = [event for event in await before.read() if event[1]["run_id"] in {run.run_id for run in (*runs, shot)}]
        assert {record["event_key"] for _, record in events} == left
        cursor, record = events[0]
        left.discard(record["event_key"])
        await before.commit(cursor)
    await with_notes(scene, runs[3], "late")
    assert await before.keys(*runs, shot) == ["late"]


async def test_a_cursor_of_anything_else_is_refused(scene: Scene) -> None:
    run = await scene.run()
    await with_notes(scene, run, "1", "2")
    consumer, other = Consumer(scene), Consumer(scene)
    for each in (consumer, other):
        await each.put({"run": run.run_id})
    made = await consumer.listed()
    page = await scene.client.call("list_run_records", {"run_id": run.run_id, "limit": 1})
    theirs = (await other.read())[0][0]
    own = (await consumer.read())[1][0]
    data = bytearray(base64.urlsafe_b64decode(own + "=" * (-len(own) % 4)))
    data[len(data) // 2] ^= 1
    changed = base64.urlsafe_b64encode(bytes(data)).decode().rstrip("=")
    for cursor in (theirs, page["next_cursor"], page["records"][0]["id"], changed, own + "x", "nonsense", "é"):
        await refused("invalid_cursor", consumer.commit(cursor), consumer.name)
        await refused("invalid_cursor", consumer.read(cursor))
    await refused(
        "invalid_cursor", scene.client.call("list_run_records", {"run_id": run.run_id, "cursor": own, "limit": 1})
    )
    assert await consumer.listed() == made


@each_scope
async def test_a_cursor_of_an_earlier_consumer_of_the_name_is_refused(scene: Scene, kind: str) -> None:
    run = await scene.run()
    await with_notes(scene, run, "1")
    consumer = Consumer(scene)
    await consumer.put(scope_of(kind, run))
    cursor = (await consumer.read())[-1][0]
    committed = (await consumer.commit(cursor))["cursor"]
    await consumer.delete()
    made = await consumer.put(scope_of(kind, run))
    assert made["cursor"] == ""
    for old in (cursor, committed):
        await refused("invalid_cursor", consumer.commit(old), consumer.name)
        await refused("invalid_cursor", consumer.read(old))
    assert await consumer.keys(run) == [run.started_key, "1"]
    assert await consumer.listed() == made


async def test_a_deleted_consumer_is_gone_and_its_name_free(scene: Scene) -> None:
    consumer, run = Consumer(scene), await scene.run()
    await consumer.put({"run": run.run_id}, types=["note"])
    await scene.do(run.append("note/1", "{}", "note"))
    cursor = (await consumer.read())[0][0]
    assert await consumer.delete() == {}
    assert await consumer.listed() is None
    await refused("consumer_not_found", consumer.read(), consumer.name)
    await refused("consumer_not_found", consumer.commit(cursor), consumer.name)
    # Deleting again is a retry.
    assert await consumer.delete() == {}
    await consumer.put("all", **{"from": "now"})
    assert (await consumer.listed() or {})["scope"] == "all"


async def test_a_consumer_that_never_was_is_not_found(scene: Scene) -> None:
    consumer, other = Consumer(scene), Consumer(scene)
    await other.put()
    for asked in (consumer.delete(), consumer.commit("x"), consumer.read()):
        await refused("consumer_not_found", asked, consumer.name)
    assert await consumer.listed() is None


async def test_a_scope_that_is_not_there_is_refused(scene: Scene) -> None:
    consumer = Consumer(scene)
    await refused("session_not_found", consumer.put({"session": scene.new_session()}))
    await refused("run_not_found", consumer.put({"run": scene.new_id("r")}))
    await refused("session_purged", consumer.put({"session": await scene.session("purged")}))
    await refused("run_not_found", consumer.put({"run": (await scene.purged_run()).run_id}))
    assert await consumer.listed() is None


async def test_a_purge_ends_what_is_read_and_leaves_the_consumer(scene: Scene) -> None:
    run = await scene.run(status="completed")
    consumer, wide = Consumer(scene), Consumer(scene)
    made = await consumer.put({"session": run.session_id})
    await wide.put()
    await scene.do(builders.end_session(run.session_id))
    await scene.do(builders.purge_session(run.session_id))
    await refused("session_purged", consumer.read())
    assert await consumer.put({"session": run.session_id}) == made
    assert await wide.keys(run) == []
    assert await consumer.delete() == {}


@pytest.mark.parametrize("name", [".", "..", "a\nb", "x" * 513])
async def test_names_follow_the_rules_of_ids(scene: Scene, name: str) -> None:
    for asked in (Consumer(scene, name).put(), Consumer(scene, name).commit("x"), Consumer(scene, name).delete()):
        if not (isinstance(scene.client, HttpClient) and name in (".", "..")):
            await refused("invalid_command", asked)
        else:
            asked.close()


@pytest.mark.parametrize("name", ["a/b", "é ü", "100%", "x" * 500, "stream"])
async def test_names_are_percent_encoded_in_paths(scene: Scene, name: str) -> None:
    consumer = Consumer(scene, f"{name}{scene.new_id()[:11]}")
    assert (await consumer.put())["name"] == consumer.name
    assert (await consumer.listed() or {})["name"] == consumer.name
    await consumer.read()
    await consumer.delete()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"scope": None},
        {"scope": "every"},
        {"scope": {}},
        {"scope": {"session": ""}},
        {"scope": {"session": 1}},
        {"scope": {"run": "a\nb"}},
        {"scope": {"run": "r", "session": "s"}},
        {"scope": {"agent": "a"}},
        {"scope": ["all"]},
        {**ALL, "types": "note"},
        {**ALL, "types": ["a,b"]},
        {**ALL, "types": [""]},
        {**ALL, "types": [1]},
        {**ALL, "types": ["run_stream_end"]},
        {**ALL, "types": [str(number) for number in range(65)]},
        {**ALL, "from": "end"},
        {**ALL, "from": 1},
        {**ALL, "start": "now"},
    ],
)
async def test_a_definition_of_another_form_is_refused(scene: Scene, body: Json) -> None:
    consumer = Consumer(scene)
    await refused("invalid_command", scene.client.send("PUT", consumer.path, body))
    assert await consumer.listed() is None


@pytest.mark.parametrize("body", [{}, {"cursor": ""}, {"cursor": None}, {"cursor": 1}, {"cursor": "x", "more": 1}])
async def test_a_commit_of_another_form_is_refused(scene: Scene, body: Json) -> None:
    consumer = Consumer(scene)
    await consumer.put()
    await refused("invalid_command", scene.client.send("POST", f"{consumer.path}/commit", body))


async def test_a_consumer_is_no_record_of_what_it_reads(scene: Scene) -> None:
    run = await scene.run()
    before = await scene.everything()
    for kind in ("all", "session", "run"):
        consumer = Consumer(scene)
        await consumer.put(scope_of(kind, run))
        await consumer.commit((await consumer.read())[-1][0])
        await consumer.delete()
    await scene.same(before)


async def test_while_nothing_can_be_written_a_commit_is_unavailable_and_repeated(
    clogged: Cloggable, title: str
) -> None:
    scene = Scene(clogged.client, title)
    run = await scene.run()
    consumer, fresh = Consumer(scene), Consumer(scene)
    await consumer.put({"run": run.run_id})
    cursor = (await consumer.read())[0][0]
    await clogged.clog()
    for asked in (consumer.commit(cursor), fresh.put({"run": run.run_id}), consumer.delete()):
        await refused("unavailable", asked)
    await clogged.unclog()
    await consumer.put({"run": run.run_id})
    assert await consumer.commit(cursor) == await consumer.commit(cursor)
    assert await consumer.keys(run) == []
    assert await fresh.put({"run": run.run_id}) == await fresh.put({"run": run.run_id})
