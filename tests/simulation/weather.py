"""What happens to a cluster from outside: crashes, sleep, clocks, rebuilds, a log that is cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from tests.simulation.cluster import SimulatedCluster
from tests.simulation.inspection import Inspection
from tests.simulation.process import Process

Change = Callable[[], Coroutine[Any, Any, None]]


ALWAYS: Final = 1_000_000
"""How often what is looked after again and again comes, in place of a number of times."""


class Weather:
    """The changes of one simulation, each as often as its scenario says, spread over the commands."""

    def __init__(self, cluster: SimulatedCluster, inspection: Inspection) -> None:
        self._cluster = cluster
        self._inspection = inspection

    def changes(self) -> list[tuple[Change, int]]:
        scenario = self._cluster.scenario
        return [
            (self._crash, scenario.crashes),
            (self._sleep, scenario.pauses),
            (self._jump, scenario.clock_jumps),
            (self._rebuild, scenario.rebuilds),
            (self._verify, 4 if "split" in scenario.read_faults else 1),
            (self._cut, scenario.cuts),
            (self._outage, scenario.outages),
            (self._revive, ALWAYS if scenario.failpoint_rate or scenario.key_fault_rate else 0),
        ]

    async def blow(self, change: Change, times: int) -> None:
        total = self._cluster.scenario.commands
        moments = sorted(self._cluster.random.randrange(total) for _ in range(min(times, 10)))
        if times == ALWAYS:
            while True:
                await asyncio.sleep(0.2)
                await change()
        for moment in moments:
            await self._cluster.until_sent(moment)
            await asyncio.sleep(self._cluster.random.random() * self._cluster.scenario.think_seconds_max)
            await change()

    async def _crash(self) -> None:
        await asyncio.sleep(self._cluster.random.random() * 0.01)
        slot = self._cluster.random.randrange(len(self._cluster.slots))
        process = self._cluster.slots[slot]
        if self._cluster.random.random() < 0.5:
            process.files.remember()
            await asyncio.sleep(self._cluster.random.random() * 0.1)
        if process.alive:
            process.kill("crashed")
            self._cluster.note("crash", process.name)
        await asyncio.sleep(self._cluster.random.random() * 0.5)
        await self._cluster.restart(slot)

    async def _sleep(self) -> None:
        await asyncio.sleep(self._cluster.random.random() * 0.01)
        process = self._pick()
        if not process.alive or process.host.paused:
            return
        process.pause()
        self._cluster.note("asleep", process.name)
        await asyncio.sleep(self._cluster.random.choice((0.05, 0.5, 5.0)) * self._cluster.random.random())
        process.host.resume()
        self._cluster.note("awake", process.name)

    async def _outage(self) -> None:
        """Nobody, or one process, reaches the log for some seconds."""
        processes = self._cluster.slots if self._cluster.random.random() < 0.5 else [self._pick()]
        down = list(processes)
        for process in down:
            process.faults.down = True
        self._cluster.note("down", *(process.name for process in down))
        await asyncio.sleep(self._cluster.random.choice((0.5, 3.0, 5.0)) * self._cluster.random.random())
        for process in down:
            process.faults.down = False
        self._cluster.note("up")

    def _pick(self) -> Process:
        return self._cluster.random.choice(self._cluster.slots)

    async def _jump(self) -> None:
        process = self._pick()
        process.environment.jump_ms += self._cluster.random.choice((-86_400_000, -1000, -1, 1, 1000, 86_400_000))
        self._cluster.jumps.add(process.environment.jump_ms)
        self._cluster.note("clock", process.name, process.environment.jump_ms)

    async def _rebuild(self) -> None:
        process = self._pick()
        if process.serves and process.store is not None:
            self._cluster.note("rebuild", process.name)
            await process.ask(process.store.start_rebuild())

    async def _verify(self) -> None:
        process = self._pick()
        if process.serves and process.store is not None and not process.host.paused:
            for partition in process.store.partitions:
                if process.alive and partition.ready and not self._cluster.was_cut:
                    await self._inspection.compare(process, partition.number)

    async def _revive(self) -> None:
        """Start again what died by itself, and what says that it must be started again."""
        for slot, process in enumerate(self._cluster.slots):
            if process.alive and process.keys.failed and not process.host.paused:
                process.kill("its key store failed")
                self._cluster.note("stopped", process.name)
            if not process.alive and not self._cluster.held:
                await self._cluster.restart(slot)

    async def _cut(self) -> None:
        """The log forgets its end, as one does that was configured to, while a process sleeps; others write on."""
        self._cluster.held = True
        while self._cluster.judge.open_calls():
            await asyncio.sleep(0.05)
        await self._cluster.storage.settle()
        purged = [landing.position for landing in self._cluster.judge.landings if landing.method == "purge_session"]
        ends = [end for end in [0, *self._cluster.judge.histories[0].ends()] if end > max(purged, default=-1)]
        if len(ends) > 1:
            end = self._cluster.random.choice(ends[:-1])
            log_end = self._cluster.storage.end(0)
            self._cluster.note("cut", end, log_end)
            self._cluster.was_cut = True
            rebuilding = self._pick()
            if self._cluster.random.random() < 0.5 and rebuilding.serves and rebuilding.store is not None:
                # One that reads while the log is cut must not take the place of what was read anew.
                self._cluster.note("rebuild", rebuilding.name)
                rebuilding.host.spawn(rebuilding.store.start_rebuild())
                await asyncio.sleep(self._cluster.random.random() * 4 * self._cluster.scenario.latency_seconds_max)
            lost = [entry.data for entry in self._cluster.storage.entries(0, end)]
            self._cluster.storage.truncate(0, end)
            self._cluster.judge.cut(0, end)
            self._cluster.commands.cursors.clear()
            self._cluster.ghost = (end, lost[: self._cluster.random.randint(0, len(lost))])
            slot = self._cluster.random.randrange(len(self._cluster.slots))
            restarts = self._cluster.random.random() < 0.5 and self._cluster.slots[slot].alive
            if restarts:
                self._cluster.slots[slot].kill("while the log was cut")
            await asyncio.sleep(1.5)
            self._cluster.held = False
            if restarts:
                await asyncio.sleep(self._cluster.random.random() * 10 * self._cluster.scenario.think_seconds_max)
                await self._cluster.restart(slot)
        self._cluster.held = False
