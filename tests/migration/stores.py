"""Stores to be moved, with stories in them, and what is compared before and after."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.environment import SystemEnvironment
from engine.kafka.settings import KafkaSettings
from engine.opening import StoreSettings, open_store
from engine.store import Store
from schemas.refusals import Refused
from tests.cli.processes import Done, runstore
from tests.contract.builders import Command, Json
from tests.contract.makers import InProcess
from tests.contract.scene import everything, ids_in
from tests.faults.stories import PARTITIONS, story

DATA: Final = "runstore-data"
_SEED: Final = 11
WORKERS: Final = 2


def stories(first_worker: int = 0) -> list[Command]:
    """Every kind of command, in an order in which none is refused: purged sessions, trees, children, checkpoints."""
    workers = range(first_worker, first_worker + WORKERS)
    return [command for worker in workers for command in story(_SEED, worker)]


@dataclass(frozen=True)
class Opened:
    """An open store, and ways to ask it."""

    store: Store
    client: InProcess

    async def tell(self, commands: Sequence[Command]) -> list[Json]:
        """Do all commands, and return what each was answered."""
        return [await self.client.call(command.method, command.args) for command in commands]

    async def outcomes(self, commands: Sequence[Command]) -> list[Json | str]:
        """What each command is answered, or the code that it is refused with."""
        answers = await self.client.call_all(commands)
        return [each.code.value if isinstance(each, Refused) else each for each in answers]

    async def picture(self, commands: Iterable[Command]) -> Json:
        """All that reads tell of what these commands name."""
        named = [pair for command in commands for pair in ids_in(command.args)]
        sessions = dict.fromkeys(found for field, found in named if field == "session_id")
        runs = dict.fromkeys(found for field, found in named if field == "run_id")
        return await everything(self.client, sessions, runs)

    async def digests(self) -> list[str]:
        """The digest of each partition, which is that of its log folded anew."""
        verified = await self.store.verify()
        assert all(each.equal for each in verified)
        return [each.rebuilt for each in verified]

    def rebuilt(self) -> list[str]:
        """Why projections were rebuilt at opening, of those that were."""
        found = [partition.projection.rebuilt_why for partition in self.store.partitions]
        return [why for why in found if why]


@asynccontextmanager
async def opened(folder: Path, kafka: KafkaSettings | None = None, *, create: bool = False) -> AsyncIterator[Opened]:
    """The store in a test's folder."""
    settings = StoreSettings(
        folder / DATA,
        PARTITIONS if create else None,
        log="embedded" if kafka is None else "kafka",
        create=create,
        kafka=kafka,
    )
    store = await open_store(settings, SystemEnvironment(""))
    try:
        yield Opened(store, InProcess(store))
    finally:
        await store.close()


def new_topics(bootstrap_servers: str) -> KafkaSettings:
    """Topics that nobody else has."""
    return KafkaSettings(bootstrap_servers, f"moved-{uuid.uuid4().hex}")


def migrate(folder: Path, to: str, kafka: KafkaSettings, *arguments: str, failpoint: str = "") -> Done:
    """Run `runstore migrate` on the store in a folder."""
    return runstore(
        folder,
        "migrate",
        "--to",
        to,
        "--kafka-bootstrap-servers",
        kafka.bootstrap_servers,
        "--kafka-topic-prefix",
        kafka.topic_prefix,
        *arguments,
        RUNSTORE_FAILPOINT=failpoint,
    )


class At(SystemEnvironment):
    """The real world, in which something happens once, when a failpoint is passed."""

    def __init__(self, name: str, what: Callable[[], object]) -> None:
        super().__init__("")
        self._name = name
        self._what = what
        self.happened = 0
        self.passed: set[str] = set()

    def failpoint(self, name: str) -> None:
        """See `Environment`."""
        self.passed.add(name)
        if name == self._name and not self.happened:
            self.happened += 1
            self._what()
