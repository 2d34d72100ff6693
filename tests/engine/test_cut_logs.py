"""A log that others write to, cut or written again under an open store: it is noticed, said, and read anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from engine.logs.simulated import Faults, ReadFault
from engine.writer import compare_seconds
from schemas.log_record import decode
from tests.contract.builders import Command, Run, create_session
from tests.engine.scene import Cluster, Process, parsed
from tests.simulation.virtual_time import run_virtual

RUN = Run("r1", "s1")
OTHER = Run("r2", "s1")


async def until_served(process: Process) -> None:
    """Wait until the process serves again."""
    async with asyncio.timeout(60):
        while not process.store.ready():  # noqa: ASYNC110 # nothing tells of it
            await asyncio.sleep(0.1)


def test_a_log_that_grew_back_to_its_length_takes_no_batch_that_follows_the_old_history() -> None:
    # Acknowledged, and void for every reader: the batch landed at the expected offset, behind another history.
    async def story() -> None:
        cluster = Cluster()
        one, two = await cluster.start(), await cluster.start()
        await one.do(create_session("s1"))
        await one.do(RUN.start())
        cluster.storage.truncate(0, 1)
        await asyncio.sleep(compare_seconds)
        await two.do(OTHER.start())
        assert await one.code(Run("r3", "s1").start()) == "unavailable"
        await until_served(one)
        assert await one.code(RUN.append()) == "run_not_found"
        await one.do(OTHER.append())
        await two.do(OTHER.append("note/2"))
        for process in (one, two):
            assert all(verified.equal for verified in await process.store.verify())
        assert one.store.partitions[0].projection.rebuilt_why

    run_virtual(story())


def test_a_void_record_that_was_cut_away_is_not_taken_for_what_stands_there_now() -> None:
    # A command that counts stood where the process had read a void record, and was never applied: stale answers, and
    # acknowledged batches that were void for every other reader.
    async def story() -> None:
        cluster = Cluster()
        one, two = await cluster.start(), await cluster.start()
        await one.do(create_session("s1"))
        batch = [entry.data for entry in cluster.storage.entries(0)]
        cluster.storage.land(0, batch)
        assert await one.code(RUN.append()) == "run_not_found"
        assert (await one.store.status()).partitions[0].void_records == 1
        cluster.storage.truncate(0, 1)
        await asyncio.sleep(compare_seconds)
        await two.do(RUN.start())
        assert await one.code(RUN.append()) == "unavailable"
        await until_served(one)
        await one.do(RUN.append())
        assert (await one.store.status()).partitions[0].void_records == 0

    run_virtual(story())


def test_void_records_at_the_end_are_read_again_when_a_projection_is_opened() -> None:
    async def story() -> None:
        cluster = Cluster()
        files: dict[int, object] = {}
        one = await cluster.start(files=files)  # type: ignore[arg-type]
        await one.do(create_session("s1"))
        cluster.storage.land(0, [entry.data for entry in cluster.storage.entries(0)])
        assert await one.code(RUN.append()) == "run_not_found"
        await one.store.close()
        cluster.storage.truncate(0, 1)
        two = await cluster.start()
        await two.do(RUN.start())
        again = await cluster.start(files=files)  # type: ignore[arg-type]
        await again.do(RUN.append())
        assert all(verified.equal for verified in await again.store.verify())

    run_virtual(story())


def test_a_batch_that_follows_another_history_sends_the_reader_back_to_the_start() -> None:
    # The reader went on without the batch, though its own history was the one that no longer stood in the log.
    async def story() -> None:
        cluster = Cluster()
        one, two = await cluster.start(), await cluster.start()
        await one.do(create_session("s1"))
        cluster.storage.land(0, [entry.data for entry in cluster.storage.entries(0)])
        assert await one.code(RUN.append()) == "run_not_found"
        cluster.storage.truncate(0, 1)
        await two.do(RUN.start())
        await two.do(RUN.append("note/0"))
        assert await one.code(RUN.append()) == "unavailable"
        await until_served(one)
        await one.do(RUN.append())

    run_virtual(story())


def test_a_log_that_is_cut_between_the_comparison_and_the_read_stops_nothing_for_good() -> None:
    # The second record of another writer's batch was taken for the next one of the own, could not be folded, and the
    # partition stopped for good.
    class CutAtTheNextRead(Faults):
        cut: Callable[[], None] | None = None

        def on_read(self, partition: int, position: int) -> ReadFault:
            del partition
            if self.cut is not None and position == 4:
                cut, self.cut = self.cut, None
                cut()
            return ReadFault()

    async def story() -> None:
        cluster, faults = Cluster(), CutAtTheNextRead()
        one = await cluster.start(faults)
        await one.do(create_session("s1"))
        await one.do(RUN.start())
        two = await cluster.start()
        third = Run("r3", "s1")
        await two.do(third.start())
        await two.store.execute_in_order(parsed(third.append("note/1"), third.append("note/2")))
        lost = [entry.data for entry in cluster.storage.entries(0, 2)]
        assert [bool(decode(data).prev) for data in lost] == [True, True, False], "the last two are one batch"
        cluster.storage.truncate(0, 2)
        await asyncio.sleep(compare_seconds)
        await one.do(OTHER.start())
        await one.do(OTHER.append())

        def cut() -> None:
            cluster.storage.truncate(0, 2)
            cluster.storage.land(0, lost)

        faults.cut = cut
        await asyncio.sleep(compare_seconds)
        assert await one.code(RUN.append()) == "unavailable"
        await until_served(one)
        await one.do(third.append("note/3"))

    run_virtual(story())


def test_a_rebuild_that_read_before_the_log_was_cut_takes_nobodys_place() -> None:
    # It had folded what was cut away, and took the place of the projection that had been read anew: what was
    # acknowledged on it was void for every other reader.
    class SlowSecondRead(Faults):
        def __init__(self) -> None:
            self.faults: list[ReadFault] = []

        def on_read(self, partition: int, position: int) -> ReadFault:
            del partition, position
            return self.faults.pop(0) if self.faults else ReadFault()

    async def story() -> None:
        cluster, faults = Cluster(), SlowSecondRead()
        one, two = await cluster.start(faults), await cluster.start()
        await one.do(create_session("s1"))
        await one.do(RUN.start())
        for number in range(18):
            await one.do(RUN.append(f"note/{number}"))
        faults.faults = [ReadFault(records_max=12), ReadFault(delay_seconds=4.0)]
        await one.store.start_rebuild()
        await asyncio.sleep(0.5)
        cluster.storage.truncate(0, 6)
        await asyncio.sleep(compare_seconds)
        for number in range(12):
            await two.do(RUN.append(f"new/{number}"))
        assert await one.code(RUN.append("mine")) == "unavailable"
        await until_served(one)
        await one.store.rebuilt()
        await until_served(one)
        await one.do(RUN.append("mine"))
        await two.do(RUN.append("theirs"))
        for process in (one, two):
            assert all(verified.equal for verified in await process.store.verify())
        found = await two.do(Command("list_run_records", {"run_id": "r1", "cursor": "", "limit": 100}))
        assert [record["event_key"] for record in found["records"]][-2:] == ["mine", "theirs"]

    run_virtual(story())


def test_a_record_that_is_gone_from_a_shared_log_stops_nothing_for_good() -> None:
    # The partition stopped for good, as for a damaged log, where the log had only been cut and could be read anew.
    async def story() -> None:
        cluster = Cluster()
        process = await cluster.start()
        await process.do(create_session("s1"))
        await process.do(RUN.start())
        await process.do(RUN.append())
        cluster.storage.truncate(0, 2)
        assert await process.code(RUN.append()) == "unavailable"
        await until_served(process)
        await process.do(RUN.append())

    run_virtual(story())
