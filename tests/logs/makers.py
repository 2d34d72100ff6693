"""What makes a log for the contract suite. A backend joins with a class of a few lines, listed in `MAKERS`."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from engine.environment import SystemEnvironment
from engine.logs.embedded import EmbeddedLog
from engine.logs.interface import Log
from engine.logs.simulated import SimulatedLog, SimulatedLogStorage

PARTITIONS: Final = 4


class LogMaker(Protocol):
    """Makes one log, and opens the same one again after it was closed."""

    def __init__(self, path: Path) -> None: ...

    async def open(self) -> Log:
        """Open the log with `PARTITIONS` partitions; the first time, it is empty."""
        ...


class EmbeddedMaker:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def open(self) -> Log:
        return EmbeddedLog(self._path / "log", PARTITIONS, SystemEnvironment(""))


class SimulatedMaker:
    exclusive = False

    def __init__(self, path: Path) -> None:
        del path
        self._storage = SimulatedLogStorage(PARTITIONS)

    async def open(self) -> Log:
        return SimulatedLog(PARTITIONS, SystemEnvironment(""), storage=self._storage, exclusive=self.exclusive)


class SimulatedExclusiveMaker(SimulatedMaker):
    exclusive = True


MAKERS: Final[dict[str, type[LogMaker]]] = {
    "embedded": EmbeddedMaker,
    "simulated": SimulatedMaker,
    "simulated-exclusive": SimulatedExclusiveMaker,
}
