"""Routing while others change what is looked up: each answer is right for one moment of its call."""

from __future__ import annotations

from typing import Any

import pytest

from engine.keys import KeyStoreError, MemoryKeyStore
from tests.contract.builders import Run, create_session, place
from tests.engine.scene import Cluster
from tests.simulation.virtual_time import run_virtual


def test_a_parent_that_starts_while_it_is_looked_up_is_not_in_another_session(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first look found no parent, so the child's own ID named its home; the second found the parent in another
    # partition, and the child was refused for good as `run_session_mismatch`.
    parent = Run("parent")
    child = next(Run(f"c{n}", parent="parent") for n in range(99) if place(f"c{n}", 4) != place("parent", 4))

    async def story() -> None:
        cluster = Cluster(partitions=4)
        one, two = await cluster.start(), await cluster.start()
        router = one.store._router
        find = router._find
        looked: list[str] = []

        async def look(run_id: str) -> Any:
            found = await find(run_id)
            if not looked:
                looked.append(run_id)
                await two.do(parent.start())
            return found

        monkeypatch.setattr(router, "_find", look)
        assert await one.code(child.start()) == "run_not_found"
        assert looked == ["parent"]
        await one.do(child.start())

    run_virtual(story())


def test_a_key_store_that_has_failed_makes_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    # The error went past the store as one that nobody had foreseen.
    def failed(_store: MemoryKeyStore, _owner: str) -> tuple[bytes, ...]:
        raise KeyStoreError(None, "stopped after a failed sync")

    async def story() -> None:
        process = await Cluster().start()
        with monkeypatch.context() as patch:
            patch.setattr(MemoryKeyStore, "keys_of", failed)
            assert await process.code(create_session("s1")) == "unavailable"
        await process.do(create_session("s1"))

    run_virtual(story())
