"""A store's log in real topics of a test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.scene import Scene, scene


@pytest.fixture
def own(bootstrap_servers: str, tmp_path: Path) -> Scene:
    """For tests that change the topics."""
    return scene(bootstrap_servers, tmp_path)
