"""Stores to test with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from engine.keys.store import RocksKeyStore
from tests.keys.support import MASTER, HookedEnvironment

OpenRocks = Callable[[], Awaitable[RocksKeyStore]]


@pytest.fixture
def environment() -> HookedEnvironment:
    return HookedEnvironment()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest_asyncio.fixture
async def open_rocks(folder: Path, environment: HookedEnvironment) -> AsyncIterator[OpenRocks]:
    """Opens the key store of `folder`, again and again if need be; closes what a test left open."""
    opened: list[RocksKeyStore] = []

    async def open_one() -> RocksKeyStore:
        opened.append(await RocksKeyStore.open(folder, MASTER, environment))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


@pytest_asyncio.fixture
async def rocks(open_rocks: OpenRocks) -> RocksKeyStore:
    return await open_rocks()
