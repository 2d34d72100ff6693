"""Streams over real connections: what pages give, byte for byte, history first and then live, from any cursor on."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import quote

import pytest

from engine.store import Store
from schemas.values import Page, Record
from service import render
from service.json_text import encoded
from tests.contract import builders
from tests.contract.builders import PARTITIONS, Run
from tests.contract.scene import Scene
from tests.service.served import Served
from tests.streams.sse import EVERYTHING, Got, read_all, reading, readings, run_stream, session_stream

HARD = '{"a": 1.10,\n "b":123456789012345678901234567890,\r\n"s":"\\ud800\\u0000 \u2028é",  "a":-0.0}'


async def story(scene: Scene) -> Run:
    """A run with hard payloads in a session with another one; it has ended."""
    run = await scene.run()
    other = await scene.run(run.session_id)
    child = await scene.child(run)
    for number in range(10):
        await scene.do(run.append(f"hard/{number}", HARD, f"kind {number % 3}"))
        await scene.do((other, child)[number % 2].append(f"plain/{number}"))
    await scene.do(child.end("failed"))
    await scene.do(run.end())
    return run


def records(got: list[Got]) -> list[bytes]:
    return [each.data for each in got if each.cursor]


async def page_bytes(service: Served, path: str, **query: str) -> list[bytes]:
    """Each record of a page as its very bytes in the answer."""
    answer = await service.http.get(path, params={"limit": "1000", **query})
    assert answer.status_code == 200
    text = answer.content.decode().removeprefix('{"records":[')
    found: list[bytes] = []
    while text.startswith("{"):
        _, end = json.JSONDecoder().raw_decode(text)
        found.append(text[:end].encode())
        text = text[end:].removeprefix(",")
    assert text == '],"next_cursor":""}'
    return found


@pytest.mark.parametrize("payload", ["", "json"])
async def test_a_stream_gives_what_pages_give_byte_for_byte(scene: Scene, service: Served, payload: str) -> None:
    run = await story(scene)
    form = {"payload": payload} if payload else {}
    query = f"?payload={payload}" if payload else "?"
    run_path, session_path = run_stream(run.run_id), session_stream(run.session_id)
    got = await read_all(service, run_path + query)
    assert records(got) == await page_bytes(service, run_path.removesuffix("stream") + "records", **form)
    assert all(each.event == each.json()["type"] for each in got[:-1])
    session = await read_all(service, f"{session_path}{query}&follow=false")
    assert records(session) == await page_bytes(service, session_path.removesuffix("stream") + "records", **form)
    everything = await read_all(service, f"{EVERYTHING}{query}&follow=false")
    assert records(everything) == records(session), "one session lies in one partition"


async def test_cursors_are_those_of_pages(scene: Scene, service: Served) -> None:
    run = await story(scene)
    for path in (run_stream(run.run_id), session_stream(run.session_id)):
        pages = path.removesuffix("stream") + "records"
        got = await read_all(service, path + "?follow=false")
        expected = records(got)
        for index, each in enumerate(got):
            if each.cursor:
                rest = await page_bytes(service, pages, cursor=each.cursor)
                assert rest == expected[index + 1 :]
        first = (await service.http.get(pages, params={"limit": "3"})).json()["next_cursor"]
        assert first == got[2].cursor
        assert records(await read_all(service, f"{path}?follow=false&cursor={first}")) == expected[3:]


@pytest.mark.parametrize("subject", ["run", "session", "everything"])
async def test_a_connection_cut_after_every_single_event_loses_and_doubles_nothing(
    scene: Scene, service: Served, subject: str
) -> None:
    run = await story(scene)
    await scene.one_shot("completed")
    await story(scene)
    path = {"run": run_stream(run.run_id), "session": session_stream(run.session_id), "everything": EVERYTHING}[subject]
    whole = await read_all(service, f"{path}?follow=false")
    found: list[bytes] = []
    last = ""
    while True:
        async with reading(service, f"{path}?follow=false", last=last) as stream:
            got = await stream.next()
        if got is None or not got.cursor:
            break
        found.append(got.data)
        last = got.cursor
    if subject == "everything":
        assert len(found) == len(records(whole))
        assert by_run(found) == by_run(records(whole))
    else:
        assert found == records(whole)


def by_run(found: list[bytes]) -> dict[str, list[str]]:
    """The event keys of each run in the order they came."""
    runs: dict[str, list[str]] = {}
    for each in found:
        record = json.loads(each)
        runs.setdefault(record["run_id"], []).append(record["event_key"])
    return runs


async def test_everything_is_in_the_stream_of_everything_and_only_records(
    store: Store, scene: Scene, service: Served
) -> None:
    for partition in range(PARTITIONS):
        session_id = await scene.session(partition=partition)
        await scene.run(session_id, partition=(partition + 1) % PARTITIONS)  # Another partition reserves its ID.
        await scene.one_shot("suspended", partition=partition)
    expected: list[str] = []
    for run_id in scene.runs:
        page = await store.list_run_records(run_id, "", 1000)
        assert isinstance(page, Page)
        expected += [record.id for record in page.records]
    got = await read_all(service, f"{EVERYTHING}?follow=false")
    assert sorted(each.json()["id"] for each in got) == sorted(expected)
    async with reading(service, EVERYTHING, last=got[-1].cursor) as stream:
        await scene.do(builders.create_session("silent"))
        await stream.quiet()
        shot = await scene.one_shot()
        (live,) = await stream.some(1)
        assert live.json()["run_id"] == shot.run_id


async def test_history_and_then_live(scene: Scene, service: Served) -> None:
    run = await scene.run()
    await scene.do(run.append("before"))
    async with (
        reading(service, run_stream(run.run_id)) as one,
        reading(service, session_stream(run.session_id)) as session,
        reading(service, EVERYTHING) as everything,
    ):
        for stream in (one, session, everything):
            assert [each.key for each in await stream.some(2)] == [run.started_key, "before"]
        for number in range(20):
            await scene.do(run.append(f"live/{number}"))
            found = [(await stream.some(1))[0] for stream in (one, session, everything)]
            assert [each.key for each in found] == [f"live/{number}"] * 3
            assert len({each.data for each in found}) == 1
        other = await scene.run(run.session_id)
        assert [(await stream.some(1))[0].json()["run_id"] for stream in (session, everything)] == [other.run_id] * 2
        await one.quiet()


async def test_types_filter_and_leave_cursors_as_they_are(scene: Scene, service: Served) -> None:
    run = await story(scene)
    for path in (run_stream(run.run_id), session_stream(run.session_id), EVERYTHING):
        whole = [each for each in await read_all(service, f"{path}?follow=false") if each.cursor]
        some = await read_all(service, f"{path}?follow=false&types=kind%200,run_started")
        wanted = {"kind 0", "run_started"}
        assert [each.data for each in some if each.cursor] == [each.data for each in whole if each.event in wanted]
        if path != EVERYTHING:
            assert {each.cursor for each in some} <= {each.cursor for each in whole} | {""}
        after = await read_all(service, f"{path}?follow=false", last=some[2].cursor)
        index = next(index for index, each in enumerate(whole) if each.data == some[2].data)
        assert records(after) == [each.data for each in whole[index + 1 :]]


@pytest.mark.parametrize("status", ["completed", "failed", "canceled", "suspended"])
async def test_a_runs_stream_ends_with_the_run(scene: Scene, service: Served, status: str) -> None:
    run = await scene.run()
    async with (
        reading(service, run_stream(run.run_id)) as all_types,
        reading(service, run_stream(run.run_id) + "?types=nothing") as filtered,
    ):
        await all_types.some(1)
        await filtered.quiet()
        for command in run.become(status):
            await scene.do(command)
        last, end = await all_types.some(2)
        assert last.event in ("run_completed", "run_suspended")
        assert (end.cursor, end.event, end.json()) == ("", "run_stream_end", {"run_id": run.run_id, "status": status})
        assert await all_types.next() is None
        assert [each.event for each in await filtered.all()] == ["run_stream_end"]
    (again,) = await read_all(service, run_stream(run.run_id), last=last.cursor)
    assert again == end
    closed = await read_all(service, run_stream(run.run_id) + "?follow=false")
    assert [each.event for each in closed][-2:] == [last.event, "run_stream_end"]


async def test_a_run_stopped_at_its_start_ends_at_once(scene: Scene, service: Served) -> None:
    run = await scene.run(await scene.session("ended"))
    got = await read_all(service, run_stream(run.run_id))
    assert [each.event for each in got] == ["run_started", "run_completed", "run_stream_end"]


async def test_without_following_a_stream_ends_where_it_found_the_end(scene: Scene, service: Served) -> None:
    run = await scene.run()
    await scene.do_all([run.append(f"{number}") for number in range(500)])
    for path in (run_stream(run.run_id), session_stream(run.session_id), EVERYTHING):
        async with reading(service, f"{path}?follow=false") as stream:
            first = await stream.some(1)
            await scene.do(run.append(f"later {path}"))
            rest = await stream.all()
            assert len(first + rest) >= 501
            assert f"later {path}" not in {each.key for each in rest}


async def test_a_purge_ends_the_streams_of_what_it_purges_and_no_other(scene: Scene, service: Served) -> None:
    run = await scene.run()
    other = await scene.run()
    await scene.do(run.end())
    async with (
        reading(service, session_stream(run.session_id)) as session,
        reading(service, EVERYTHING) as everything,
        reading(service, run_stream(other.run_id)) as another,
    ):
        await session.some(2)
        await everything.some(3)
        await another.some(1)
        await scene.do(builders.end_session(run.session_id))
        await scene.do(builders.purge_session(run.session_id))
        end = await session.next()
        assert end is not None
        expected = ("", "session_purged", {"session_id": run.session_id})
        assert (end.cursor, end.event, end.json()) == expected
        assert await session.next() is None
        await scene.do(other.append("after"))
        for stream in (everything, another):
            assert [each.key for each in await stream.some(1)] == ["after"]
    got = await read_all(service, f"{EVERYTHING}?follow=false")
    assert {each.json()["run_id"] for each in got} == {other.run_id}
    for path, status, code in (
        (run_stream(run.run_id), 404, "run_not_found"),
        (session_stream(run.session_id), 410, "session_purged"),
    ):
        async with reading(service, path) as refused:
            assert (refused.status, (await refused.problem())["code"]) == (status, code)


async def test_a_purge_reaches_a_reader_in_the_middle_of_history(store: Store, scene: Scene, service: Served) -> None:
    """It is told where it stands, and gets nothing of what the purge removed, though others had just read it."""
    run = await scene.run()
    big = json.dumps("x" * 50_000)
    for start in range(0, 200, 20):
        await scene.do_all([run.append(f"{number}", big) for number in range(start, start + 20)])
    await scene.do(run.end())
    await scene.do(builders.end_session(run.session_id))
    async with (
        reading(service, run_stream(run.run_id), receive_bytes=4096) as stream,
        reading(service, f"{EVERYTHING}?follow=true", receive_bytes=4096) as wide,
    ):
        await stream.some(2)
        await wide.some(2)
        assert store.streams.cache.held_bytes > 0
        await scene.do(builders.purge_session(run.session_id))
        assert store.streams.cache.held_bytes == 0
        after = await scene.one_shot("completed")
        got = await stream.all()
        assert got[-1].event == "session_purged"
        assert got[-1].json() == {"run_id": run.run_id}
        assert len(got) < 200
        told = 0
        while (each := await wide.next()) is not None and each.json()["run_id"] != after.run_id:
            told += 1
        assert told < 200


async def test_what_cannot_be_streamed_is_refused(scene: Scene, service: Served) -> None:
    run, other = await scene.run(), await scene.run()
    cursor = (await read_all(service, run_stream(run.run_id) + "?follow=false"))[0].cursor
    path, all_cursor = run_stream(run.run_id), (await read_all(service, EVERYTHING + "?follow=false"))[0].cursor
    for where, status, code in (
        (run_stream("nobody"), 404, "run_not_found"),
        (session_stream("nobody"), 404, "session_not_found"),
        (f"{path}?cursor={cursor}x", 422, "invalid_cursor"),
        (f"{run_stream(other.run_id)}?cursor={cursor}", 422, "invalid_cursor"),
        (f"{session_stream(run.session_id)}?cursor={cursor}", 422, "invalid_cursor"),
        (f"{EVERYTHING}?cursor={cursor}", 422, "invalid_cursor"),
        (f"{path}?cursor={all_cursor}", 422, "invalid_cursor"),
        (f"{path}?follow=maybe", 422, "invalid_command"),
        (f"{path}?types=a,,b", 422, "invalid_command"),
        (f"{path}?payload=text", 422, "invalid_command"),
        (f"{path}?limit=1", 422, "invalid_command"),
    ):
        async with reading(service, where) as stream:
            assert (stream.status, (await stream.problem())["code"]) == (status, code), where
    async with reading(service, f"{path}?cursor={cursor}", last=quote("nonsense é")) as stream:
        assert (stream.status, (await stream.problem())["code"]) == (422, "invalid_cursor")
    async with reading(service, f"{path}?cursor=nonsense", last=cursor) as stream:
        assert stream.status == 200, "the header wins"
    posted = await service.http.post(EVERYTHING)
    assert (posted.status_code, posted.headers["allow"]) == (405, "GET, HEAD")


async def test_the_head_of_a_stream(scene: Scene, service: Served) -> None:
    run = await scene.run()
    async with reading(service, run_stream(run.run_id)) as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        assert stream.headers["cache-control"] == "no-store"
    head = await service.http.head(EVERYTHING)
    assert (head.status_code, head.content) == (200, b"")


async def test_fifty_writers_and_a_follower_that_comes_back_after_each_event(scene: Scene, service: Served) -> None:
    session_id = await scene.session()
    runs = [await scene.run(session_id) for _ in range(50)]

    async def write(run: Run) -> None:
        for number in range(4):
            await scene.do(run.append(f"{number}"))

    async def follow() -> list[bytes]:
        found: list[bytes] = []
        last = ""
        while len(found) < 250:
            async with reading(service, session_stream(session_id), last=last) as stream:
                (got,) = await stream.some(1)
            found.append(got.data)
            last = got.cursor
        return found

    following = asyncio.create_task(follow())
    await asyncio.gather(*(write(run) for run in runs))
    page = await scene.client.get(f"/v1/sessions/{session_id}/records", limit=1000)
    assert [json.loads(each) for each in await following] == page["records"]


async def test_a_reader_that_leaves_is_forgotten(store: Store, scene: Scene, service: Served) -> None:
    run = await scene.run()

    async def readers() -> float:
        metrics = (await service.http.get("/metrics")).text
        return float(metrics.split("\nrunstore_stream_readers ")[1].split("\n")[0])

    async with reading(service, run_stream(run.run_id)) as one, reading(service, EVERYTHING) as other:
        await one.some(1)
        await other.some(1)
        assert await readers() == 2
    async with asyncio.timeout(5):
        while await readers():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
    assert not any(partition.watchers for partition in store.partitions)


async def test_events_are_made_once_for_readers_at_one_place(
    scene: Scene, service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await scene.run()
    made: list[str] = []
    plain = render.record

    def counted(value: Record) -> object:
        made.append(value.content.event_key)
        return plain(value)

    monkeypatch.setattr(render, "record", counted)
    async with readings(service, run_stream(run.run_id), 20) as streams:
        for stream in streams:
            await stream.some(1)
        await scene.do(run.append("new"))
        got = {(await stream.some(1))[0].data for stream in streams}
    assert len(got) == 1
    assert made == [run.started_key, "new"]
    assert encoded(json.loads(got.pop()))
