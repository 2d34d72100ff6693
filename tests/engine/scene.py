"""Stores over one simulated log, as one or more processes would have them, on virtual time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.keys import KeyStore, MemoryKeyStore
from engine.keys.memory import MemoryDisk
from engine.logs.simulated import Faults, SimulatedLog, SimulatedLogStorage
from engine.opening import assemble
from engine.pending import QueueLimits
from engine.projection import MemoryFiles
from engine.store import Store
from schemas.commands import Command as StoreCommand
from schemas.refusals import Refused
from service.arguments import CommandArguments
from service.methods import METHODS, call
from service.wire import read
from tests.contract.builders import Command
from tests.simulation.virtual_time import VirtualEnvironment


def parsed(*commands: Command) -> list[StoreCommand]:
    """Commands as the service hands them to the store."""
    found = []
    for command in commands:
        arguments = read(METHODS[command.method].arguments, command.args)
        assert isinstance(arguments, CommandArguments), f"{command} is not a command that can be parsed"
        found.append(arguments.command())
    return found


@dataclass
class Process:
    """One process that serves the store."""

    store: Store
    log: SimulatedLog

    async def do(self, command: Command) -> dict[str, Any]:
        """Do a command and return its answer."""
        return await call(self.store, command.method, command.args)

    async def code(self, command: Command) -> str:
        """Do a command that is refused and return the code."""
        try:
            answer = await self.do(command)
        except Refused as refused:
            return refused.code.value
        raise AssertionError(f"not refused, but answered {answer}")


class Cluster:
    """One storage and one disk of keys, and the processes on them."""

    def __init__(self, seed: int = 0, partitions: int = 1) -> None:
        self.environment = VirtualEnvironment(seed)
        self.storage = SimulatedLogStorage(partitions)
        self.keys = MemoryDisk()

    async def start(
        self,
        faults: Faults | None = None,
        *,
        exclusive: bool = False,
        limits: QueueLimits | None = None,
        files: dict[int, MemoryFiles] | None = None,
        keys: KeyStore | None = None,
        answer_seconds_max: float | None = None,
    ) -> Process:
        """Start a process; `files` are projections that it finds, `keys` what it knows of the keys."""
        log = SimulatedLog(self.storage.partitions, self.environment, faults, exclusive=exclusive, storage=self.storage)
        found = files if files is not None else {}

        async def release() -> None:
            await log.close()

        store = await assemble(
            log,
            keys or MemoryKeyStore(self.environment, self.keys),
            lambda partition: found.setdefault(partition, MemoryFiles()),
            self.environment,
            limits or QueueLimits(),
            log_kind="simulated",
            release=release,
            answer_seconds_max=answer_seconds_max,
        )
        return Process(store, log)
