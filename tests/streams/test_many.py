"""Many writers and many readers at once: every reader gets exactly the log."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random

import pytest

from tests.contract.builders import Run
from tests.contract.scene import Scene
from tests.service.served import Served
from tests.streams.sse import EVERYTHING, Reading, readings, run_stream, session_stream

WRITERS = 64
SUBSCRIBERS = 20
RECORDS = 12


async def digest(stream: Reading, count: int) -> dict[str, str]:
    """The digest of what comes for each partition, since there is no order between them."""
    found: dict[str, list[bytes]] = {}
    for got in await stream.some(count):
        partition = got.json()["id"].split("-")[0]
        found.setdefault(partition, []).append(got.data)
    return {partition: hashlib.sha256(b"\n".join(events)).hexdigest() for partition, events in found.items()}


async def log_digest(service: Served, paths: list[str]) -> dict[str, str]:
    """The same of the log: the records of these pages, in the order of their partition."""
    records: dict[str, dict[str, bytes]] = {}
    for path in paths:
        page = (await service.http.get(path, params={"limit": "1000"})).json()
        assert page["next_cursor"] == ""
        for record in page["records"]:
            text = json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()
            records.setdefault(record["id"].split("-")[0], {})[record["id"]] = text
    return {
        partition: hashlib.sha256(b"\n".join(found[name] for name in sorted(found))).hexdigest()
        for partition, found in records.items()
    }


@pytest.mark.parametrize("subject", ["run", "session", "everything"])
async def test_what_each_subscriber_gets_is_the_log(scene: Scene, service: Served, subject: str) -> None:
    source = random.Random(f"many {subject}")
    shared = await scene.run()
    runs = [shared if subject == "run" else await scene.run(shared.session_id) for _ in range(WRITERS)]
    if subject == "everything":
        runs = [await scene.run() if index % 2 else await scene.one_shot() for index in range(WRITERS)]
    path = {"run": run_stream(shared.run_id), "session": session_stream(shared.session_id), "everything": EVERYTHING}
    before = {"run": 1, "session": 1 + WRITERS, "everything": 1 + 2 * WRITERS}[subject]
    total = before + WRITERS * RECORDS

    async def write(number: int, run: Run) -> None:
        for each in range(RECORDS):
            await asyncio.sleep(source.random() * 0.02)
            await scene.do(run.append(f"{number}/{each}", json.dumps("w" * source.randrange(400))))

    async with readings(service, path[subject], SUBSCRIBERS) as streams:
        reads = [asyncio.create_task(digest(stream, total)) for stream in streams]
        await asyncio.gather(*(write(number, run) for number, run in enumerate(runs)))
        digests = await asyncio.gather(*reads)
        for stream in streams:
            await stream.quiet(0.01)
    runs_pages = [f"/v1/runs/{run_id}/records" for run_id in scene.runs]
    pages = {
        "run": [f"/v1/runs/{shared.run_id}/records"],
        "session": [f"/v1/sessions/{shared.session_id}/records"],
        "everything": runs_pages,
    }
    expected = await log_digest(service, pages[subject])
    assert all(each == expected for each in digests)
