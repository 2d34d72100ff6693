"""The partition's loop, against everything that a log can do to a batch."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

import engine.batch
import engine.decide
import engine.writer
from engine.keys import KeyMissing
from engine.logs.simulated import Answer, AppendFault, Faults, ReadFault, SeededFaults
from engine.pending import QueueLimits
from engine.writer import voids_in_a_row_max
from projections.fold import fold
from schemas.log_record import decode
from schemas.refusals import Refused
from tests.contract.builders import Run, create_session, end_session, place, purge_session
from tests.engine.scene import Cluster, Process, parsed
from tests.simulation.virtual_time import run_virtual


class Scripted(Faults):
    """Gives each append the next fault of a list, then none."""

    def __init__(self, *faults: AppendFault) -> None:
        self.appends = list(faults)
        self.batches: list[int] = []
        self.down = False

    def on_append(self, partition: int, position: int, batch: Sequence[bytes]) -> AppendFault:
        del partition, position
        self.batches.append(len(batch))
        if self.down:
            return AppendFault(copies=0)
        return self.appends.pop(0) if self.appends else AppendFault()

    def on_end(self, partition: int) -> ReadFault:
        del partition
        return ReadFault(unavailable=self.down)

    def on_read(self, partition: int, position: int) -> ReadFault:
        del partition, position
        return ReadFault(unavailable=self.down)


RUN = Run("r1", "s1")


async def opened(process: Process) -> None:
    """A session with a running run."""
    await process.do(create_session("s1"))
    await process.do(RUN.start())


async def records(process: Process) -> list[tuple[str, str]]:
    """Event key and ID of each record of the run, in order."""
    page = await process.store.list_run_records("r1", "", 1000)
    return [(record.content.event_key, record.id) for record in page.records]  # type: ignore[union-attr]


async def check_whole(cluster: Cluster, *processes: Process) -> None:
    """What is served is what a fresh reader of the log finds, and no event key is there twice."""
    await cluster.storage.settle()
    fresh = await cluster.start()
    for process in (*processes, fresh):
        found = await records(process)
        assert found == await records(fresh)
        assert len({key for key, _ in found}) == len(found)
        assert all(verified.equal for verified in await process.store.verify())
    await fresh.store.close()


def test_what_waits_goes_into_one_batch() -> None:
    async def main() -> None:
        cluster, faults = Cluster(), Scripted()
        process = await cluster.start(faults)
        await opened(process)
        before = len(faults.batches)
        await asyncio.gather(*(process.do(RUN.append(f"k/{n}")) for n in range(50)))
        assert faults.batches[before:] == [50]

    run_virtual(main())


FATES = {
    "acknowledgement lost": AppendFault(answer=Answer.NONE),
    "batch lost": AppendFault(copies=0),
    "lands late": AppendFault(late_seconds=0.5),
    "lands twice": AppendFault(copies=2),
    "lands twice, the second is acknowledged": AppendFault(copies=2, answer=Answer.LAST),
    "lands twice, late": AppendFault(late_seconds=0.001, copies=2),
}


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("again", [0, 1, 2])
def test_a_command_counts_once_and_is_answered_as_new_whatever_became_of_its_batch(fate: str, again: int) -> None:
    async def main() -> None:
        cluster, faults = Cluster(), Scripted()
        process = await cluster.start(faults)
        await opened(process)
        faults.appends = [FATES[fate]] * (1 + again)
        first, second = RUN.append("k/1"), RUN.append("k/2")
        answers = await asyncio.gather(process.do(first), process.do(second))
        assert [answer["inserted"] for answer in answers] == [True, True]
        assert [answer["id"] for answer in answers] == [record_id for _, record_id in (await records(process))[1:]]
        repeated = await asyncio.gather(process.do(first), process.do(second))
        assert [answer["inserted"] for answer in repeated] == [False, False]
        assert [answer["id"] for answer in repeated] == [answer["id"] for answer in answers]
        await check_whole(cluster, process)

    run_virtual(main())


def test_a_batch_told_at_another_offset_is_settled_while_nothing_waits() -> None:
    # The read that had to tell what became of it failed, and nobody read again: a purge that counted had no effect, and
    # its keys were kept, until the next command came.
    class Blind(Scripted):
        blind = False

        def on_end(self, partition: int) -> ReadFault:
            del partition
            return ReadFault(unavailable=self.blind)

    async def main() -> None:
        cluster, faults = Cluster(), Blind()
        process = await cluster.start(faults)
        await process.do(create_session("s1"))
        await process.do(end_session("s1"))
        faults.blind = True
        faults.appends = [AppendFault(copies=2, answer=Answer.LAST)]
        assert await process.code(purge_session("s1")) == "unavailable"
        assert cluster.keys.keys
        faults.blind = False
        await asyncio.sleep(1)
        assert not cluster.keys.keys

    run_virtual(main())


def test_nothing_of_a_batch_is_answered_before_all_of_it_is_applied() -> None:
    # Its first page answered the first command and the retry at its end; the second page failed, so the one between
    # them was `unavailable`, and a later command of the same caller had gone before it.
    class OnePage(Scripted):
        pages = -1000

        def on_read(self, partition: int, position: int) -> ReadFault:
            del partition, position
            self.pages += 1
            # The comparison of what was read before takes the first; then one record, and nothing more.
            return ReadFault(records_max=1, unavailable=self.pages > 2)

    async def main() -> None:
        cluster, faults = Cluster(), OnePage()
        process = await cluster.start(faults)
        await opened(process)
        commands = parsed(RUN.append("k/1"), RUN.append("k/2"), RUN.append("k/2"))
        faults.pages = 0
        faults.appends = [AppendFault(copies=2, answer=Answer.LAST)]
        outcomes = await process.store.execute_in_order(commands)
        assert [getattr(outcome, "code", "done") for outcome in outcomes] == ["unavailable"] * 3

    run_virtual(main())


def test_one_that_cannot_be_decided_holds_up_only_those_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # The batch was void and was decided anew, and the command *before* the one that had failed was not tried.
    failed: list[str] = []
    decide = engine.decide.decide

    def failing(batch: Any, command: Any, elsewhere: Any, prepared: Any) -> Any:
        if getattr(command, "record", None) is not None and command.record.event_key == "k/2":
            failed.append(command.record.event_key)
            raise KeyMissing(bytes(16))
        return decide(batch, command, elsewhere, prepared)

    async def main() -> None:
        cluster, faults = Cluster(), Scripted()
        process = await cluster.start(faults)
        await opened(process)
        commands = parsed(RUN.append("k/1"), RUN.append("k/2"), RUN.append("k/3"))
        monkeypatch.setattr(engine.writer, "decide", failing)
        faults.appends = [AppendFault(copies=0)]
        outcomes = await process.store.execute_in_order(commands)
        assert [getattr(outcome, "code", "done") for outcome in outcomes] == ["done", "unavailable", "unavailable"]
        assert len(failed) == 2

    run_virtual(main())


def test_what_wrote_nothing_is_answered_with_the_batch_that_it_was_decided_in() -> None:
    # Told an offset that is not its own, the writer found its batch in the log and answered what that had written, but
    # the command before it, which had written nothing, was `unavailable`: a later one of a batch had gone before it.
    class OneLook(Scripted):
        looks = -1000

        def on_end(self, partition: int) -> ReadFault:
            del partition
            self.looks += 1
            return ReadFault(unavailable=self.looks > 1)

    async def main() -> None:
        cluster, faults = Cluster(), OneLook()
        other = await cluster.start()
        await opened(other)
        await other.do(RUN.append("k/1"))
        process = await cluster.start(faults)
        faults.looks = 0
        faults.appends = [AppendFault(copies=2, answer=Answer.LAST)]
        commands = parsed(RUN.append("k/1"), RUN.append("k/2"))
        outcomes = await process.store.execute_in_order(commands)
        assert [getattr(outcome, "inserted", outcome) for outcome in outcomes] == [False, True]

    run_virtual(main())


def test_a_lost_batch_is_settled_by_a_barrier_before_anything_is_decided_again() -> None:
    async def main() -> None:
        cluster, faults = Cluster(), Scripted()
        process = await cluster.start(faults)
        await opened(process)
        position = cluster.storage.end(0)
        faults.appends = [AppendFault(late_seconds=1.0)]
        answer = await process.do(RUN.append("k/1"))
        kinds = [decode(entry.data).kind for entry in cluster.storage.entries(0, position)]
        assert kinds == ["barrier", "record"]
        await cluster.storage.settle()
        assert answer["id"].endswith(f"{position + 1:x}")
        await process.do(RUN.append("k/2"))
        assert [key for key, _ in await records(process)] == [RUN.started_key, "k/1", "k/2"]
        await check_whole(cluster, process)

    run_virtual(main())


def test_a_refused_append_is_unavailable_and_writes_nothing() -> None:
    async def main() -> None:
        cluster, faults = Cluster(), Scripted()
        process = await cluster.start(faults)
        await opened(process)
        faults.appends = [AppendFault(refused=True)]
        end = cluster.storage.end(0)
        assert await process.code(RUN.append("k/1")) == "unavailable"
        assert cluster.storage.end(0) == end
        assert (await process.do(RUN.append("k/1")))["inserted"] is True

    run_virtual(main())


def test_while_the_log_is_down_callers_are_told_unavailable_in_time_and_later_it_works_again() -> None:
    async def main() -> None:
        cluster, faults = Cluster(), Scripted()
        process = await cluster.start(faults)
        await opened(process)
        faults.down = True
        loop = asyncio.get_running_loop()
        asked = loop.time()
        codes = await asyncio.gather(*(process.code(RUN.append(f"k/{n}")) for n in range(3)))
        assert set(codes) == {"unavailable"}
        assert loop.time() - asked < 5
        faults.down = False
        answers = [await process.do(RUN.append(f"k/{n}")) for n in range(3)]
        assert [answer["inserted"] for answer in answers] == [True] * 3
        await check_whole(cluster, process)

    run_virtual(main())


def test_a_writer_that_others_defeat_gives_up_and_says_so() -> None:
    class Rival(Faults):
        """Another writer always lands first."""

        appends = 0

        def on_append(self, partition: int, position: int, batch: Sequence[bytes]) -> AppendFault:
            del position, batch
            self.appends += 1
            if self.appends > 2:
                cluster.storage.land(partition, [cluster.storage.entries(partition)[-1].data])
            return AppendFault()

    cluster = Cluster()

    async def main() -> None:
        rival = Rival()
        process = await cluster.start(rival)
        await opened(process)
        assert await process.code(RUN.append("k/1")) == "unavailable"
        assert rival.appends == 2 + voids_in_a_row_max

    run_virtual(main())


def test_two_writers_of_one_partition_lose_and_double_nothing() -> None:
    async def main() -> None:
        cluster = Cluster()
        one, other = await cluster.start(), await cluster.start()
        await opened(one)
        commands = [RUN.append(f"k/{n}") for n in range(30)]

        async def write(process: Process) -> list[Any]:
            return [await until_done(process, command) for command in commands]

        answers = await asyncio.gather(write(one), write(other))
        for left, right in zip(*answers, strict=True):
            assert left["id"] == right["id"]
            assert (left["inserted"], right["inserted"]) != (True, True)
        await check_whole(cluster, one, other)

    run_virtual(main())


async def until_done(process: Process, command: Any) -> Any:
    """Repeat a command exactly for as long as it is unavailable."""
    while True:
        try:
            return await process.do(command)
        except Refused as refused:
            if refused.code.value != "unavailable":
                raise
            await asyncio.sleep(0.01)


def test_a_zombie_answers_nothing_from_an_old_state() -> None:
    async def main() -> None:
        cluster = Cluster()
        one, zombie = await cluster.start(), await cluster.start()
        await opened(one)
        assert (await zombie.do(RUN.append("k/1")))["inserted"] is True
        await one.do(RUN.end("failed"))
        await one.do(end_session("s1"))
        assert await zombie.code(RUN.append("k/2")) == "run_not_active"
        assert (await zombie.do(RUN.append("k/1")))["session_status"] == "ended"
        assert (await zombie.store.load_run("r1")).status == "failed"  # type: ignore[union-attr]

    run_virtual(main())


def test_a_full_queue_is_unavailable_at_once_and_loses_nothing() -> None:
    async def main() -> None:
        cluster, faults = Cluster(), Scripted()
        process = await cluster.start(faults, limits=QueueLimits(queue_commands_max=10, batch_commands_max=4))
        await opened(process)
        faults.appends = [AppendFault(delay_seconds=1.0)]
        first = asyncio.create_task(process.do(RUN.append("k/first")))
        await asyncio.sleep(0.1)
        results = await asyncio.gather(*(process.do(RUN.append(f"k/{n}")) for n in range(15)), return_exceptions=True)
        refused = [result for result in results if isinstance(result, Refused)]
        assert [each.code.value for each in refused] == ["unavailable"] * 5
        assert all("queue is full" in each.refusal.detail for each in refused)
        await first
        assert len(await records(process)) == 1 + 1 + 10
        await check_whole(cluster, process)

    run_virtual(main())


def test_commands_in_order_stop_after_one_is_unavailable_and_go_on_after_a_refusal() -> None:
    async def main() -> None:
        cluster, faults = Cluster(), Scripted()
        process = await cluster.start(faults, limits=QueueLimits(batch_commands_max=1))
        await opened(process)

        bad = RUN.append("k/2").but("record.agent_id", "someone else")
        outcomes = await process.store.execute_in_order(parsed(RUN.append("k/1"), bad, RUN.append("k/3")))
        assert [getattr(outcome, "code", "done") for outcome in outcomes] == ["done", "record_owner_mismatch", "done"]
        faults.appends = [AppendFault(), AppendFault(refused=True)]
        outcomes = await process.store.execute_in_order(
            parsed(RUN.append("k/4"), RUN.append("k/5"), RUN.append("k/6"), RUN.append("k/7"))
        )
        assert [getattr(outcome, "code", "done") for outcome in outcomes] == ["done"] + ["unavailable"] * 3
        assert [key for key, _ in await records(process)] == [RUN.started_key, "k/1", "k/3", "k/4"]

    run_virtual(main())


@pytest.mark.parametrize("seed", range(60))
def test_nothing_acknowledged_is_lost_or_doubled_under_seeded_faults(seed: int) -> None:
    async def main() -> None:
        cluster = Cluster(seed)
        calm = await cluster.start()
        await opened(calm)
        processes = [await cluster.start(SeededFaults(random.Random(seed * 10 + n), rate=0.3)) for n in range(2)]
        acknowledged: dict[str, str] = {}
        inserted: list[str] = []

        async def client(number: int) -> None:
            choose = random.Random(seed * 100 + number)
            for n in range(12):
                # Half of the keys are shared between clients, so that exact retries race.
                key = f"k/{n}" if choose.random() < 0.5 else f"k/{number}/{n}"
                answer = await until_done(choose.choice(processes), RUN.append(key))
                assert acknowledged.setdefault(key, answer["id"]) == answer["id"]
                if answer["inserted"]:
                    inserted.append(key)

        await asyncio.gather(*(client(number) for number in range(4)))
        assert len(inserted) == len(set(inserted))
        await cluster.storage.settle()
        await check_whole(cluster, calm, *(await reopened(cluster, processes)))
        assert acknowledged.items() <= dict(await records(calm)).items()

    run_virtual(main())


async def reopened(cluster: Cluster, processes: Sequence[Process]) -> list[Process]:
    """The same processes without faults, as after a restart."""
    for process in processes:
        await process.store.close()
    return [await cluster.start() for _ in processes]


def test_a_fault_of_ours_on_one_command_does_not_touch_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(view: Any, record: Any) -> None:
        if record.event_key == "k/poison":
            raise ZeroDivisionError
        fold(view, record)

    async def main() -> None:
        cluster = Cluster()
        process = await cluster.start()
        await opened(process)
        monkeypatch.setattr(engine.batch, "fold", broken)
        results = await asyncio.gather(
            *(process.do(RUN.append(key)) for key in ("k/1", "k/poison", "k/2")), return_exceptions=True
        )
        assert [type(result) for result in results] == [dict, Refused, dict]
        assert [key for key, _ in await records(process)] == [RUN.started_key, "k/1", "k/2"]
        await check_whole(cluster, process)

    run_virtual(main())


def test_a_session_whose_key_is_missing_is_broken_and_the_others_go_on() -> None:
    async def main() -> None:
        cluster = Cluster()
        process = await cluster.start()
        await opened(process)
        other = Run("r2", "s2")
        await process.do(create_session("s2"))
        await process.do(other.start())
        for key_id in [key_id for key_id, (owner, _) in cluster.keys.keys.items() if owner == "session:s1"]:
            del cluster.keys.keys[key_id]
        after = await cluster.start()
        assert await after.code(RUN.append("k/1")) == "unavailable"
        assert (await after.do(other.append("k/1")))["inserted"] is True

    run_virtual(main())


def test_appended_at_never_runs_backwards() -> None:
    async def main() -> None:
        cluster = Cluster()
        process = await cluster.start()
        await opened(process)
        for jump in (10_000, -50_000, 0, -1):
            cluster.environment.jump_ms = jump
            await process.do(RUN.append(f"k/{jump}"))
        times = [decode(entry.data).appended_at for entry in cluster.storage.entries(0)]
        assert times == sorted(times)

    run_virtual(main())


def test_a_log_that_is_cut_while_it_is_written_is_noticed_before_anything_is_acknowledged_on_it() -> None:
    async def main() -> None:
        cluster = Cluster()
        process = await cluster.start()
        await opened(process)
        await process.do(RUN.append("k/1"))
        await process.do(RUN.append("k/2"))
        cluster.storage.truncate(0, cluster.storage.end(0) - 1)
        answers = [await until_done(process, RUN.append(f"after/{n}")) for n in range(4)]
        assert all(answer["inserted"] for answer in answers)
        await check_whole(cluster, process)
        assert [key for key, _ in await records(process)] == [
            RUN.started_key, "k/1", *(f"after/{n}" for n in range(4)),
        ]  # fmt: skip

    run_virtual(main())


def test_a_read_on_a_log_that_was_cut_ends() -> None:
    async def main() -> None:
        cluster = Cluster()
        process = await cluster.start()
        await opened(process)
        await process.do(RUN.append("k/1"))
        cluster.storage.truncate(0, cluster.storage.end(0) - 1)
        await asyncio.wait_for(process.store.load_run("r1"), 60)
        await asyncio.sleep(1)
        assert [key for key, _ in await records(process)] == [RUN.started_key]

    run_virtual(main())


def test_no_read_is_answered_by_a_process_that_is_cut_off_from_the_log() -> None:
    async def main() -> None:
        cluster, faults = Cluster(), Scripted()
        cut_off, other = await cluster.start(faults), await cluster.start()
        await opened(cut_off)
        faults.appends = [AppendFault(refused=True)] * 100
        await other.do(end_session("s1"))
        faults.down = True
        command = asyncio.create_task(cut_off.code(RUN.append("k/1")))
        await asyncio.sleep(0)
        status = await cut_off.store.load_session_status("s1")
        assert getattr(status, "code", status) == "unavailable"
        assert await command == "unavailable"

    run_virtual(main())


def test_a_reader_that_goes_away_disturbs_nobody() -> None:
    async def main() -> None:
        cluster, faults = Cluster(), Scripted()
        process = await cluster.start(faults)
        await opened(process)
        faults.appends = [AppendFault(delay_seconds=1.0)]
        command = asyncio.create_task(process.do(RUN.append("k/1")))
        await asyncio.sleep(0.1)
        impatient = asyncio.create_task(process.store.load_run("r1"))
        patient = asyncio.create_task(process.store.load_run("r1"))
        await asyncio.sleep(0.1)
        impatient.cancel()
        assert (await command)["inserted"] is True
        assert (await patient).status == "running"  # type: ignore[union-attr]
        assert process.store.ready()

    run_virtual(main())


def test_another_busy_writer_does_not_keep_an_answer_waiting_for_ever() -> None:
    class Busy(Faults):
        """The log grows at each question for its end."""

        def on_read(self, partition: int, position: int) -> ReadFault:
            del position
            if busy:
                cluster.storage.land(partition, [cluster.storage.entries(partition)[-1].data])
            return ReadFault()

    cluster, busy = Cluster(), False

    async def main() -> None:
        nonlocal busy
        process = await cluster.start(Busy())
        await opened(process)
        busy = True
        loop = asyncio.get_running_loop()
        asked = loop.time()
        assert await process.code(RUN.append("k/1").but("record.agent_id", "x")) == "record_owner_mismatch"
        assert loop.time() - asked < 5
        busy = False

    run_virtual(main())


def test_a_start_whose_reservation_is_unavailable_stops_what_comes_after_it() -> None:
    class Refusing(Faults):
        def on_append(self, partition: int, position: int, batch: Sequence[bytes]) -> AppendFault:
            del position, batch
            return AppendFault(refused=partition == refused_partition)

    refused_partition = -1

    async def main() -> None:
        nonlocal refused_partition
        cluster = Cluster(partitions=8)
        process = await cluster.start(Refusing())
        home = place("s1")
        run = next(run for n in range(100) if place((run := Run(f"far-{n}", "s1")).run_id) != home)
        await process.do(create_session("s1"))
        refused_partition = place(run.run_id)
        commands = [run.start(), run.append(), run.end()]
        outcomes = await process.store.execute_in_order(parsed(*commands))
        assert [getattr(outcome, "code", "done") for outcome in outcomes] == ["unavailable"] * 3

    run_virtual(main())


def test_a_lost_batch_is_settled_although_nobody_asks_again() -> None:
    async def main() -> None:
        cluster, faults = Cluster(), Scripted()
        process = await cluster.start(faults)
        await opened(process)
        await process.do(RUN.end())
        await process.do(end_session("s1"))
        faults.appends = [AppendFault(answer=Answer.NONE)]
        purge = asyncio.create_task(process.code(purge_session("s1")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        faults.down = True
        assert await purge == "unavailable"
        assert any(owner == "session:s1" for owner, _ in cluster.keys.keys.values())
        faults.down = False
        for _ in range(1000):
            if not any(owner == "session:s1" for owner, _ in cluster.keys.keys.values()):
                break
            await asyncio.sleep(0.01)
        assert not any(owner == "session:s1" for owner, _ in cluster.keys.keys.values())

    run_virtual(main())


def test_a_rebuild_on_a_log_that_was_cut_ends_and_says_so() -> None:
    # It asked for what is not there any more, again and again, and nothing else ran.
    async def main() -> None:
        cluster = Cluster()
        process = await cluster.start()
        await opened(process)
        await process.do(RUN.append("k/1"))
        cluster.storage.truncate(0, cluster.storage.end(0) - 1)
        assert "truncated or rewritten" in await process.store.partitions[0].rebuild()
        await asyncio.sleep(1)
        assert process.store.ready()
        assert [key for key, _ in await records(process)] == [RUN.started_key]
        await check_whole(cluster, process)

    run_virtual(main())
