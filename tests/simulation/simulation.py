"""One seed's bad day: callers and weather over a cluster, then the calm, judged from the first command to the last."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from tests.contract.builders import purge_session
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.inspection import Inspection
from tests.simulation.scenario import scenario_of
from tests.simulation.virtual_time import VirtualLoop
from tests.simulation.weather import Weather


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a seed. `trace` is the SHA-256 of everything that happened; `failure` is empty if all was well."""

    seed: int
    commands: int
    reads: int
    trace: str
    failure: str


def simulate(seed: int, tell: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed to its end; `tell` is given each line of its story."""
    complaints = _Complaints()
    logger = logging.getLogger("runstore")
    before = logger.propagate
    logger.addHandler(complaints)
    logger.propagate = False
    failure = ""
    loop = VirtualLoop(forgets=True)
    cluster = SimulatedCluster(scenario_of(seed), tell)
    try:
        loop.run_until_complete(_story(cluster))
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 # any is this seed's failure
        failure = f"{type(error).__name__}: {error}"
    finally:
        loop.forget()
        loop.close()
        logger.removeHandler(complaints)
        logger.propagate = before
    if not failure and complaints.unexpected:
        failure = f"the store met what it did not expect: {complaints.unexpected[0]}"
    if not failure and complaints.rewritten and not cluster.was_cut:
        failure = f"the store takes a sound log for another: {complaints.rewritten[0]}"
    return Outcome(seed, cluster.writes, cluster.reads, cluster.trace, failure)


async def _story(cluster: SimulatedCluster) -> None:
    """Let everything happen, then let it calm down, then look at everything."""
    await cluster.boot()
    inspection = Inspection(cluster)
    weather = Weather(cluster, inspection)
    callers = [_call(cluster, number) for number in range(cluster.scenario.clients)]
    await _together(cluster, callers, [weather.blow(change, times) for change, times in weather.changes() if times])
    if cluster.scenario.outages:
        await _purge_unheard(cluster)
    await inspection.calm()
    await inspection.look()
    cluster.judge.finish()


async def _purge_unheard(cluster: SimulatedCluster) -> None:
    """Purges that may get into the log, of which nobody hears, and after which nobody asks for anything."""
    process = cluster.reachable(cluster.random)
    for each in cluster.slots:
        each.faults.down = True
    for session_id, session in list(cluster.judge.model.sessions.items()):
        if process is not None and process.serves and session["status"] == "ended":
            await cluster.send(process, purge_session(session_id))


async def _call(cluster: SimulatedCluster, number: int) -> None:
    """One caller: it thinks, sends a command to one of the processes, and waits for the answer."""
    scenario = cluster.scenario
    source = random.Random(f"caller {scenario.seed} {number}")
    while cluster.left > 0:
        await asyncio.sleep(source.random() * scenario.think_seconds_max)
        while cluster.held:
            await asyncio.sleep(0.05)
        process = cluster.reachable(source)
        if process is None:
            await asyncio.sleep(0.1)
        elif scenario.batches and source.random() < 0.1:
            commands = cluster.commands.batch()
            cluster.take(len(commands))
            await cluster.send_in_order(process, commands)
        elif scenario.partitions > 1 and source.random() < 0.04:
            cluster.take(2)
            other = cluster.reachable(source) or process
            one, two = cluster.commands.twins()
            await asyncio.gather(cluster.send(process, one), cluster.send(other, two))
        else:
            cluster.take(1)
            await cluster.send(process, cluster.commands.next())


async def _together(
    cluster: SimulatedCluster, work: Sequence[Coroutine[Any, Any, None]], weather: Sequence[Coroutine[Any, Any, None]]
) -> None:
    """Do the work while there is weather; the first error ends both."""
    tasks = [asyncio.ensure_future(each) for each in work]
    others = [asyncio.ensure_future(each) for each in weather]
    try:
        while any(not task.done() for task in tasks):
            waiting = [task for task in [*tasks, *others] if not task.done()]
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=[*tasks, *others].index):
                task.result()
            cluster.raise_problem()
    finally:
        cluster.over = True
        for task in [*tasks, *others]:
            task.cancel()
        await asyncio.gather(*tasks, *others, return_exceptions=True)
    cluster.raise_problem()


class _Complaints(logging.Handler):
    """Remembers what the store logged about errors that it did not expect, and about logs that were rewritten."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.unexpected: list[str] = []
        self.rewritten: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.unexpected.append(logging.Formatter().format(record))
        elif "truncated or rewritten" in record.getMessage():
            self.rewritten.append(record.getMessage())
