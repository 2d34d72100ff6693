"""Real brokers for tests, run by `bin/kafka`: one that all tests share, or a test's own, to do harm to.

However a test ends, its brokers end with it: whoever uses a cluster holds a lock, and a small process beside it waits
for that lock, kills the brokers and removes their folder.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from fcntl import LOCK_SH, flock
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from bin.broker.__main__ import EXIT_NOT_RUNNING
from bin.broker.container import Container
from tests.kafka.machine import find_runner, require_brokers

ROOT: Final = Path(__file__).parents[2]
command_seconds_max: Final = 150

_ENVIRONMENT: Final = {**os.environ, "PYTHONPATH": str(ROOT)}
"""As it was when the tests began: some take the settings out of it later."""


class KafkaError(Exception):
    """`bin/kafka` failed: its exit status, its output, and what it said."""

    def __init__(self, status: int, output: str, said: str) -> None:
        super().__init__(f"status {status}: {said}")
        self.status = status
        self.output = output
        self.said = said


def kafka(
    folder: Path,
    verb: str,
    *arguments: str,
    user: IO[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a command of `bin/kafka` on a cluster's folder; give its output. Raises `KafkaError`.

    With `user`, what `using` gave, the command is a user of the cluster too, and survives its caller as one.
    `environment` adds variables to those of the tests.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bin.broker", verb, "--dir", str(folder), *arguments],
        env={**_ENVIRONMENT, **_image(), **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=command_seconds_max,
        pass_fds=[user.fileno()] if user else [],
        check=False,
    )
    if done.returncode != 0:
        raise KafkaError(done.returncode, done.stdout, done.stderr)
    return done.stdout


def _image() -> dict[str, str]:
    """Give the setting that lets brokers run in containers, where they must."""
    runner = find_runner()
    return {"RUNSTORE_KAFKA_IMAGE": runner.image} if isinstance(runner, Container) else {}


@contextmanager
def using(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[IO[str]]:
    """Be a user of the cluster in this folder; with the last of them, however it ends, the cluster ends too.

    `environment` adds variables for what ends it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.users").open("a") as lock:
        flock(lock, LOCK_SH)
        watcher = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.kafka.watcher", str(folder), lock.name],
            env={**_ENVIRONMENT, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        # It outlives this process on purpose, and nobody waits for it.
        watcher.returncode = 0
        yield lock


@contextmanager
def shared_broker(folder: Path) -> Iterator[str]:
    """One broker for all processes that ask with the same folder; gives its address."""
    require_brokers()
    with using(folder) as user:
        yield kafka(folder, "start", user=user).splitlines()[-1]


class Brokers:
    """A cluster of a test's own: `async with Brokers(tmp_path / "kafka", count=3) as brokers`.

    Brokers are named by their IDs, 1 to `count`; None is all. `advertised` gives the addresses that they name to
    clients in place of their own, a proxy's.
    """

    def __init__(
        self,
        folder: Path,
        *,
        count: int = 1,
        security: str = "plaintext",
        properties: Mapping[str, str] | None = None,
        advertised: Mapping[int, str] | None = None,
    ) -> None:
        self.folder = folder
        self.bootstrap = ""
        self._options = ["--brokers", str(count), "--security", security]
        self._options += [f"--property={name}={value}" for name, value in (properties or {}).items()]
        self._options += [f"--advertise={broker}={address}" for broker, address in (advertised or {}).items()]
        self._stack = ExitStack()
        self._user: IO[str] | None = None

    async def __aenter__(self) -> Self:
        require_brokers()
        self._user = self._stack.enter_context(using(self.folder))
        try:
            await self.start()
        except BaseException:
            self._stack.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.kill()
        finally:
            self._stack.close()

    async def start(self) -> None:
        """Start what is dead, and wait until all that runs answers."""
        self.bootstrap = (await self._run("start", *self._options)).splitlines()[-1]

    async def restart(self, broker: int) -> None:
        """Start one dead broker, and wait until it is in the cluster again."""
        await self._run("start", "--broker", str(broker))

    async def kill(self, broker: int | None = None) -> None:
        """End a broker at once, as `kill -9` does."""
        await self._signal("KILL", broker)

    async def pause(self, broker: int | None = None) -> None:
        """Stop a broker where it stands, with SIGSTOP; its connections stay open and nothing answers."""
        await self._signal("STOP", broker)

    async def resume(self, broker: int | None = None) -> None:
        """Let a paused broker go on."""
        await self._signal("CONT", broker)

    async def stop(self) -> None:
        """End all brokers in good order; their data stays until the cluster is left."""
        await self._run("stop")

    async def leader(self, topic: str, partition: int) -> int:
        """Tell which broker leads a partition."""
        return int(await self._run("leader", topic, str(partition)))

    async def status(self) -> dict[str, Any]:
        """Tell what `bin/kafka status --json` tells, whatever the brokers do."""
        try:
            said = await self._run("status", "--json")
        except KafkaError as error:
            if error.status != EXIT_NOT_RUNNING:
                raise
            said = error.output
        found: dict[str, Any] = json.loads(said)
        return found

    async def _signal(self, name: str, broker: int | None) -> None:
        chosen = [] if broker is None else ["--broker", str(broker)]
        await self._run("kill", "--signal", name, *chosen)

    async def _run(self, verb: str, *arguments: str) -> str:
        return await asyncio.to_thread(kafka, self.folder, verb, *arguments, user=self._user)
