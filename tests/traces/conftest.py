"""One store of each kind for all replays."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.contract.clients import Client
from tests.contract.makers import MAKERS, Place


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=list(MAKERS))
async def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A store that all replays share."""
    place = Place(tmp_path_factory.mktemp(f"traces-{request.param}"), request)
    async with MAKERS[request.param](place) as client:
        yield client
