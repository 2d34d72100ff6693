"""What tests of any folder can ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.kafka.brokers import shared_broker


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real broker that all tests share, over all of xdist's workers; for topics of a test's own name.

    Skips where no broker can run. A test that harms brokers starts its own: `tests.kafka.brokers.Brokers`.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with shared_broker(folder / "shared-kafka") as address:
        yield address
