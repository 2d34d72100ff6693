"""Readers that are slow or do not read at all: what they cost, when they are dropped, and how they go on."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.store import Store
from service.events import StreamTimes
from tests.contract.builders import Run
from tests.contract.scene import Scene
from tests.service.served import Served, served
from tests.streams.sse import EVERYTHING, Broken, Got, Reading, read_all, reading, run_stream, session_stream

SHORT = StreamTimes(heartbeat_seconds=0.05, stall_seconds=0.2)
ROOT = Path(__file__).parents[2]
MIB = 1024 * 1024


async def fill(scene: Scene, run: Run, name: str, mebibytes: int) -> None:
    """Append so many MiB to a run, in records of 64 KiB."""
    payload = json.dumps("z" * (64 * 1024 - 2))
    for start in range(0, 16 * mebibytes, 16):
        await scene.do_all([run.append(f"{name}/{number}", payload) for number in range(start, start + 16)])


async def dropped(service: Served) -> float:
    """How many readers were dropped."""
    text = (await service.http.get("/metrics")).text
    return float(text.split("\nrunstore_stream_readers_dropped_total ")[1].split("\n")[0])


async def read_until_broken(stream: Reading) -> list[Got]:
    """What comes until the connection ends in the middle."""
    found: list[Got] = []
    try:
        while (got := await stream.next()) is not None:
            found.append(got)
    except Broken:
        return found
    raise AssertionError("the stream ended properly")


@pytest.mark.parametrize("subject", ["run", "session", "everything"])
async def test_a_reader_that_does_not_read_is_dropped_and_goes_on_from_its_cursor(
    store: Store, scene: Scene, subject: str
) -> None:
    async with served(store, stream_times=SHORT) as service:
        run = await scene.run()
        path = {"run": run_stream(run.run_id), "session": session_stream(run.session_id), "everything": EVERYTHING}
        async with reading(service, path[subject], receive_bytes=4096) as stream:
            first = await stream.some(1)
            await fill(scene, run, "1", 12)
            async with asyncio.timeout(20):
                while await dropped(service) == 0:
                    pass
            found = first + await read_until_broken(stream)
        assert len(found) < 1 + 12 * 16
        assert not any(partition.watchers for partition in store.partitions)
        found += await read_all(service, f"{path[subject]}?follow=false", last=found[-1].cursor)
        assert [each.data for each in found] == [
            each.data for each in await read_all(service, f"{path[subject]}?follow=false")
        ]


async def test_a_reader_that_does_not_read_little_is_not_dropped(store: Store, scene: Scene) -> None:
    async with served(store, stream_times=SHORT) as service:
        run = await scene.run()
        async with reading(service, run_stream(run.run_id), receive_bytes=4096) as stream:
            await fill(scene, run, "1", 3)
            await asyncio.sleep(5 * SHORT.stall_seconds)
            got = await stream.some(1 + 3 * 16)
            assert got[-1].key == "1/47"


async def test_a_slow_reader_is_not_dropped(store: Store, scene: Scene) -> None:
    """It takes a little now and then, of a history many times the bound."""
    async with served(store, stream_times=StreamTimes(heartbeat_seconds=0.05, stall_seconds=1.0)) as service:
        run = await scene.run()
        await fill(scene, run, "1", 12)
        await scene.do(run.end())
        async with reading(service, run_stream(run.run_id), receive_bytes=64 * 1024) as stream:
            found: list[Got] = []
            while (got := await stream.next()) is not None:
                found.append(got)
                await asyncio.sleep(0.01)
        assert len(found) == 12 * 16 + 3


async def test_an_idle_stream_is_kept_open_by_comments(store: Store, scene: Scene) -> None:
    async with served(store, stream_times=SHORT) as service:
        run = await scene.run()
        paths = (run_stream(run.run_id), session_stream(run.session_id), EVERYTHING)
        for number, path in enumerate(paths, 1):
            async with reading(service, path) as stream:
                await stream.some(number)
                await stream.quiet(0.3)
                assert stream.comments >= 2
                await scene.do(run.append(f"after/{number}"))
                assert [each.key for each in await stream.some(1)] == [f"after/{number}"]


async def test_stopping_ends_streams_with_all_that_was_acknowledged(store: Store, scene: Scene) -> None:
    run = await scene.run()
    async with served(store, stream_times=StreamTimes(30.0, 30.0)) as service:
        async with (
            reading(service, run_stream(run.run_id)) as one,
            reading(service, EVERYTHING) as everything,
            reading(service, EVERYTHING + "?types=nothing") as idle,
        ):
            await one.some(1)
            await everything.some(1)
            await scene.do_all([run.append(f"{number}") for number in range(50)])
            began = asyncio.get_running_loop().time()
            service.stop.set()
            for stream in (one, everything):
                assert [each.key for each in await stream.all()] == [f"{number}" for number in range(50)]
            assert await idle.all() == []
            assert asyncio.get_running_loop().time() - began < 2.0
        await service.serving


@pytest.mark.timeout(180)
def test_a_hundred_readers_that_never_read_cost_little_and_hinder_nobody(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.streams.stalled", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["dropped"] == 100
    assert told["grown_bytes"] < 64 * MIB
    assert told["slowest_seconds"] < 1.0
