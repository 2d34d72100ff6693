"""Topics that a store is moved into: claimed, filled, and given over; until then nobody can open them.

The claim is the mark, and then the store's ID, which is agreed on once and for all in the keys topic. Whoever made a
store there first has agreed on another.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from engine.environment import Environment
from engine.kafka.client import KafkaClient
from engine.kafka.settings import KafkaSettings
from engine.kafka.topics import open_topics
from engine.keys.master import MasterKey
from engine.keys.topic import check_name
from engine.logs.interface import Log
from engine.migration.copying_all import CopiedAll, check_all, copy_all
from engine.migration.errors import CopyWentWrong, MigrationRefused, MigrationStopped
from engine.migration.fillers import filler
from engine.migration.kafka_topic import LogTopic
from engine.migration.keyring import Keyring
from engine.migration.keys_topic import KeysTopic, TopicKeys
from engine.migration.marks import MARK_NAME, STORE_ID_NAME, Mark, Moving, read_mark
from engine.migration.remaking import delete_topic, find_foreign
from engine.migration.telling import Tell

starts_again_max: Final = 3
"""How often the topic may be made anew within one command."""


@dataclass(frozen=True, slots=True)
class Filled:
    """What was copied, how long it took to read it back, and how often it had to start again."""

    copied: CopiedAll
    check_seconds: float
    started_again: int


class Arrival:
    """A store's way into its topics."""

    def __init__(
        self,
        settings: KafkaSettings,
        client: KafkaClient,
        master: MasterKey,
        store_id: str,
        partitions: int,
        environment: Environment,
    ) -> None:
        self._settings = settings
        self._client = client
        self._store_id = bytes.fromhex(store_id)
        self._partitions = partitions
        self._environment = environment
        self._filler = filler(store_id)
        self._keys = KeysTopic(client, settings.keys_topic, master, environment)
        self._topic = LogTopic(client, settings.log_topic, environment, self._filler)
        self._mark = Mark(Moving.ARRIVING, store_id)

    async def claim(self) -> None:
        """Make the topics where they are missing, and let nobody else open them.

        Raises `MigrationRefused` where they hold anything but what this store has copied there, and `OpeningError`.
        """
        topics = await open_topics(self._client, self._settings, self._partitions, create=True, complete=True)
        held = await self._keys.read()
        mark = self._mark_of(held)
        if mark is None:
            await self._refuse_full(held)
        if check_name not in held.agreed:
            await self._keys.propose_check()
        self._environment.failpoint("migration.topics_made")
        if mark is None:
            mark = replace(self._mark, made_log=topics.made)
            await self._put_mark(held, mark)
        self._mark = mark
        self._environment.failpoint("migration.marked")
        if STORE_ID_NAME not in held.agreed:
            await self._keys.propose(STORE_ID_NAME, self._store_id)
        agreed = (await self._keys.read()).agreed.get(STORE_ID_NAME)
        if agreed != self._store_id:
            raise MigrationRefused(f"another store was made at the same time in {self._where}", _CHOOSE_ANOTHER)
        self._environment.failpoint("migration.claimed")

    async def fill(self, source: Log, ends: Sequence[int], tell: Tell) -> Filled:
        """Copy the log, and read the copy back; where it went wrong, the topic is made anew and it starts again.

        Raises `MigrationRefused`, `MigrationStopped`, `HistoryBroken` or what reading the source does.
        """
        for started_again in range(starts_again_max + 1):
            try:
                copied = await copy_all(source, self._topic, ends, self._environment, tell, voids_legal=False)
                check_seconds = await check_all(self._topic, copied, self._environment, tell)
            except CopyWentWrong as error:
                await self._make_anew(source, error)
            else:
                return Filled(copied, check_seconds, started_again)
        raise MigrationStopped(
            f"the copy in {self._where} went wrong {starts_again_max + 1} times",
            "look at the brokers and the way to them, then repeat the command",
        )

    async def bring_keys(self, keyring: Keyring, agreed_names: Collection[str]) -> None:
        """Have the keys topic hold the keys and values of the folder, and no other key. Raises `MigrationRefused`."""
        held = await self._keys.read()
        wanted, there = keyring.by_id(), held.keyring.by_id()
        for key_id in wanted.keys() & held.gone:
            raise MigrationRefused(
                f"data key {key_id.hex()} was deleted for good in {self._where}, and the folder holds it",
                "the folder is older than what is in the topics; " + _CHOOSE_ANOTHER,
            )
        await self._keys.delete_keys([key for key_id, key in there.items() if key_id not in wanted])
        self._environment.failpoint("migration.keys_deleted")
        await self._keys.put_keys([key for key_id, key in wanted.items() if key_id not in there])
        for name, value in keyring.values.items():
            if name in agreed_names and name not in held.agreed:
                await self._keys.propose(name, value)
            elif name not in agreed_names and held.keyring.values.get(name) != value:
                await self._keys.put_value(name, value, held.versions.get(name, 0) + 1)
        self._environment.failpoint("migration.keys_written")
        await self._check_keys(keyring)

    async def mark(self) -> Mark | None:
        """The mark of this store that is on the topics, which exist. Raises `OpeningError`, `MigrationRefused`."""
        await open_topics(self._client, self._settings, self._partitions, create=False)
        held = await self._keys.read()
        if held.agreed.get(STORE_ID_NAME) != self._store_id:
            raise MigrationRefused(
                f"{self._where} are not those of the store {self._store_id.hex()}, which is on Kafka already",
                "name the brokers and the kafka.topic_prefix that the store was moved to",
            )
        mark = read_mark(held.keyring.values.get(MARK_NAME))
        return mark if mark is not None and mark.store_id == self._store_id.hex() else None

    async def give_over(self) -> None:
        """Take the mark away: from now on the topics are a store that can be opened."""
        held = await self._keys.read()
        await self._keys.put_value(MARK_NAME, b"", held.versions.get(MARK_NAME, 0) + 1)

    @property
    def _where(self) -> str:
        return f"the topics {self._settings.log_topic} and {self._settings.keys_topic}"

    def _mark_of(self, held: TopicKeys) -> Mark | None:
        """The mark of this store's own arrival."""
        mark = read_mark(held.keyring.values.get(MARK_NAME))
        mine = mark is not None and (mark.moving, mark.store_id) == (Moving.ARRIVING, self._store_id.hex())
        agreed = held.agreed.get(STORE_ID_NAME)
        return mark if mine and agreed in {None, self._store_id} else None

    async def _put_mark(self, held: TopicKeys, mark: Mark) -> None:
        await self._keys.put_value(MARK_NAME, mark.encode(), held.versions.get(MARK_NAME, 0) + 1)

    async def _refuse_full(self, held: TopicKeys) -> None:
        if not held.unused:
            raise MigrationRefused(
                f"the topic {self._settings.keys_topic} is not empty, and what it holds is no copy of this store that "
                "was broken off",
                _CHOOSE_ANOTHER,
            )
        for partition in range(self._partitions):
            if end := await self._topic.end(partition):
                raise MigrationRefused(
                    f"the topic {self._settings.log_topic} is not empty: partition {partition} ends at {end}",
                    _CHOOSE_ANOTHER,
                )

    async def _make_anew(self, source: Log, error: CopyWentWrong) -> None:
        """Delete the log's topic and make it again, if it is this move's own and nobody else has written there."""
        topic = self._settings.log_topic
        foreign = await find_foreign(source, self._topic, self._partitions, self._filler)
        if foreign is not None:
            raise MigrationRefused(
                f"somebody else has written to the topic {topic}: partition {foreign[0]}, offset {foreign[1]}",
                "find out who; then delete both topics and repeat the command, or " + _CHOOSE_ANOTHER,
            ) from error
        if not self._mark.made_log:
            raise MigrationRefused(
                f"the copy in the topic {topic} went wrong ({error}), and the topic was there before",
                "delete the topic, or make it anew, then repeat the command: it copies everything again",
            ) from error
        await delete_topic(self._client, topic, self._environment)
        self._environment.failpoint("migration.topic_deleted")
        await open_topics(self._client, self._settings, self._partitions, create=True, complete=True)

    async def _check_keys(self, keyring: Keyring) -> None:
        held = await self._keys.read()
        values = {**held.keyring.values, **held.agreed}
        missing = [name for name, value in keyring.values.items() if values.get(name) != value]
        if missing or held.keyring.by_id() != keyring.by_id():
            raise MigrationStopped(
                f"what was read back of the keys in the topic {self._settings.keys_topic} is not what was written",
                "see that nobody else writes there, then repeat the command",
            )


_CHOOSE_ANOTHER: Final = "choose another kafka.topic_prefix, or delete both topics if nobody needs what they hold"
