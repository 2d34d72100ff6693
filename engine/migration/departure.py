"""Topics that a store is moved out of: shut behind what was copied, marked as left, and emptied of keys.

No lock tells that another store has these topics open. What tells is the log: a filler, appended at the end that was
copied up to, lands there only if nobody has written since, and keeps a batch that is under way from ever counting.
Whatever comes after it is somebody else's, and the move is refused. The mark, put before the last look, keeps the
topics from being opened after it.

Caveat
  A store that is open and idle is not seen, and what it writes after the last look is in the topics alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.environment import Environment
from engine.kafka.client import KafkaClient
from engine.kafka.settings import KafkaSettings
from engine.keys.master import MasterKey
from engine.keys.topic import check_name
from engine.migration.errors import MigrationRefused, SourceInUse
from engine.migration.fillers import filler
from engine.migration.kafka_topic import LogTopic
from engine.migration.keyring import Keyring
from engine.migration.keys_topic import KeysTopic, TopicKeys
from engine.migration.marks import MARK_NAME, STORE_ID_NAME, Mark, Moving, read_mark


class Departure:
    """A store's way out of its topics."""

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
        self._store_id = store_id
        self._partitions = partitions
        self._environment = environment
        self._filler = filler(store_id)
        self._keys = KeysTopic(client, settings.keys_topic, master, environment)
        self.source = LogTopic(client, settings.log_topic, environment, self._filler)

    async def check(self, ticket: str) -> None:
        """Raise `MigrationRefused` unless the topics are this store's, and it is there. `ticket` is the folder's."""
        held = await self._keys.read()
        agreed = held.agreed.get(STORE_ID_NAME, b"").hex()
        if agreed != self._store_id:
            raise MigrationRefused(
                f"the topics {self._settings.log_topic} and {self._settings.keys_topic} are those of another store, "
                f"{agreed or 'without an ID'}; the folder's is {self._store_id}",
                "name the brokers and the kafka.topic_prefix that the store was served with",
            )
        mark = self._mark_of(held)
        if mark is not None and mark.moving is Moving.ARRIVING:
            raise MigrationRefused(
                "the store is still being moved to Kafka", "repeat `runstore migrate --to kafka` to the end first"
            )
        if mark is not None and mark.ticket != ticket:
            raise MigrationRefused(
                "the store has been moved from these topics into another folder",
                "open it there; it is not here any more",
            )

    async def ends(self) -> list[int]:
        """Where each partition ends now, before what earlier attempts have shut it with."""
        return [await self.source.end(partition) for partition in range(self._partitions)]

    async def shut(self, ends: Sequence[int]) -> None:
        """Let no batch that is under way count at these ends any more. Raises `SourceInUse` where something came."""
        for partition, end in enumerate(ends):
            await self.source.append_filler(partition)
            if not await self._only_fillers(partition, end):
                raise SourceInUse(_IN_USE.format(partition), _STOP_IT)
            self._environment.failpoint("migration.partition_shut")

    async def leave(self, ends: Sequence[int], ticket: str) -> None:
        """Mark the topics as left, and look once more. Raises `SourceInUse`, and takes the mark away again then."""
        await self._put_mark(Mark(Moving.LEFT, self._store_id, ticket=ticket).encode())
        self._environment.failpoint("migration.marked")
        for partition, end in enumerate(ends):
            if not await self._only_fillers(partition, end):
                await self._put_mark(b"")
                raise SourceInUse(_IN_USE.format(partition), _STOP_IT)

    async def keyring(self) -> Keyring:
        """The keys, and the values that a folder needs."""
        held = await self._keys.read()
        own = {MARK_NAME, STORE_ID_NAME, check_name}
        values = {name: value for name, value in {**held.keyring.values, **held.agreed}.items() if name not in own}
        return Keyring(held.keyring.keys, values)

    async def delete_keys(self, ticket: str) -> int:
        """Delete all keys of topics that were left for this folder; how many there were. Safe to repeat."""
        held = await self._keys.read()
        mark = self._mark_of(held)
        if mark is None or (mark.moving, mark.ticket) != (Moving.LEFT, ticket):
            return 0
        await self._keys.delete_keys(held.keyring.keys)
        return len(held.keyring.keys)

    def _mark_of(self, held: TopicKeys) -> Mark | None:
        mark = read_mark(held.keyring.values.get(MARK_NAME))
        return mark if mark is not None and mark.store_id == self._store_id else None

    async def _put_mark(self, value: bytes) -> None:
        held = await self._keys.read()
        await self._keys.put_value(MARK_NAME, value, held.versions.get(MARK_NAME, 0) + 1)

    async def _only_fillers(self, partition: int, end: int) -> bool:
        """Whether nothing but fillers of this store's follows, and one of them at least."""
        found = False
        while entries := await self.source.read(partition, end):
            if any(entry.data != self._filler for entry in entries):
                return False
            found, end = True, entries[-1].offset + 1
        return found


_IN_USE: Final = "another store writes to partition {} meanwhile"
_STOP_IT: Final = "stop every store that has these topics open, on this machine and on others, then repeat the command"
