"""The end of a simulation: the calm after which everything must serve, and a look at everything."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from engine.logs.simulated import SimulatedLogStorage
from engine.purges import retry_seconds_max
from projections.rebuild import verify
from projections.view import MemoryView
from schemas.refusals import Refusal
from service import render
from tests.contract.builders import Command
from tests.model.reference import counts
from tests.simulation.cluster import SimulatedCluster, quiet
from tests.simulation.history import Violation
from tests.simulation.judge import UNKNOWN
from tests.simulation.process import Process

calm_seconds_max: Final = 60.0
"""How long the cluster may take, once nothing goes wrong any more, until everything serves and is answered."""


class Inspection:
    """Looks at a cluster. Raises `Violation`."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    async def calm(self) -> None:
        """Let nothing go wrong any more, and wait until everything serves."""
        self._cluster.over = True
        for process in self._cluster.slots:
            quiet(process)
            if process.host.paused:
                process.host.resume()
            if process.keys.failed or self._cluster.random.random() < 0.4:
                process.kill("to start again in the calm")
        await self._cluster.storage.settle()
        deadline = asyncio.get_running_loop().time() + calm_seconds_max
        for slot in range(len(self._cluster.slots)):
            await self._cluster.restart(slot)
        while not all(process.store is not None and process.store.ready() for process in self._cluster.slots):
            await asyncio.sleep(0.1)
            if asyncio.get_running_loop().time() > deadline:
                states = [await process.ask(process.store.status()) for process in self._cluster.slots if process.store]
                raise Violation(f"not everything serves after {calm_seconds_max} calm seconds: {states}")
        for process in self._cluster.slots:
            process.slept = False
        # Time to settle what was lost and to finish purges, with nobody asking.
        await asyncio.sleep(5 if not self._cluster.scenario.purge_fault_rate else 2 * retry_seconds_max)
        self._cluster.note("calm")
        self._cluster.raise_problem()
        self._cluster.judge.check_keys()
        for process in self._cluster.slots:
            assert process.store is not None
            kept = process.store._sealer._ciphers.keys()
            if not self._cluster.judge.purged_keys().isdisjoint(kept):
                raise Violation(f"{process.name} has the key of a purged session at hand")

    async def look(self) -> None:
        """Settle every open outcome by repeating the call, then read everything everywhere, and compare."""
        for call in [call for call in self._cluster.judge.calls if call.content is not None and call.answer == UNKNOWN]:
            await self._surely(self._cluster.random.choice(self._cluster.slots), call.command)
        process = self._cluster.random.choice(self._cluster.slots)
        for command in self._reads():
            await self._surely(process, command)
        await self._check_views(process)
        for process in self._cluster.slots:
            for partition in range(self._cluster.scenario.partitions):
                await self._surely(process, Command("load_session_status", {"session_id": f"session-{partition}"}))
        positions: dict[int, set[tuple[int, str]]] = {}
        for process in self._cluster.slots:
            for partition in range(self._cluster.scenario.partitions):
                positions.setdefault(partition, set()).add(await self.compare(process, partition))
        for partition, found in positions.items():
            if len(found) != 1:
                raise Violation(f"partition {partition}: {found}")
        self._cluster.raise_problem()

    async def _surely(self, process: Process, command: Command) -> object:
        """Send a command until it is answered, which must not take long."""
        deadline = asyncio.get_running_loop().time() + calm_seconds_max
        while True:
            answer = await self._cluster.send(process, command)
            self._cluster.raise_problem()
            if answer != UNKNOWN:
                return answer
            if not self._cluster.was_cut:
                raise Violation(f"{command} is unavailable, and nothing goes wrong any more")
            if asyncio.get_running_loop().time() > deadline:
                raise Violation(f"{command} stays unavailable while nothing goes wrong")
            await asyncio.sleep(0.05)

    def _reads(self) -> list[Command]:
        model = self._cluster.judge.model
        found: list[Command] = []
        for session_id in [*model.sessions, *sorted(model.purged_sessions)]:
            found.append(Command("load_session", {"session_id": session_id}))
            found.append(Command("list_runs_by_session", {"session_id": session_id, "statuses": []}))
            found.append(Command("list_session_records", {"session_id": session_id, "cursor": "", "limit": 1000}))
        for run_id in [*model.runs, *sorted(model.purged_runs)]:
            found.append(Command("list_run_records", {"run_id": run_id, "cursor": "", "limit": 1000}))
            found.append(Command("load_checkpoint", {"run_id": run_id}))
            if run_id not in model.runs or not model.runs[run_id].start["session_id"]:
                found.append(Command("load_run", {"run_id": run_id}))
        return found

    async def compare(self, process: Process, partition: int) -> tuple[int, str]:
        """Fold the log into a fresh projection, and compare it with the one that serves."""
        assert process.store is not None
        live = process.store.partitions[partition].projection.view
        assert isinstance(live, MemoryView)
        seen = live.copy()
        source = _Source(self._cluster.storage)
        found = await verify(source, partition, seen, MemoryView(), voids_legal=not self._cluster.scenario.exclusive)
        if not found.equal:
            raise Violation(f"{process.name}, partition {partition}: live is not what the log says: {found.difference}")
        for number in self._cluster.judge.purged_numbers(partition) if self._cluster.over else ():
            owner = number.to_bytes(8, "big")
            for key, _ in seen.scan(b"a", b"{", 1_000_000):
                if key[1:9] == owner:
                    raise Violation(f"{process.name}, partition {partition}: rows of a purged session are left")
        shown = f"{process.name}, partition {partition}, up to {found.position}: as a fresh fold of the log"
        self._cluster.note("same", process.name, partition, found.position, found.live, shown=shown)
        return found.position, found.live

    async def _check_views(self, process: Process) -> None:
        """The views of sessions and runs tell what the model does."""
        store, model = process.store, self._cluster.judge.model
        assert store is not None
        for session_id in model.sessions:
            seen = _counted(render.session_detail(await self._view(process, store.session_detail(session_id))))
            expected = counts(model.runs_of(session_id))
            if seen["run_counts"] != expected or seen["session"] != model.session(session_id):
                raise Violation(f"session {session_id}: {seen} where {expected} are its runs")
            await self._check_types(process, "session", session_id)
        for run_id in model.runs:
            await self._check_types(process, "run", run_id)
            shown = render.run_detail(await self._view(process, store.run_detail(run_id)))
            wanted = model.view_run(run_id)
            if shown != wanted:
                raise Violation(f"run {run_id}: {shown} where {wanted} is right")
        page = render.session_page(await self._view(process, store.list_sessions("", "", 1000)))
        listed, known = [_counted(each) for each in page["sessions"]], model.view_sessions({"limit": 1000})["sessions"]
        if listed != known:
            raise Violation(f"sessions: {listed} where {known} is right")

    async def _check_types(self, process: Process, name: str, value: str) -> None:
        """Records of some types alone."""
        store, model = process.store, self._cluster.judge.model
        assert store is not None
        types = sorted({record["type"] for record in model.log if record[f"{name}_id"] == value})[:2]
        listing = store.list_run_records if name == "run" else store.list_session_records
        page = render.page(await self._view(process, listing(value, "", 1000, types)))["records"]
        wanted = model.view_records(name, value, {"limit": 1000, "type": ",".join(types)})["records"]
        if page != wanted:
            raise Violation(f"{name} {value}, types {types}: {page} where {wanted} is right")

    async def _view(self, process: Process, reading: Coroutine[Any, Any, Any]) -> Any:
        found = await process.ask(reading)
        self._cluster.raise_problem()
        if isinstance(found, Refusal):
            raise Violation(f"{process.name}: a view is refused: {found}")
        return found


class _Source:
    """The log as it is, for a reader to whom nothing goes wrong."""

    def __init__(self, storage: SimulatedLogStorage) -> None:
        self._storage = storage

    async def read(self, partition: int, position: int, records_max: int = 250) -> Sequence[Any]:
        return self._storage.entries(partition, position, records_max)


def _counted(session: Any) -> dict[str, Any]:
    """A session as it is shown, with the statuses that any run is in."""
    return {**session, "run_counts": {status: count for status, count in session["run_counts"].items() if count}}
