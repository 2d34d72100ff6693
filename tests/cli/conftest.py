"""What commands that run in the tests' own process find in their environment: no settings of whoever runs the tests."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("RUNSTORE_") or name in {"COLUMNS", "NO_COLOR"}:
            monkeypatch.delenv(name)
