"""Stores that are streamed, each behind a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from engine.environment import SystemEnvironment
from engine.logs.simulated import Faults
from engine.pending import QueueLimits
from engine.store import Store
from service.events import StreamTimes
from tests.contract.makers import InProcess, in_memory, on_disk, on_kafka
from tests.contract.scene import Scene
from tests.kafka.topics import own_topics
from tests.service.served import Served, served

TIMES = StreamTimes(heartbeat_seconds=30.0, stall_seconds=30.0)


@pytest_asyncio.fixture(params=["embedded", "shared", "kafka"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store on the embedded log, one on a log that others can write to, and one on a real broker."""
    if request.param == "kafka":
        opened = on_kafka(tmp_path, own_topics(request.getfixturevalue("bootstrap_servers")))
    elif request.param == "embedded":
        opened = on_disk(tmp_path)
    else:
        opened = in_memory(SystemEnvironment(""), Faults(), QueueLimits(), exclusive=False)
    async with opened as found:
        yield found


@pytest_asyncio.fixture
async def service(store: Store) -> AsyncIterator[Served]:
    async with served(store, stream_times=TIMES) as found:
        yield found


@pytest.fixture
def scene(store: Store) -> Scene:
    return Scene(InProcess(store), "stream")
