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
from tests.contract.makers import InProcess, in_memory, on_disk
from tests.contract.scene import Scene
from tests.service.served import Served, served

TIMES = StreamTimes(heartbeat_seconds=30.0, stall_seconds=30.0)


@pytest_asyncio.fixture(params=["embedded", "shared"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store on the embedded log, and one on a log that others can write to."""
    opened = (
        on_disk(tmp_path)
        if request.param == "embedded"
        else in_memory(SystemEnvironment(""), Faults(), QueueLimits(), exclusive=False)
    )
    async with opened as found:
        yield found


@pytest_asyncio.fixture
async def service(store: Store) -> AsyncIterator[Served]:
    async with served(store, stream_times=TIMES) as found:
        yield found


@pytest.fixture
def scene(store: Store) -> Scene:
    return Scene(InProcess(store), "stream")
