"""What every test of the suite stands on: a store of each kind, and a scene in it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.contract.clients import Client, Cloggable, HttpClient
from tests.contract.makers import CLOGGED, MAKERS, Place
from tests.contract.scene import Scene


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=list(MAKERS))
async def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A store that all tests share."""
    async with MAKERS[request.param](Place(tmp_path_factory.mktemp(request.param), request)) as client:
        yield client


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpClient]:
    """A store behind HTTP, for what only HTTP can ask."""
    async with MAKERS["http"](Place(tmp_path_factory.mktemp("server"), request)) as client:
        assert isinstance(client, HttpClient)
        yield client


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=list(CLOGGED))
async def cloggable(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Cloggable]:
    """A store that can be made unable to write."""
    async with CLOGGED[request.param](Place(tmp_path_factory.mktemp(request.param), request)) as found:
        yield found


@pytest.fixture
def title(request: pytest.FixtureRequest) -> str:
    """A short name of the test that IDs can hold."""
    return re.sub(r"[^a-z0-9]+", "-", str(request.node.name).lower())[:40].strip("-")


@pytest.fixture
def scene(store: Client, title: str) -> Scene:
    """The shared store, and IDs of this test's own."""
    return Scene(store, title)


@pytest_asyncio.fixture(loop_scope="session", params=list(MAKERS))
async def empty_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    """A store of its own, with nothing in it."""
    async with MAKERS[request.param](Place(tmp_path, request)) as client:
        yield client


@pytest.fixture
def empty_scene(empty_store: Client, title: str) -> Scene:
    """A store with nothing in it."""
    return Scene(empty_store, title)


@pytest.fixture
def http_scene(server: HttpClient, title: str) -> Scene:
    """The store behind HTTP, and IDs of this test's own."""
    return Scene(server, title)


@pytest_asyncio.fixture(loop_scope="session")
async def clogged(cloggable: Cloggable) -> AsyncIterator[Cloggable]:
    """A store that can be made unable to write; able again after the test."""
    yield cloggable
    await cloggable.unclog()
