"""The log on Kafka beyond what every log keeps: its local copy, batches sent again, what else a topic may hold."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer
from rocksdict import WriteBatch

from engine.kafka import client
from engine.kafka.client import Fetched
from engine.kafka.errors import NotAnswered
from engine.kafka.settings import KafkaSettings
from engine.kafka.topics import message_bytes_min
from engine.logs import copying
from engine.logs.interface import AppendRefused, LogCorrupt, LogEntry, LogUnavailable, OutcomeUnknown
from engine.logs.kafka import KafkaLog, ahead_seconds_max, append_seconds_max, shorter_believed_seconds
from engine.logs.local_copy import LocalCopy
from tests.kafka.brokers import Brokers
from tests.kafka.proxy import PRODUCE, Fate, Kind, Proxy, all_pass, in_order
from tests.kafka.topics import operating, own_topics
from tests.logs.makers import kafka_log
from tests.logs.test_contract import entries, read_all

T = TypeVar("T")
slack_seconds = 0.7


@pytest.fixture
def kafka(bootstrap_servers: str) -> KafkaSettings:
    return own_topics(bootstrap_servers)


@pytest_asyncio.fixture
async def log(kafka: KafkaSettings, tmp_path: Path) -> AsyncIterator[KafkaLog]:
    log = await kafka_log(tmp_path, kafka)
    yield log
    await log.close()


async def soon(ask: Callable[[], T]) -> T:
    """Ask until it is available again."""
    async with asyncio.timeout(10):
        while True:
            try:
                return ask()
            except LogUnavailable:
                await asyncio.sleep(0.01)


def copy_of(log: KafkaLog) -> LocalCopy:
    return log._copying._copy


# -- the local copy


async def test_what_is_missing_in_the_copy_is_read_again(log: KafkaLog) -> None:
    await log.append(1, 0, [b"a", b"b", b"c"])
    copy_of(log).flush()
    copy_of(log)._database.delete(b"\0\1" + (1).to_bytes(8, "big"))
    assert log.fetch(1, [0, 2]) == [b"a", b"c"]
    with pytest.raises(LogUnavailable) as raised:
        log.fetch(1, [0, 1, 2])
    assert (raised.value.partition, raised.value.position) == (1, 1)
    assert await soon(lambda: log.fetch(1, [0, 1, 2])) == [b"a", b"b", b"c"]


async def test_what_was_never_there_is_no_gap_in_the_copy(log: KafkaLog) -> None:
    await log.append(1, 0, [b"a"])
    with pytest.raises(LogCorrupt):
        log.fetch(1, [1])


@pytest.mark.parametrize("part", ["all", "end"])
async def test_a_read_copies_what_is_missing_before_it(kafka: KafkaSettings, tmp_path: Path, part: str) -> None:
    log = await kafka_log(tmp_path, kafka)
    records = [b"%d" % number * 300 for number in range(20_000)]
    for begin in range(0, len(records), 2_000):
        await log.append(2, begin, records[begin : begin + 2_000])
    if part == "end":
        copy_of(log).cut(2, 7_000)
    await log.close()
    if part == "all":
        shutil.rmtree(tmp_path / "copy")
    log = await kafka_log(tmp_path, kafka)
    assert copy_of(log).end(2) == (0 if part == "all" else 7_000)
    assert await log.read(2, 20_000) == []
    assert log.fetch(2, [0, 6_999, 7_000, 19_999]) == [records[0], records[6_999], records[7_000], records[19_999]]
    await log.close()


async def test_a_copy_that_breaks_is_made_anew_while_the_log_goes_on(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.append(1, 0, [b"a", b"b"])
    await log.append(3, 0, [b"x"])

    def broken(*_: object) -> None:
        monkeypatch.undo()
        raise LogCorrupt("Corruption: a table was damaged")

    monkeypatch.setattr(copy_of(log), "write", broken)
    assert await log.append(1, 2, [b"c"]) == 2
    assert await soon(lambda: log.fetch(1, [0, 1, 2])) == [b"a", b"b", b"c"]
    assert await soon(lambda: log.fetch(3, [0])) == [b"x"]
    assert await log.append(1, 3, [b"d"]) == 3
    assert await soon(lambda: log.fetch(1, [3])) == [b"d"]


async def test_an_append_that_could_not_be_copied_has_landed_all_the_same(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [True]
    write = copy_of(log)._database.write

    def perhaps(batch: WriteBatch) -> None:
        if full[0]:
            raise Exception("IO error: No space left on device")  # noqa: TRY002 - as rocksdict raises it
        write(batch)

    class Database:
        """The copy's, without room to write in."""

        def __getattr__(self, name: str) -> object:
            return perhaps if name == "write" else getattr(database, name)

    database = copy_of(log)._database
    monkeypatch.setattr(copying, "write_delay_seconds", 3600.0)
    monkeypatch.setattr(copy_of(log), "_database", Database())
    assert await log.append(1, 0, [b"a"]) == 0
    assert await log.append(1, 1, [b"b"]) == 1
    assert log.fetch(1, [0, 1]) == [b"a", b"b"], "held until it is written"
    with pytest.raises(LogUnavailable):
        copy_of(log).flush()
    with pytest.raises(LogUnavailable):
        log.fetch(1, [0])
    full[0] = False
    assert await soon(lambda: log.fetch(1, [0, 1])) == [b"a", b"b"]


async def test_an_append_whose_copy_can_be_neither_written_nor_made_anew_has_landed(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise LogCorrupt("Corruption: a table was damaged")

    def full() -> None:
        raise LogUnavailable("IO error: No space left on device")

    monkeypatch.setattr(copy_of(log), "hold", broken)
    monkeypatch.setattr(copy_of(log), "begin_anew", full)
    assert await log.append(1, 0, [b"a"]) == 0


async def test_what_was_read_ahead_is_handed_out_and_not_for_long(kafka: KafkaSettings, tmp_path: Path) -> None:
    log, other = await kafka_log(tmp_path / "one", kafka), await kafka_log(tmp_path / "two", kafka)
    records = [b"%d" % number for number in range(100)]
    await other.append(0, 0, records)
    assert await log.read(0, 0, 10) == entries(*records)[:10]
    assert await log.read(0, 10, 10) == entries(*records)[10:20]
    assert await log.read(0, 50, 10) == entries(*records)[50:60]
    assert await log.read(0, 5, 10) == entries(*records)[5:15]
    assert await read_all(log, 0, 15, 7) == entries(*records)[15:]
    # What is appended since is found, and what was read long ago is read again.
    await log.read(0, 0, 10)
    async with operating(kafka) as operator:
        changed = [*records[:10], b"changed", *records[11:]]
        await operator.delete(kafka.log_topic)
        await operator.make(kafka.log_topic, log.partitions)
        await operator.write(kafka.log_topic, 0, [(None, record) for record in changed])
    await asyncio.sleep(ahead_seconds_max)
    assert (await log.read(0, 10, 1))[0].data == b"changed"
    await asyncio.gather(log.close(), other.close())


async def test_a_leader_that_shows_less_than_it_holds_has_lost_nothing(
    kafka: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an election, for as long as no replica tells the new leader how far it is; its end it does not tell."""
    log = await kafka_log(tmp_path, kafka)
    await log.append(0, 0, [b"a", b"b", b"c"])
    await log.append(0, 3, [b"d"])
    client, began = log._client, time.monotonic()
    with monkeypatch.context() as patched:

        async def fetch(*_: object, **__: object) -> Fetched:
            return Fetched([], 0, 3, 3)

        async def shared_end(*_: object) -> int:
            raise NotAnswered("OffsetNotAvailableError")

        patched.setattr(client, "fetch", fetch)
        patched.setattr(client, "shared_end", shared_end)
        while time.monotonic() < began + shorter_believed_seconds + 1:
            with pytest.raises(LogUnavailable):
                await log.read(0, 3)
    assert log.lost(0) == 0
    assert log.fetch(0, [3]) == [b"d"]
    assert await log.read(0, 3) == [LogEntry(3, b"d")]
    await log.close()


# -- batches


async def test_a_record_is_kept_under_its_run(log: KafkaLog, kafka: KafkaSettings) -> None:
    await log.append(0, 0, [b"a", b"b", b"c"], ["run-1", "", "run-ü"])
    async with operating(kafka) as operator:
        found = await operator.records(kafka.log_topic, 0)
    assert [(record.key, record.value) for record in found] == [
        (b"run-1", b"a"),
        (None, b"b"),
        ("run-ü".encode(), b"c"),
    ]
    assert all(abs(record.time_ms - time.time() * 1000) < 60_000 for record in found)


async def test_a_batch_that_the_topic_does_not_take_is_refused_for_good(log: KafkaLog) -> None:
    began = time.monotonic()
    with pytest.raises(AppendRefused, match="MessageSizeTooLarge"):
        await log.append(0, 0, [bytes(message_bytes_min)])
    assert time.monotonic() - began < append_seconds_max
    assert await log.append(0, 0, [b"next"]) == 0


async def test_an_answer_that_is_lost_has_the_batch_sent_again(tmp_path: Path) -> None:
    """Its copy is told, elsewhere: the writer finds out what counts."""
    async with Proxy() as proxy, Brokers(tmp_path / "kafka", advertised={1: proxy.address}) as brokers:
        proxy.target = brokers.bootstrap
        log = await kafka_log(tmp_path / "log", own_topics(proxy.address))
        assert await log.append(0, 0, [b"a"]) == 0
        proxy.plan = in_order([Fate(Kind.DROP_AND_CUT)])
        assert await log.append(0, 1, [b"b", b"c"]) == 3
        assert await read_all(log, 0) == entries(b"a", b"b", b"c", b"b", b"c")
        assert log.fetch(0, [2, 4]) == [b"c", b"c"]

        # None of these arrives, and none is answered: nobody knows.
        proxy.plan = lambda request: Fate(Kind.CUT_REQUEST if request.api_key == PRODUCE else Kind.THROUGH)
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            await log.append(0, 5, [b"d"])
        assert time.monotonic() - began < append_seconds_max + slack_seconds
        proxy.plan = all_pass
        assert await log.end(0) == 5
        await log.close()


async def test_nothing_outlasts_its_limit_and_closing_does_not_either(tmp_path: Path) -> None:
    async with Brokers(tmp_path / "kafka") as brokers:
        log = await kafka_log(tmp_path / "log", own_topics(brokers.bootstrap))
        await log.append(0, 0, [b"a"])
        await brokers.pause()

        async def timed(work: Awaitable[object]) -> tuple[float, BaseException | object]:
            began = time.monotonic()
            (outcome,) = await asyncio.gather(work, return_exceptions=True)
            return time.monotonic() - began, outcome

        calls = [log.append(0, 1, [b"b"]), log.read(0, 0), log.read(1, 0), log.end(0), log.end(2), log.start(3)]
        for seconds, outcome in await asyncio.gather(*map(timed, calls)):
            assert isinstance(outcome, (OutcomeUnknown, AppendRefused, LogUnavailable)), outcome
            assert seconds < append_seconds_max + slack_seconds
        appending = asyncio.create_task(timed(log.append(0, 1, [b"b"])))
        await asyncio.sleep(0)
        seconds, _ = await timed(log.close())
        assert seconds < append_seconds_max + slack_seconds
        assert isinstance((await appending)[1], (OutcomeUnknown, AppendRefused))


# -- what else a topic may hold


@pytest.mark.parametrize("one_by_one", [False, True], ids=["all at once", "batch by batch"])
async def test_what_a_transaction_leaves_in_the_topic_is_passed_over(
    log: KafkaLog, kafka: KafkaSettings, one_by_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if one_by_one:
        # A read then brings nothing but the mark of the transaction's end, and that is not the end of the log.
        monkeypatch.setattr(client, "fetch_bytes_max", 1)
    await log.append(0, 0, [b"a"])
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=kafka.topic_prefix)
    await producer.start()
    async with producer.transaction():
        await producer.send_and_wait(kafka.log_topic, b"foreign", partition=0)
    await producer.stop()
    async with asyncio.timeout(10):
        # The record, and a little later the mark of the end.
        while await log.end(0) < 3:  # noqa: ASYNC110 # nothing tells of it
            await asyncio.sleep(0.01)
    assert await log.append(0, 3, [b"b"]) == 3
    assert await read_all(log, 0) == [LogEntry(0, b"a"), LogEntry(1, b"foreign"), LogEntry(3, b"b")]
    assert await read_all(log, 0, 2) == [LogEntry(3, b"b")]
    assert log.fetch(0, [0, 1, 3]) == [b"a", b"foreign", b"b"]


async def test_a_record_without_a_value_is_an_empty_one(log: KafkaLog, kafka: KafkaSettings) -> None:
    async with operating(kafka) as operator:
        await operator.write(kafka.log_topic, 0, [(b"key", None), (None, None), (None, b"a")])
    assert await read_all(log, 0) == entries(b"", b"", b"a")
