"""A store whose brokers are gone: callers are told within five seconds; once they are back, it works by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from engine.store import Store
from schemas.refusals import Refused
from service import methods, views
from tests.contract import builders
from tests.contract.builders import Command, Run
from tests.contract.makers import on_kafka
from tests.kafka.brokers import Brokers
from tests.kafka.topics import own_topics

answer_seconds_max = 5.0
back_seconds_max = 2.0
gone_seconds = 6.0


@pytest_asyncio.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with Brokers(tmp_path / "kafka") as own:
        yield own


class Callers:
    """Callers of every kind of method, all at once, again and again."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.sessions: list[str] = []
        self.longest = 0.0
        self._number = 0

    async def prepare(self) -> None:
        """Have a session and a run in each partition to ask for."""
        for number in range(16):
            session_id = f"there-{number}"
            run = Run(f"{session_id}-run", session_id)
            for command in (builders.create_session(session_id), run.start()):
                await self.call(command)
            self.sessions.append(session_id)

    async def call(self, command: Command) -> str:
        """Do a command; the code it was refused with, or nothing."""
        return await self._timed(lambda: methods.call(self.store, command.method, command.args))

    async def everybody(self) -> list[str]:
        """Have each kind of caller call once; their codes."""
        self._number += 1
        changes = [Run(f"{session_id}-run", session_id).append(f"note-{self._number}") for session_id in self.sessions]
        starts = [
            command
            for number in range(4)
            for command in (
                builders.create_session(f"new-{self._number}-{number}"),
                # Their IDs are reserved in other partitions than they live in.
                Run(f"run-{self._number}-{number}", self.sessions[number]).start(),
            )
        ]
        reads = [Command("load_run", {"run_id": f"{self.sessions[0]}-run"}), Command("load_run", {"run_id": "none"})]
        return await asyncio.gather(
            *map(self.call, [*changes, *starts, *reads]),
            self._timed(lambda: views.get(self.store, "/v1/sessions", {"limit": "10"})),
        )

    async def _timed(self, ask: Callable[[], Awaitable[object]]) -> str:
        began = time.monotonic()
        try:
            await ask()
        except Refused as refused:
            return refused.code.value
        finally:
            self.longest = max(self.longest, time.monotonic() - began)
        return ""


@pytest.mark.parametrize("gone", ["killed", "paused"])
async def test_callers_are_told_in_time_and_served_again(brokers: Brokers, gone: str, tmp_path: Path) -> None:
    async with on_kafka(tmp_path / "store", own_topics(brokers.bootstrap)) as store:
        callers = Callers(store)
        await callers.prepare()
        assert set(await callers.everybody()) == {"", "run_not_found"}

        running = asyncio.create_task(callers.everybody())
        await (brokers.kill() if gone == "killed" else brokers.pause())
        assert set(await running) <= {"", "run_not_found", "unavailable"}
        began = time.monotonic()
        while time.monotonic() < began + gone_seconds:
            assert set(await callers.everybody()) == {"unavailable"}
            await asyncio.sleep(0.1)
        assert callers.longest < answer_seconds_max
        assert store.ready(), "that the brokers are gone stops no partition"
        told = (await store.status()).partitions
        assert all(each.last_error for each in told)
        assert {each.log_start for each in told} == {0}, "that would say that what was before is gone"

        await (brokers.start() if gone == "killed" else brokers.resume())
        began = time.monotonic()
        while set(await callers.everybody()) != {"", "run_not_found"}:
            assert time.monotonic() < began + back_seconds_max
        assert callers.longest < answer_seconds_max
        # What was wrong was told for ever after.
        assert [each.last_error for each in (await store.status()).partitions] == [""] * builders.PARTITIONS
        assert all(verified.equal for verified in await store.verify())
