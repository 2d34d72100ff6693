"""Callers that wait no longer: for as long as an answer may take, or because they have gone."""

from __future__ import annotations

import asyncio

import pytest

from engine.logs.simulated import AppendFault, Faults, ReadFault
from engine.pending import QueueLimits
from tests.contract.builders import create_session
from tests.engine.scene import Cluster, parsed
from tests.engine.test_partition import RUN, Scripted, opened, records
from tests.simulation.virtual_time import run_virtual

ONE_BY_ONE = QueueLimits(batch_commands_max=1)


def test_commands_of_a_caller_that_has_gone_are_done_in_order_all_the_same() -> None:
    # The one that was waited for was left out, and those after it were done: told again, it came after them.
    async def main() -> None:
        cluster, faults = Cluster(), Scripted()
        process = await cluster.start(faults, limits=ONE_BY_ONE)
        await opened(process)
        faults.appends = [AppendFault(answer_delay_seconds=1.0), AppendFault(answer_delay_seconds=1.0)]
        commands = parsed(*(RUN.append(f"k/{number}") for number in range(4)))
        # Another's is in flight, and all of these wait.
        other = asyncio.create_task(process.do(RUN.append("other")))
        await asyncio.sleep(0.1)
        caller = asyncio.create_task(process.store.execute_in_order(commands))
        await asyncio.sleep(0.4)
        caller.cancel()
        await other
        await asyncio.sleep(3)
        found = [key for key, _ in await records(process)]
        assert [key for key in found if key.startswith("k/")] == ["k/0", "k/1", "k/2", "k/3"]

    run_virtual(main())


def test_after_one_that_took_too_long_none_is_done() -> None:
    async def main() -> None:
        cluster, faults = Cluster(), Scripted()
        process = await cluster.start(faults, limits=ONE_BY_ONE, answer_seconds_max=1.0)
        await opened(process)
        faults.appends = [AppendFault(answer_delay_seconds=1.5)]
        other = asyncio.create_task(process.store.execute(parsed(RUN.append("other"))[0]))
        await asyncio.sleep(0)
        outcomes = await process.store.execute_in_order(parsed(*(RUN.append(f"k/{number}") for number in range(3))))
        assert [getattr(outcome, "code", "done") for outcome in outcomes] == ["unavailable"] * 3
        await other
        await asyncio.sleep(1)
        assert not [key for key, _ in await records(process) if key.startswith("k/")]

    run_virtual(main())


def test_what_was_queued_before_a_start_or_an_end_is_waited_for_no_longer_than_that() -> None:
    async def main() -> None:
        cluster, faults = Cluster(), Scripted()
        process = await cluster.start(faults, answer_seconds_max=1.0)
        await opened(process)
        faults.appends = [AppendFault(answer_delay_seconds=60.0)]
        began = asyncio.get_running_loop().time()
        outcomes = await process.store.execute_in_order(parsed(RUN.append("k/0"), create_session("s2")))
        assert [getattr(outcome, "code", "done") for outcome in outcomes] == ["unavailable"] * 2
        assert asyncio.get_running_loop().time() - began == pytest.approx(1.0)

    run_virtual(main())


def test_what_is_read_back_is_proved_to_be_new_in_time() -> None:
    class Slow(Faults):
        seconds = 0.0

        def on_end(self, partition: int) -> ReadFault:
            del partition
            return ReadFault(delay_seconds=self.seconds)

    async def main() -> None:
        cluster, faults = Cluster(), Slow()
        process = await cluster.start(faults, answer_seconds_max=1.0)
        await opened(process)
        faults.seconds = 60.0
        replay, began = process.store.replay, asyncio.get_running_loop().time()
        streams = process.store.streams
        asked = (
            replay.tree("r1"),
            replay.prompts("r1"),
            replay.export_session("s1"),
            streams.run("r1", ""),
            streams.session("s1", ""),
            streams.everything(""),
        )
        answers = await asyncio.gather(*asked)
        assert [getattr(answer, "code", "done") for answer in answers] == ["unavailable"] * len(asked)
        assert asyncio.get_running_loop().time() - began == pytest.approx(1.0)

    run_virtual(main())
