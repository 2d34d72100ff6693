"""The simulated log's faults: each does what it says and nothing else, and a seed repeats a whole run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from engine.logs.interface import (
    AppendRefused,
    LogCorrupt,
    LogEntry,
    LogError,
    LogUnavailable,
    OutcomeUnknown,
)
from engine.logs.simulated import (
    Answer,
    AppendFault,
    Faults,
    ReadFault,
    SeededFaults,
    SimulatedLog,
    SimulatedLogStorage,
)
from tests.logs.environments import VirtualClock, turns

pytestmark = pytest.mark.asyncio


class Script(Faults):
    """The faults of the calls to come, in order; after them, none."""

    def __init__(self, *appends: AppendFault) -> None:
        self.appends = list(appends)
        self.reads: list[ReadFault] = []
        self.ends: list[ReadFault] = []
        self.asked: list[tuple[object, ...]] = []

    def on_append(self, partition: int, position: int, batch: Sequence[bytes]) -> AppendFault:
        self.asked.append(("append", partition, position, tuple(batch)))
        return self.appends.pop(0) if self.appends else AppendFault()

    def on_read(self, partition: int, position: int) -> ReadFault:
        self.asked.append(("read", partition, position))
        return self.reads.pop(0) if self.reads else ReadFault()

    def on_end(self, partition: int) -> ReadFault:
        self.asked.append(("end", partition))
        return self.ends.pop(0) if self.ends else ReadFault()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def stored(log: SimulatedLog, partition: int = 0) -> list[bytes]:
    return [entry.data for entry in log.storage.entries(partition)]


@pytest.mark.parametrize(
    ("fault", "raised", "landed"),
    [
        (AppendFault(), None, [b"a", b"b"]),
        (AppendFault(refused=True), AppendRefused, []),
        (AppendFault(copies=0), OutcomeUnknown, []),
        (AppendFault(answer=Answer.NONE), OutcomeUnknown, [b"a", b"b"]),
        (AppendFault(copies=2, answer=Answer.NONE), OutcomeUnknown, [b"a", b"b", b"a", b"b"]),
    ],
)
async def test_what_becomes_of_an_append(
    clock: VirtualClock, fault: AppendFault, raised: type[LogError] | None, landed: list[bytes]
) -> None:
    log = SimulatedLog(1, clock, Script(fault))
    if raised is None:
        assert await log.append(0, 0, [b"a", b"b"]) == 0
    else:
        with pytest.raises(raised) as error:
            await log.append(0, 0, [b"a", b"b"])
        assert (error.value.partition, error.value.position) == (0, 0)
    assert stored(log) == landed
    assert await log.append(0, len(landed), [b"c"]) == len(landed)


@pytest.mark.parametrize(("answer", "offset"), [(Answer.FIRST, 0), (Answer.LAST, 2)])
async def test_a_duplicate_is_answered_with_either_offset(clock: VirtualClock, answer: Answer, offset: int) -> None:
    log = SimulatedLog(1, clock, Script(AppendFault(copies=2, answer=answer)))
    assert await log.append(0, 0, [b"a", b"b"]) == offset
    assert stored(log) == [b"a", b"b", b"a", b"b"]


async def test_a_delay_is_before_and_an_answer_delay_after_the_landing(clock: VirtualClock) -> None:
    log = SimulatedLog(1, clock, Script(AppendFault(delay_seconds=1, answer_delay_seconds=2)))
    append = asyncio.create_task(log.append(0, 0, [b"a"]))
    await clock.advance(0.9)
    assert stored(log) == []
    await clock.advance(0.2)
    assert stored(log) == [b"a"]
    await clock.advance(1.9)
    assert not append.done()
    await clock.advance(0.2)
    assert await append == 0


async def test_a_late_batch_lands_after_its_writer_was_told_that_nobody_knows(clock: VirtualClock) -> None:
    storage = SimulatedLogStorage(1)
    zombie = SimulatedLog(1, clock, Script(AppendFault(late_seconds=5)), storage=storage)
    owner = SimulatedLog(1, clock, storage=storage)
    with pytest.raises(OutcomeUnknown):
        await zombie.append(0, 0, [b"late"])
    await zombie.close()
    assert await owner.read(0, 0) == []
    assert await owner.append(0, 0, [b"barrier"]) == 0
    settling = asyncio.create_task(storage.settle())
    await clock.advance(4.9)
    assert not settling.done()
    await clock.advance(0.2)
    await settling
    assert await owner.read(0, 0) == [LogEntry(0, b"barrier"), LogEntry(1, b"late")]


async def test_two_writers_share_a_storage_and_land_one_after_the_other(clock: VirtualClock) -> None:
    storage = SimulatedLogStorage(1)
    one, other = (SimulatedLog(1, clock, storage=storage) for _ in range(2))
    offsets = await asyncio.gather(one.append(0, 0, [b"1", b"2"]), other.append(0, 0, [b"3", b"4"]))
    assert tuple(offsets) == (0, 2)
    assert await one.read(0, 0) == await other.read(0, 0)


async def test_reads_and_questions_for_the_end_go_wrong_too(clock: VirtualClock) -> None:
    faults = Script()
    log = SimulatedLog(1, clock, faults)
    await log.append(0, 0, [b"a", b"b", b"c"])
    faults.reads = [ReadFault(unavailable=True), ReadFault(records_max=2), ReadFault(records_max=0)]
    faults.ends = [ReadFault(unavailable=True)]
    with pytest.raises(LogUnavailable):
        await log.read(0, 0)
    assert [entry.data for entry in await log.read(0, 0)] == [b"a", b"b"]
    # None would mean the end.
    assert [entry.data for entry in await log.read(0, 0)] == [b"a"]
    assert len(await log.read(0, 0)) == 3
    with pytest.raises(LogUnavailable):
        await log.end(0)
    assert await log.end(0) == 3
    faults.reads = [ReadFault(delay_seconds=1)]
    reading = asyncio.create_task(log.read(0, 1))
    await clock.advance(0.9)
    assert not reading.done()
    await clock.advance(0.2)
    assert len(await reading) == 2
    assert faults.asked[0] == ("append", 0, 0, (b"a", b"b", b"c"))
    assert faults.asked[-1] == ("read", 0, 1)


async def test_with_a_lock_neither_duplicates_nor_late_batches_land_elsewhere(clock: VirtualClock) -> None:
    faults = Script(AppendFault(copies=2, answer=Answer.LAST), AppendFault(late_seconds=1), AppendFault())
    log = SimulatedLog(1, clock, faults, exclusive=True)
    assert await log.append(0, 0, [b"a"]) == 0
    with pytest.raises(OutcomeUnknown):
        await log.append(0, 1, [b"late"])
    assert await log.append(0, 1, [b"b"]) == 1
    await clock.advance(2)
    await log.storage.settle()
    assert stored(log) == [b"a", b"b"]


async def test_a_log_is_truncated_and_rewritten(clock: VirtualClock) -> None:
    log = SimulatedLog(2, clock)
    await log.append(0, 0, [b"a", b"b", b"c"])
    await log.append(1, 0, [b"other"])
    log.storage.rewrite(0, 1, b"B")
    assert log.fetch(0, [0, 1, 2]) == [b"a", b"B", b"c"]
    log.storage.truncate(0, 2)
    assert await log.end(0) == 2
    with pytest.raises(LogCorrupt):
        log.fetch(0, [2])
    log.storage.truncate(0, 5)
    assert await log.end(0) == 2
    assert await log.append(0, 2, [b"C"]) == 2
    assert stored(log) == [b"a", b"B", b"C"]
    assert stored(log, 1) == [b"other"]


async def test_a_seed_repeats_a_run_and_draws_every_fault() -> None:
    async def run(seed: int) -> tuple[list[str], list[LogEntry]]:
        clock = VirtualClock()
        log = SimulatedLog(1, clock, SeededFaults(random.Random(seed), rate=0.9, delay_seconds_max=3))
        outcomes: list[str] = []
        for index in range(200):
            append = asyncio.create_task(log.append(0, index, [b"%d" % index, b"more"]))
            while not append.done():
                await clock.advance(0.5)
            failed = append.exception()
            outcomes.append(type(failed).__name__ if failed else str(append.result()))
            reading = asyncio.create_task(log.read(0, index))
            while not reading.done():
                await clock.advance(0.5)
            unread = reading.exception()
            outcomes.append(type(unread).__name__ if unread else str(len(reading.result())))
        await clock.advance(10)
        await turns()
        await log.storage.settle()
        return outcomes, log.storage.entries(0)

    first, again, other = await run(1), await run(1), await run(2)
    assert first == again
    assert first != other
    outcomes, entries = first
    assert {"AppendRefused", "OutcomeUnknown", "LogUnavailable"} <= set(outcomes)
    data = [entry.data for entry in entries]
    landings = [data.count(b"%d" % index) for index in range(200)]
    assert set(landings) == {0, 1, 2}
    assert [entry.offset for entry in entries] == list(range(len(entries)))
    # Whole batches, whatever went wrong.
    assert all(record != b"more" for record in data[::2])
    assert all(record == b"more" for record in data[1::2])
