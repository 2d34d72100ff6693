"""Kill a serving store with SIGKILL under load, again and again, and account for every command.

    bin/faults kill --kills 50 --seed 1

Each worker owns a session and tells a story in it: appends, child runs (two records in one command, and a reservation
in another partition), suspensions with a checkpoint, continuations, terminals. It repeats each command exactly until it
is answered. After every kill, before the workers go on, whatever was on its way is looked at: it is there whole or not
at all. At the end the store holds exactly what was acknowledged, in order, once, and `verify` agrees.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from tests.contract.builders import Command, Run, create_session
from tests.faults.command import interruptible, parser, verdict, whole
from tests.faults.folders import ROOT, module_environment

WORKERS = 24
LOAD_SECONDS = (0.1, 0.5)
SERVING = "runstore serving on "


class Server:
    """The store's own command line, serving; killed and started again on the same data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self.url = ""

    async def start(self) -> float:
        """Start and return after how many seconds it was ready."""
        began = time.monotonic()
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bin.cli", "serve", "--listen", "127.0.0.1:0", "--log-level", "warning"),
            *("--data-dir", str(self._folder)),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=module_environment(),
        )
        assert self._process.stdout is not None
        said = b""
        while not (line := await self._process.stdout.readline()).startswith(SERVING.encode()):
            said += line
            if not line:
                raise AssertionError(f"the store did not start again: {said.decode()}")
        self.url = line.decode().removeprefix(SERVING).strip()
        return time.monotonic() - began

    async def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        assert await self._process.wait() == -signal.SIGKILL

    async def stop(self) -> None:
        """SIGTERM: a graceful stop."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            assert await self._process.wait() == 0

    async def abandon(self) -> None:
        """Leave no process behind, whatever went wrong."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


@dataclass
class Worker:
    """One session's story, what was acknowledged of it, and what is on its way."""

    number: int
    random: random.Random
    acknowledged: dict[str, dict[str, str]] = field(default_factory=dict)
    """Run ID to event key to record ID."""
    checkpoints: dict[str, str] = field(default_factory=dict)
    in_flight: Command | None = None
    commands: int = 0

    def note(self, command: Command, answer: Any) -> None:
        """Remember the records that an answer acknowledges."""
        for name, result in self.results(answer):
            record = command.args[name]
            known = self.acknowledged.setdefault(record["run_id"], {})
            former = known.setdefault(record["event_key"], result["id"])
            assert former == result["id"], "a repeat was answered with another ID"
        if command.method == "record_suspension":
            self.checkpoints[command.args["run_id"]] = command.args["checkpoint"]["data"]

    @staticmethod
    def results(answer: Any) -> list[tuple[str, Any]]:
        """The append results of an answer by the record they are for."""
        if "id" in answer:
            return [("record", answer)]
        return [(name, answer[name]) for name in ("parent_linked", "started") if name in answer]


class Campaign:
    """Workers, a server, and the kills between them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._server = Server(folder)
        self._random = random.Random(seed)
        self.workers = [Worker(n, random.Random(seed * 1000 + n)) for n in range(WORKERS)]
        self._up = asyncio.Event()
        self._done = False
        self._client: httpx.AsyncClient | None = None
        self.restart_seconds: list[float] = []
        self.in_flight_seen = {"whole": 0, "absent": 0}

    async def run(self, kills: int) -> None:
        """Kill the store so many times, then account for everything."""
        try:
            await self._run(kills)
        finally:
            await self._server.abandon()

    async def _run(self, kills: int) -> None:
        await self._start()
        self._up.set()
        working = [asyncio.create_task(self._work(worker)) for worker in self.workers]
        for _ in range(kills):
            await asyncio.sleep(self._random.uniform(*LOAD_SECONDS))
            self._up.clear()
            await self._server.kill()
            self.restart_seconds.append(await self._start())
            await self._check_in_flight()
            self._up.set()
        self._done = True
        await asyncio.gather(*working)
        for worker in self.workers:
            await self._account(worker)
        await self.client.aclose()
        await self._server.stop()

    @property
    def client(self) -> httpx.AsyncClient:
        """A client of the server as it runs now."""
        assert self._client is not None
        return self._client

    async def _start(self) -> float:
        """Start the server, with a client of its own: connections to a killed one are worth nothing."""
        seconds = await self._server.start()
        if self._client is not None:
            await self._client.aclose()
        self._client = httpx.AsyncClient(
            base_url=self._server.url,
            timeout=30,
            trust_env=False,
            verify=False,  # noqa: S501 # plain HTTP; loading certificates takes a while
        )
        return seconds

    async def _work(self, worker: Worker) -> None:
        session = f"session-{worker.number}"
        await self._do(worker, create_session(session))
        root = Run(f"run-{worker.number}", session, labels={"worker": str(worker.number)})
        await self._do(worker, root.start())
        step = 0
        while not self._done:
            step += 1
            match worker.random.randrange(6):
                case 0:
                    child = Run(f"{root.run_id}/child-{step}", session, parent=root.run_id)
                    await self._do(worker, child.start())
                    await self._do(worker, child.append())
                    await self._do(worker, child.end(worker.random.choice(["completed", "failed"])))
                case 1:
                    await self._do(worker, root.suspend(data=worker.random.randbytes(200)))
                    root = Run(f"{root.run_id}+", session, predecessor=root.run_id, labels=root.labels)
                    await self._do(worker, root.start())
                case _:
                    payload = f'{{"step": {step}, "text": "{worker.random.randbytes(100).hex()}"}}'
                    await self._do(worker, root.append(f"step/{step}", payload))

    async def _do(self, worker: Worker, command: Command) -> None:
        """Repeat a command exactly until it is answered."""
        worker.in_flight = command
        while True:
            await self._up.wait()
            try:
                answer = await self.client.post(f"/v1/store/{command.method}", json=command.args)
            except (httpx.HTTPError, RuntimeError):  # RuntimeError: the client was closed with the killed server
                await asyncio.sleep(0.01)
                continue
            if answer.status_code == 503:
                await asyncio.sleep(0.01)
                continue
            assert answer.status_code == 200, (command, answer.text)
            worker.note(command, answer.json())
            worker.commands += 1
            worker.in_flight = None
            return

    async def _check_in_flight(self) -> None:
        """What was on its way when the store died is there whole, or not at all."""
        for worker in self.workers:
            if worker.in_flight is not None:
                present = await self._parts(worker.in_flight)
                assert len(set(present)) <= 1, (worker.in_flight, present)
                self.in_flight_seen["whole" if all(present) else "absent"] += 1

    async def _parts(self, command: Command) -> list[bool]:
        """For each part that a command writes, whether it is there."""
        parts: list[bool] = []
        for name in ("parent_linked", "started", "record"):
            if name in command.args:
                record = command.args[name]
                parts.append(record["event_key"] in await self._records(record["run_id"]))
        if command.method.startswith("start_"):
            parts.append(
                (await self.client.get(f"/v1/runs/{quote(command.args['run']['run_id'], safe='')}")).is_success
            )
        if command.method == "record_suspension":
            loaded = await self.client.post("/v1/store/load_checkpoint", json={"run_id": command.args["run_id"]})
            parts.append(loaded.is_success)
        if command.method == "record_terminal":
            run = (await self.client.get(f"/v1/runs/{quote(command.args['run_id'], safe='')}")).json()["run"]
            parts.append(run["status"] != "running")
        return parts or [False]

    async def _records(self, run_id: str) -> dict[str, str]:
        """Event key to ID of each record of a run, in order; none for a run that is not there."""
        found: dict[str, str] = {}
        cursor = ""
        while True:
            answer = await self.client.post(
                "/v1/store/list_run_records", json={"run_id": run_id, "cursor": cursor, "limit": 1000}
            )
            if answer.status_code == 404:
                return {}
            page = answer.json()
            for record in page["records"]:
                assert record["event_key"] not in found, "an event key is there twice"
                found[record["event_key"]] = record["id"]
            cursor = page["next_cursor"]
            if not cursor:
                assert list(found.values()) == sorted(found.values())
                return found

    async def _account(self, worker: Worker) -> None:
        """The store holds exactly what this worker was told, in the order of its IDs."""
        for run_id, known in worker.acknowledged.items():
            assert await self._records(run_id) == known, run_id
        for run_id, data in worker.checkpoints.items():
            loaded = await self.client.post("/v1/store/load_checkpoint", json={"run_id": run_id})
            assert loaded.json()["checkpoint"]["data"] == data

    def summary(self) -> str:
        """What happened, in a line."""
        commands = sum(worker.commands for worker in self.workers)
        slowest = max(self.restart_seconds, default=0.0)
        median = sorted(self.restart_seconds)[len(self.restart_seconds) // 2] if self.restart_seconds else 0.0
        return (
            f"{len(self.restart_seconds)} kills, {commands} acknowledged commands, none lost, none doubled; "
            f"on their way when killed: {self.in_flight_seen['whole']} whole, {self.in_flight_seen['absent']} absent, "
            f"0 half; process start to ready again: median {median:.2f} s, slowest {slowest:.2f} s"
        )


async def verified(folder: Path) -> None:
    """The stopped store's projections are what its log says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bin.cli", "verify", "--data-dir", str(folder)),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=module_environment(),
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign from the command line."""
    made = parser(
        "kill", "Kill a serving store with SIGKILL under load, again and again, and account for every command."
    )
    made.add_argument("--kills", type=whole, default=50, metavar="N", help="how many kills (default 50)")
    options = made.parse_args(arguments)

    def run() -> int:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            campaign = Campaign(Path(folder), options.seed)
            failed = 0
            try:
                asyncio.run(campaign.run(options.kills))
                asyncio.run(verified(Path(folder)))
            except AssertionError as error:
                sys.stderr.write(f"{error}\n")
                failed = 1
        if not failed:
            sys.stdout.write(campaign.summary() + "\n")
        return verdict(failed, len(campaign.restart_seconds), options.kills)

    return interruptible(run)


if __name__ == "__main__":
    sys.exit(main())
