"""Streams on virtual time: several stores of one log, what others write, and partitions that break."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from engine.logs.simulated import Answer, AppendFault
from engine.partition import follow_seconds
from engine.store import Store
from engine.streams.places import pack_place, unpack_place
from engine.streams.stream import Stream
from schemas.log_record import decode, encode
from schemas.owners import session_owner
from schemas.refusals import Code, Refusal, Refused
from schemas.streams import Ending, Portion
from tests.contract.builders import Run, create_session, end_session, purge_session
from tests.engine.scene import Cluster, Process
from tests.engine.test_partition import Scripted
from tests.simulation.virtual_time import run_virtual

RUN = Run("r1", "s1")


async def opened(process: Process) -> None:
    await process.do(create_session("s1"))
    await process.do(RUN.start())


async def stream_of(store: Store, subject: str, cursor: str = "", **how: Any) -> Stream[Any]:
    found: Stream[Any] | Refusal
    if subject == "run":
        found = await store.streams.run("r1", cursor, **how)
    elif subject == "session":
        found = await store.streams.session("s1", cursor, **how)
    else:
        found = await store.streams.everything(cursor, **how)
    assert isinstance(found, Stream), found
    return found


async def next_portion(stream: Stream[Any]) -> Portion:
    while (portion := await stream.take()) is None:
        await stream.wait()
    return portion


async def keys(stream: Stream[Any], count: int) -> list[str]:
    """The event keys of the next records."""
    found: list[str] = []
    while len(found) < count:
        portion = await next_portion(stream)
        found += [each.record.content.event_key for each in portion.records]
    assert len(found) == count
    return found


SUBJECTS = pytest.mark.parametrize("subject", ["run", "session", "everything"])


@SUBJECTS
def test_what_another_store_writes_comes_without_a_command_of_ours(subject: str) -> None:
    async def main() -> None:
        cluster = Cluster(partitions=3)
        writer, reader = await cluster.start(), await cluster.start()
        await opened(writer)
        stream = await stream_of(reader.store, subject)
        assert await keys(stream, 1) == [RUN.started_key]
        for number in range(20):
            await writer.do(RUN.append(f"{number}"))
            before = cluster.environment.monotonic()
            assert await keys(stream, 1) == [f"{number}"]
            assert cluster.environment.monotonic() - before <= 2 * follow_seconds
        stream.close()
        await writer.store.close()
        await reader.store.close()

    run_virtual(main())


def test_a_session_that_another_store_makes_can_be_opened_at_once() -> None:
    """Its key is learnt before anyone is told of its records."""

    async def main() -> None:
        cluster = Cluster()
        writer, reader = await cluster.start(), await cluster.start()
        stream = await stream_of(reader.store, "everything")
        assert await stream.take() is None
        await opened(writer)
        assert await keys(stream, 1) == [RUN.started_key]
        await writer.do(RUN.end())
        await writer.do(end_session("s1"))
        await writer.do(purge_session("s1"))
        shot = Run("r2")
        await writer.do(shot.start())
        assert await keys(stream, 1) == [shot.started_key], "what was purged before it was read is passed over"
        stream.close()
        await writer.store.close()
        await reader.store.close()

    run_virtual(main())


def test_nobody_asks_the_log_while_nobody_watches() -> None:
    async def main() -> None:
        cluster = Cluster()
        faults = Scripted()
        asked = 0
        plain = faults.on_end

        def counted(partition: int) -> Any:
            nonlocal asked
            asked += 1
            return plain(partition)

        faults.on_end = counted  # type: ignore[method-assign]
        process = await cluster.start(faults)
        await opened(process)
        before = asked
        await cluster.environment.sleep(10)
        assert asked == before
        stream = await stream_of(process.store, "run")
        before = asked
        await cluster.environment.sleep(100 * follow_seconds)
        assert 50 <= asked - before <= 101
        stream.close()
        await cluster.environment.sleep(1)
        before = asked
        await cluster.environment.sleep(10)
        assert asked == before
        await process.store.close()

    run_virtual(main())


VOID = [
    AppendFault(copies=2),
    AppendFault(answer=Answer.NONE),
    AppendFault(late_seconds=0.5),
    AppendFault(copies=2, answer=Answer.LAST),
]


@SUBJECTS
@pytest.mark.parametrize("seed", range(len(VOID)))
def test_void_records_are_not_streamed_and_none_comes_twice(subject: str, seed: int) -> None:
    async def main() -> None:
        cluster, faults = Cluster(seed), Scripted()
        one, two = await cluster.start(faults), await cluster.start()
        await opened(one)
        streams = [await stream_of(process.store, subject) for process in (one, two)]
        got = [asyncio.create_task(keys(stream, 61)) for stream in streams]
        for number in range(30):
            faults.appends = [VOID[seed]]
            await asyncio.gather(one.do(RUN.append(f"one/{number}")), two.do(RUN.append(f"two/{number}")))
        page = await two.store.list_run_records("r1", "", 1000)
        expected = [record.content.event_key for record in page.records]  # type: ignore[union-attr]
        assert len(expected) == 61
        for each in await asyncio.gather(*got):
            assert each == expected
        for stream in streams:
            assert await stream.take() is None
            stream.close()
        await cluster.storage.settle()
        await one.store.close()
        await two.store.close()

    run_virtual(main())


@SUBJECTS
def test_a_record_at_its_position_that_follows_another_history_is_not_streamed(subject: str) -> None:
    """Everything in it is right, but that it belongs to a log that was: only the log before it tells."""

    async def main() -> None:
        cluster = Cluster()
        process = await cluster.start()
        await opened(process)
        stream = await stream_of(process.store, subject)
        await keys(stream, 1)
        await process.do(RUN.append("1"))
        assert await keys(stream, 1) == ["1"]
        stored = decode(cluster.storage.entries(0)[-1].data)
        end = cluster.storage.end(0)
        cluster.storage.land(0, [encode(msgspec.structs.replace(stored, position=end, prev=b"\x07" * 32))])
        waiting = asyncio.create_task(keys(stream, 1))
        await cluster.environment.sleep(1)
        assert not waiting.done()
        await process.do(RUN.append("2"))
        assert await waiting == ["2"]
        again = await stream_of(process.store, subject)
        assert await keys(again, 3) == [RUN.started_key, "1", "2"]
        stream.close()
        again.close()
        await process.store.close()

    run_virtual(main())


@SUBJECTS
def test_a_log_that_cannot_be_read_for_a_while_holds_a_stream_up_and_no_more(subject: str) -> None:
    async def main() -> None:
        cluster, faults = Cluster(), Scripted()
        writer, reader = await cluster.start(), await cluster.start(faults)
        await opened(writer)
        stream = await stream_of(reader.store, subject)
        await keys(stream, 1)
        faults.down = True
        await writer.do(RUN.append("1"))
        waiting = asyncio.create_task(keys(stream, 1))
        await cluster.environment.sleep(5)
        assert not waiting.done()
        faults.down = False
        assert await waiting == ["1"]
        stream.close()
        await writer.store.close()
        await reader.store.close()

    run_virtual(main())


@SUBJECTS
def test_a_store_that_closes_ends_its_streams(subject: str) -> None:
    async def main() -> None:
        cluster = Cluster()
        process = await cluster.start(exclusive=True)
        await opened(process)
        stream = await stream_of(process.store, subject)
        await keys(stream, 1)
        waiting = asyncio.create_task(keys(stream, 1))
        await asyncio.sleep(1)
        await process.store.close()
        with pytest.raises(Refused) as refused:
            await waiting
        assert refused.value.code is Code.UNAVAILABLE
        stream.close()

    run_virtual(main())


def test_a_key_that_is_lost_breaks_its_session_off_and_the_stream_of_everything_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        cluster = Cluster()
        first = await cluster.start()
        await opened(first)
        await first.do(Run("r2").start())
        await first.do(RUN.append("1"))
        await first.store.close()
        (lost,) = [key_id for key_id, (owner, _) in cluster.keys.keys.items() if owner == session_owner("s1")]
        del cluster.keys.keys[lost]
        second = await cluster.start()
        wide = await stream_of(second.store, "everything", follow=False)
        found: list[str] = []
        while (portion := await wide.take()) is not None and portion.end is None:
            found += [each.record.content.run_id for each in portion.records]
        assert found == ["r2"]
        broken = await stream_of(second.store, "run")
        with pytest.raises(Refused) as refused:
            await broken.take()
        assert refused.value.code is Code.UNAVAILABLE
        wide.close()
        broken.close()
        await second.store.close()

    with caplog.at_level(logging.ERROR, "runstore.streams"):
        run_virtual(main())
    assert caplog.text.count("streams of everything go on without it") == 2


def test_a_rebuild_beside_a_stream_changes_nothing_for_it() -> None:
    async def main() -> None:
        cluster = Cluster()
        process = await cluster.start()
        await opened(process)
        streams = [await stream_of(process.store, subject) for subject in ("run", "session", "everything")]
        for stream in streams:
            await keys(stream, 1)
        for number in range(5):
            assert await process.store.start_rebuild() is None
            await process.do(RUN.append(f"{number}"))
            await process.store.rebuilt()
            for stream in streams:
                assert await keys(stream, 1) == [f"{number}"]
                assert await stream.take() is None
        for stream in streams:
            stream.close()
        await process.store.close()

    run_virtual(main())


def test_what_waits_is_counted_up_to_the_bound_and_handed_out_all_the_same() -> None:
    async def main() -> None:
        cluster = Cluster()
        process = await cluster.start(exclusive=True)
        await opened(process)
        stream = await stream_of(process.store, "run")
        await keys(stream, 1)
        payload = '"' + "v" * 998 + '"'
        await asyncio.gather(*(process.do(RUN.append(f"{number}", payload)) for number in range(500)))
        assert 500_000 <= await stream.waiting_bytes(10_000_000) < 1_000_000
        some = await stream.waiting_bytes(100_000)
        assert some > 100_000
        assert len(await keys(stream, 500)) == 500
        assert await stream.waiting_bytes(100) == 0
        await process.do(RUN.append("last", payload))
        assert 1000 <= await stream.waiting_bytes(100_000) < 1500
        await process.do(RUN.end())
        assert 1500 <= await stream.waiting_bytes(100_000) < 2000
        while (portion := await next_portion(stream)).end is None:
            assert portion.records
        assert portion.end.ending is Ending.RUN_ENDED
        stream.close()
        await process.store.close()

    run_virtual(main())


@pytest.mark.parametrize("place", [(), (0,), (127, 128), (2**62, 0, 300), (1,) * 1024])
def test_places_are_read_as_they_were_written(place: tuple[int, ...]) -> None:
    packed = pack_place(place)
    assert unpack_place(packed, len(place)) == place
    assert unpack_place(packed, len(place) + 1) is None
    assert unpack_place(packed + b"\x80", len(place)) is None
    assert unpack_place(b"\xff" * 20, 1) is None
