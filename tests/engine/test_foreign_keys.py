"""Keys that another process has made: learnt before anything is opened that was sealed under them."""

from __future__ import annotations

import asyncio

from engine.keys import KeyStoreError, MemoryKeyStore
from engine.logs.simulated import ReadFault
from tests.contract import builders
from tests.contract.builders import Command, Run
from tests.engine.scene import Cluster, Process
from tests.engine.test_partition import Scripted
from tests.simulation.virtual_time import run_virtual

RUN = Run("run", "session", labels={"secret": "label"})
LOAD = Command("load_run", {"run_id": RUN.run_id})


class FarKeys(MemoryKeyStore):
    """Keys kept elsewhere: what others put is known here only once it was asked for."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.environment, cluster.keys)
        self._known = set(self._keys)
        self.reachable = True
        self.refreshed = 0

    async def put(self, owner: str, key_id: bytes, key: bytes) -> None:
        await super().put(owner, key_id, key)
        self._known.add(key_id)

    def get(self, key_id: bytes) -> bytes | None:
        return super().get(key_id) if key_id in self._known else None

    async def refresh(self) -> None:
        if not self.reachable:
            raise KeyStoreError(None, "cannot be reached")
        self.refreshed += 1
        self._known = set(self._keys)


async def write(process: Process) -> None:
    await process.do(builders.create_session(RUN.session_id))
    await process.do(RUN.start())


async def test_keys_of_what_is_read_in_a_gap_are_learnt_before_it_is_opened() -> None:
    cluster = Cluster()
    writer, keys = await cluster.start(), FarKeys(cluster)
    reader = await cluster.start(keys=keys)
    await write(writer)
    assert (await reader.do(LOAD))["run"]["labels"] == {"secret": "label"}


async def test_keys_of_what_is_found_at_opening_are_learnt_before_it_is_opened() -> None:
    cluster = Cluster()
    keys = FarKeys(cluster)
    await write(await cluster.start())
    reader = await cluster.start(keys=keys)
    assert (await reader.do(LOAD))["run"]["labels"] == {"secret": "label"}


async def test_until_they_are_learnt_nothing_is_answered() -> None:
    cluster = Cluster()
    writer, keys = await cluster.start(), FarKeys(cluster)
    reader = await cluster.start(keys=keys)
    await write(writer)
    keys.reachable = False
    for _ in range(3):
        assert await reader.code(LOAD) == "unavailable"
        assert await reader.code(RUN.append()) == "unavailable"
    keys.reachable = True
    assert (await reader.do(LOAD))["run"]["labels"] == {"secret": "label"}
    assert (await reader.do(RUN.append()))["inserted"]


async def test_what_a_process_writes_itself_needs_no_question() -> None:
    cluster = Cluster()
    keys = FarKeys(cluster)
    process = await cluster.start(keys=keys)
    before = keys.refreshed
    await write(process)
    for number in range(5):
        await process.do(RUN.append(f"note-{number}"))
        await process.do(LOAD)
    assert keys.refreshed == before


def test_a_lost_batch_is_not_asked_about_without_pause_while_they_cannot_be_learnt() -> None:
    # The loop asked again at once, and nothing else of the process had its turn.
    class Asked(Scripted):
        ends = 0

        def on_end(self, partition: int) -> ReadFault:
            self.ends += 1
            assert self.ends < 1000
            return super().on_end(partition)

    async def main() -> None:
        cluster, faults = Cluster(), Asked()
        writer, keys = await cluster.start(), FarKeys(cluster)
        other = await cluster.start(faults, keys=keys)
        await write(writer)
        keys.reachable = False
        # It lands behind what the writer wrote, and so is void, and what it was decided without is read.
        assert await other.code(builders.create_session("other")) == "unavailable"
        before = faults.ends
        await asyncio.sleep(10)
        assert 0 < faults.ends - before < 200
        keys.reachable = True
        await asyncio.sleep(3)
        assert (await other.do(LOAD))["run"]["labels"] == {"secret": "label"}
        await other.do(builders.create_session("other"))

    run_virtual(main())
