"""What makes a log for the contract suite. A backend joins with a class of a few lines, listed in `MAKERS`."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

import pytest

from engine.environment import SystemEnvironment
from engine.kafka.client import KafkaClient
from engine.kafka.settings import KafkaSettings
from engine.kafka.topics import open_topics
from engine.logs.embedded import EmbeddedLog
from engine.logs.interface import Log
from engine.logs.kafka import KafkaLog
from engine.logs.local_copy import LocalCopy
from engine.logs.lost import LostRecords
from engine.logs.simulated import SimulatedLog, SimulatedLogStorage
from tests.kafka.topics import own_topics

PARTITIONS: Final = 4


class LogMaker(Protocol):
    """Makes one log, and opens the same one again after it was closed."""

    def __init__(self, path: Path, request: pytest.FixtureRequest) -> None: ...

    async def open(self) -> Log:
        """Open the log with `PARTITIONS` partitions; the first time, it is empty."""
        ...


class EmbeddedMaker:
    def __init__(self, path: Path, request: pytest.FixtureRequest) -> None:
        del request
        self._path = path

    async def open(self) -> Log:
        return EmbeddedLog(self._path / "log", PARTITIONS, SystemEnvironment(""))


class SimulatedMaker:
    exclusive = False

    def __init__(self, path: Path, request: pytest.FixtureRequest) -> None:
        del path, request
        self._storage = SimulatedLogStorage(PARTITIONS)

    async def open(self) -> Log:
        return SimulatedLog(PARTITIONS, SystemEnvironment(""), storage=self._storage, exclusive=self.exclusive)


class SimulatedExclusiveMaker(SimulatedMaker):
    exclusive = True


class KafkaMaker:
    def __init__(self, path: Path, request: pytest.FixtureRequest) -> None:
        self._path = path
        self._settings = own_topics(request.getfixturevalue("bootstrap_servers"))

    async def open(self) -> Log:
        return await kafka_log(self._path, self._settings)


async def kafka_log(path: Path, settings: KafkaSettings) -> KafkaLog:
    """Open a log in topics, which are made if they are not there, with its copy below `path`."""
    client = KafkaClient(settings)
    await open_topics(client, settings, PARTITIONS, create=True)
    copy, lost = LocalCopy(path / "copy", PARTITIONS), LostRecords(path / "lost")
    return KafkaLog(client, settings.log_topic, PARTITIONS, copy, lost, SystemEnvironment(""))


MAKERS: Final[dict[str, type[LogMaker]]] = {
    "embedded": EmbeddedMaker,
    "kafka": KafkaMaker,
    "simulated": SimulatedMaker,
    "simulated-exclusive": SimulatedExclusiveMaker,
}
