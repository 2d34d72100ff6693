"""A store that was told its stories, for every test to move a copy of."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.kafka.settings import KafkaSettings
from tests.contract.builders import Command, Json
from tests.migration.stores import DATA, new_topics, opened, stories


@dataclass(frozen=True)
class Told:
    """A folder with a store in it that nobody has open, and what it is like.

    `repeated` is what its commands are answered when all are told again, which writes nothing.
    """

    folder: Path
    commands: list[Command]
    repeated: list[Json | str]
    picture: Json
    digests: list[str]


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The store that all copies are of."""
    folder = tmp_path_factory.mktemp("told")

    async def make() -> Told:
        commands = stories()
        async with opened(folder, create=True) as store:
            await store.tell(commands)
            digests, repeated = await store.digests(), await store.outcomes(commands)
            assert await store.digests() == digests
            return Told(folder, commands, repeated, await store.picture(commands), digests)

    return asyncio.run(make())


@pytest.fixture
def told(original: Told, tmp_path: Path) -> Told:
    """A copy of that store."""
    shutil.copytree(original.folder / DATA, tmp_path / DATA)
    return Told(tmp_path, original.commands, original.repeated, original.picture, original.digests)


@pytest.fixture
def topics(bootstrap_servers: str) -> KafkaSettings:
    """Topics of a test's own."""
    return new_topics(bootstrap_servers)
