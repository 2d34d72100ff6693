"""What every log keeps, whatever it is made of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from engine.logs.interface import AppendRefused, Log, LogClosed, LogCorrupt, LogEntry
from tests.logs.makers import MAKERS, PARTITIONS, LogMaker

pytestmark = pytest.mark.asyncio


@pytest.fixture(params=MAKERS)
def maker(request: pytest.FixtureRequest, tmp_path: Path) -> LogMaker:
    return MAKERS[request.param](tmp_path, request)


@pytest_asyncio.fixture
async def log(maker: LogMaker) -> AsyncIterator[Log]:
    log = await maker.open()
    yield log
    await log.close()


async def read_all(log: Log, partition: int, position: int = 0, records_max: int = 1000) -> list[LogEntry]:
    """Read as a partition does: until nothing comes."""
    found: list[LogEntry] = []
    while entries := await log.read(partition, position, records_max):
        found += entries
        position = entries[-1].offset + 1
    return found


def entries(*records: bytes, at: int = 0) -> list[LogEntry]:
    return [LogEntry(offset, data) for offset, data in enumerate(records, at)]


async def test_a_new_log_is_empty(log: Log) -> None:
    assert log.partitions == PARTITIONS
    for partition in range(PARTITIONS):
        assert await log.start(partition) == 0
        assert await log.end(partition) == 0
        assert await log.read(partition, 0) == []
        assert await log.read(partition, 7) == []


async def test_what_was_appended_is_read_back_byte_for_byte(log: Log) -> None:
    records = [b"", bytes(range(256)), b"\0" * 1000, "ü€".encode()]
    assert await log.append(1, 0, records) == 0
    assert await log.append(1, 4, [b"next"]) == 4
    assert await log.end(1) == 5
    assert await read_all(log, 1) == entries(*records, b"next")


async def test_partitions_do_not_mix(log: Log) -> None:
    for partition in range(PARTITIONS):
        await log.append(partition, 0, [b"%d" % partition] * (partition + 1))
    for partition in range(PARTITIONS):
        assert await read_all(log, partition) == entries(*[b"%d" % partition] * (partition + 1))
        assert await log.end(partition) == partition + 1


async def test_a_read_begins_anywhere_and_is_bounded(log: Log) -> None:
    records = [b"%d" % index for index in range(10)]
    await log.append(0, 0, records)
    for position in range(10):
        assert await log.read(0, position, 3) == entries(*records, at=0)[position : position + 3]
    assert await log.read(0, 10) == []
    assert await read_all(log, 0, 2, 3) == entries(*records)[2:]


async def test_a_read_returns_nothing_only_at_the_end(log: Log) -> None:
    records = [bytes([index]) * 3_000_000 for index in range(4)]
    await log.append(2, 0, records)
    assert await read_all(log, 2) == entries(*records)


async def test_a_batch_larger_than_any_bound_stays_whole(log: Log) -> None:
    records = [b"%d" % index * 1000 for index in range(2500)]
    assert await log.append(3, 0, records) == 0
    assert await log.end(3) == 2500
    assert await read_all(log, 3) == entries(*records)


async def test_records_are_fetched_by_position_in_the_order_asked(log: Log) -> None:
    await log.append(0, 0, [b"a", b"b", b"c"])
    await log.append(1, 0, [b"x"])
    assert log.fetch(0, [2, 0, 2]) == [b"c", b"a", b"c"]
    assert log.fetch(1, [0]) == [b"x"]
    assert log.fetch(1, []) == []


async def test_what_is_stored_is_read_at_once_between_two_positions(log: Log) -> None:
    records = [b"%d" % index for index in range(10)]
    await log.append(0, 0, records)
    await log.append(1, 0, [b"x"])
    for begin in range(10):
        for end in range(11):
            found: list[LogEntry] = []
            while some := log.stored(0, found[-1].offset + 1 if found else begin, end, 3):
                assert len(some) <= 3
                found += some
            assert found == entries(*records)[begin:end]
    assert log.stored(1, 0, 1, 100) == entries(b"x")


async def test_a_record_that_is_missing_is_named(log: Log) -> None:
    await log.append(2, 0, [b"a", b"b"])
    with pytest.raises(LogCorrupt) as raised:
        log.fetch(2, [0, 2, 1])
    assert (raised.value.partition, raised.value.position) == (2, 2)


async def test_all_partitions_at_once(log: Log) -> None:
    async def writer(partition: int) -> None:
        for index in range(30):
            position = index * 3
            batch = [b"%d/%d" % (partition, position + offset) for offset in range(3)]
            assert await log.append(partition, position, batch) == position

    await asyncio.gather(*(writer(partition) for partition in range(PARTITIONS)))
    for partition in range(PARTITIONS):
        assert await read_all(log, partition) == entries(*(b"%d/%d" % (partition, at) for at in range(90)))


async def test_a_second_batch_of_a_partition_in_flight_is_refused(log: Log) -> None:
    first = asyncio.create_task(log.append(0, 0, [b"first"]))
    await asyncio.sleep(0)
    with pytest.raises(AppendRefused) as raised:
        await log.append(0, 1, [b"second"])
    assert (raised.value.partition, raised.value.position) == (0, 1)
    assert await first == 0
    assert await read_all(log, 0) == entries(b"first")
    assert await log.append(0, 1, [b"third"]) == 1


async def test_an_empty_batch_is_refused(log: Log) -> None:
    with pytest.raises(AppendRefused):
        await log.append(0, 0, [])
    assert await log.append(0, 0, [b"a"]) == 0


async def test_a_log_without_a_lock_lands_a_batch_at_its_end_and_says_where(log: Log) -> None:
    if log.exclusive:
        pytest.skip("holds a lock")
    await log.append(0, 0, [b"a", b"b"])
    assert await log.append(0, 1, [b"c"]) == 2
    assert await log.append(0, 9, [b"d"]) == 3
    assert await read_all(log, 0) == entries(b"a", b"b", b"c", b"d")


async def test_a_log_with_a_lock_refuses_a_batch_below_its_end(log: Log) -> None:
    if not log.exclusive:
        pytest.skip("holds no lock")
    await log.append(0, 0, [b"a", b"b"])
    for position in (0, 1):
        with pytest.raises(AppendRefused):
            await log.append(0, position, [b"c"])
    assert await read_all(log, 0) == entries(b"a", b"b")
    assert await log.append(0, 2, [b"c"]) == 2


async def test_a_log_with_a_lock_takes_holes(maker: LogMaker, log: Log) -> None:
    if not log.exclusive:
        pytest.skip("holds no lock")
    await log.append(0, 5, [b"f"])
    await log.append(0, 2**40, [b"far"])
    expected = [LogEntry(5, b"f"), LogEntry(2**40, b"far")]
    for _ in range(2):
        assert await log.end(0) == 2**40 + 1
        assert await read_all(log, 0) == expected
        assert await log.read(0, 6, 1) == expected[1:]
        with pytest.raises(LogCorrupt) as raised:
            log.fetch(0, [5, 6])
        assert raised.value.position == 6
        await log.close()
        log = await maker.open()
    await log.close()


async def test_a_closed_log_holds_the_same_when_opened_again(maker: LogMaker, log: Log) -> None:
    for partition in (0, 3):
        await log.append(partition, 0, [b"a", b"b"])
    for generation in range(3):
        await log.close()
        log = await maker.open()
        for partition in (0, 3):
            end = 2 + generation
            assert await log.end(partition) == end
            assert await read_all(log, partition) == entries(b"a", b"b", *[b"more"] * generation)
            assert await log.append(partition, end, [b"more"]) == end
        assert await log.end(1) == 0
    await log.close()


async def test_a_closed_log_appends_nothing(maker: LogMaker, log: Log) -> None:
    await log.append(0, 0, [b"a"])
    await log.close()
    await log.close()
    with pytest.raises(LogClosed):
        await log.append(0, 1, [b"b"])
    again = await maker.open()
    assert await read_all(again, 0) == entries(b"a")
    await again.close()


async def test_closing_answers_what_is_in_flight(maker: LogMaker, log: Log) -> None:
    appends = [asyncio.create_task(log.append(partition, 0, [b"a"])) for partition in range(PARTITIONS)]
    await asyncio.sleep(0)
    await log.close()
    assert await asyncio.wait_for(asyncio.gather(*appends), 10) == [0] * PARTITIONS
    again = await maker.open()
    for partition in range(PARTITIONS):
        assert await read_all(again, partition) == entries(b"a")
    await again.close()
