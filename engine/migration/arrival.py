"""Topics that a store is moved into: claimed, filled, and given over; until then nobody can open them.

The claim is the mark, and then the store's ID, which is agreed on once and for all in the keys topic. Whoever made a
store there first has agreed on another.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from engine.migration.kafka_topic import TopicTarget
from engine.migration.keyring import Keyring
from engine.migration.keys_topic import KeysTopic, TopicKeys
from engine.migration.marks import MARK_NAME, Mark, Moving, read_mark
from engine.migration.remaking import delete_topic, find_foreign
from engine.migration.telling import Tell

starts_again_max: Final = 3
"""How often the topic may be made anew within one command."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names in the keys topic that others give: what is agreed on once, rather than put."""

    store_id: str
    agreed: frozenset[str]


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
        self._store_id = store_id
        self._partitions = partitions
        self._environment = environment
        self._keys = KeysTopic(client, settings.keys_topic, master, environment)
        self._mark = Mark(Moving.ARRIVING, store_id)
        self._filler = filler(store_id)
        self.target = TopicTarget(client, settings.log_topic, environment, self._filler)
