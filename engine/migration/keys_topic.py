"""The keys topic read whole, and brought to hold what a keyring does.

Every write here may be repeated: a key that is kept already, a tombstone and a named value change nothing the second
time, and of proposals the first holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from engine.environment import Environment
from engine.kafka.client import Fetched, KafkaClient
from engine.kafka.errors import NotAnswered
from engine.keys.errors import KeyStoreError, MasterKeyError
from engine.keys.kept import Kept
from engine.keys.master import MasterKey
from engine.keys.topic import (
    KeyGone,
    KeyKept,
    Proposed,
    ValueKept,
    agreed_associated,
    check_name,
    check_value,
    key_gone,
    key_kept,
    parse,
    proposal_id_bytes,
    proposed,
    value_associated,
    value_kept,
)
from engine.migration.keyring import Keyring, WrappedKey
from engine.migration.repeating import answer_seconds_max, repeated

batch_records_max: Final = 1000
"""Of at most some 700 bytes each."""

_PARTITION: Final = 0
_NO_SEGMENTS: Final = 0
"""When segments end is nothing that is asked here."""


@dataclass(frozen=True, slots=True)
class TopicKeys:
    """What the topic holds: data keys and named values, what was agreed on, and the IDs of keys that are gone for good.

    `versions` are those of the named values.
    """

    keyring: Keyring
    agreed: Mapping[str, bytes]
    gone: frozenset[bytes]
    versions: Mapping[str, int]

    @property
    def unused(self) -> bool:
        """True when no store has ever kept anything there, but what tells of its master key."""
        return not (self.keyring.keys or self.keyring.values or self.gone or self.agreed.keys() - {check_name})


class KeysTopic:
    """The keys topic of a store, which exists."""

    def __init__(self, client: KafkaClient, topic: str, master: MasterKey, environment: Environment) -> None:
        self._client = client
        self._topic = topic
        self._master = master
        self._environment = environment

    async def read(self) -> TopicKeys:
        """Read all of it. Raises `MasterKeyError` when it was written under another master key, or `KeyStoreError`."""
        kept, seen = Kept(_NO_SEGMENTS), _Seen()
        end = await repeated(self._environment, lambda: self._client.end(self._topic, _PARTITION, answer_seconds_max))
        offset = 0
        while offset < end:
            fetched = await repeated(self._environment, partial(self._fetch, offset))
            effects = kept.fold(fetched.records)
            if effects.unreadable:
                raise KeyStoreError(None, f"the keys topic {self._topic}: {effects.unreadable[0]}")
            for record in fetched.records:
                seen.take(record.key, record.value)
            offset = fetched.following
        return self._told(kept, seen)

    async def put_value(self, name: str, value: bytes, version: int) -> None:
        """Keep a named value in a version; the highest one holds."""
        wrapped = self._master.wrap(value, value_associated(name, version))
        await self._write([value_kept(name, version, wrapped)])

    async def propose(self, name: str, value: bytes) -> None:
        """Propose a value that is agreed on once and for all; the first holds."""
        wrapped = self._master.wrap(value, agreed_associated(name))
        # Each attempt is another proposal: of two under one record key, compaction would keep the later.
        await repeated(self._environment, lambda: self._propose_once(name, wrapped))

    async def _propose_once(self, name: str, wrapped: bytes) -> None:
        proposal_id = self._environment.random_bytes(proposal_id_bytes)
        await self._produce_once([proposed(name, proposal_id, wrapped)])

    async def propose_check(self) -> None:
        """Have it known which master key all this is wrapped under."""
        await self.propose(check_name, check_value)

    async def put_keys(self, keys: Sequence[WrappedKey]) -> None:
        """Keep data keys, in this order."""
        await self._write([key_kept(key.owner, key.key_id, key.wrapped) for key in keys])

    async def delete_keys(self, keys: Sequence[WrappedKey]) -> None:
        """Delete data keys for good."""
        await self._write([key_gone(key.owner, key.key_id) for key in keys])

    async def _fetch(self, offset: int) -> Fetched:
        """What follows at an offset before the end. Raises `KafkaFailed`."""
        fetched = await self._client.fetch(self._topic, _PARTITION, offset, answer_seconds_max)
        if fetched.following <= offset:
            # A leader that has just been elected shows, for a moment, less than its partition holds.
            raise NotAnswered(f"the leader of {self._topic} shows nothing at offset {offset}, before its end")
        return fetched

    async def _write(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        for begin in range(0, len(records), batch_records_max):
            await self._produce(records[begin : begin + batch_records_max])

    async def _produce(self, batch: Sequence[tuple[bytes, bytes | None]]) -> None:
        await repeated(self._environment, lambda: self._produce_once(batch))

    async def _produce_once(self, batch: Sequence[tuple[bytes, bytes | None]]) -> None:
        time_ms = self._environment.wall_ms()
        await self._client.produce(self._topic, _PARTITION, batch, time_ms, answer_seconds_max)

    def _told(self, kept: Kept, seen: _Seen) -> TopicKeys:
        agreed = {}
        for name in seen.agreed:
            wrapped = kept.agreed(name)
            assert wrapped is not None
            agreed[name] = self._opened(wrapped, agreed_associated(name), f"what was agreed as {name!r}")
        values, versions = {}, {}
        for name in seen.values:
            versions[name], wrapped = kept.value(name)
            values[name] = self._opened(wrapped, value_associated(name, versions[name]), f"value {name!r}")
        keys = []
        for key_id in seen.keys:
            found = kept.key(key_id)
            if found is not None:
                keys.append(WrappedKey(found[0], key_id, found[1]))
        gone = frozenset(key_id for key_id in (*seen.keys, *seen.gone) if kept.is_dead(key_id))
        return TopicKeys(Keyring(tuple(keys), values), agreed, gone, versions)

    def _opened(self, wrapped: bytes, associated: bytes, what: str) -> bytes:
        try:
            return self._master.unwrap(wrapped, associated)
        except MasterKeyError as error:
            raise MasterKeyError(
                f"{what} in the topic {self._topic} does not open: it was wrapped by another master key, or is "
                "damaged; point master_key_file at that one"
            ) from error


@dataclass(slots=True)
class _Seen:
    """The IDs and names that were met, each once, in their order; what they stand for is told by `Kept`."""

    keys: dict[bytes, None] = field(default_factory=dict)
    gone: dict[bytes, None] = field(default_factory=dict)
    values: dict[str, None] = field(default_factory=dict)
    agreed: dict[str, None] = field(default_factory=dict)

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Note what a record is about."""
        parsed = parse(key, value)
        if isinstance(parsed, KeyKept):
            self.keys[parsed.key_id] = None
        elif isinstance(parsed, KeyGone):
            self.gone[parsed.key_id] = None
        elif isinstance(parsed, ValueKept):
            self.values[parsed.name] = None
        elif isinstance(parsed, Proposed):
            self.agreed[parsed.name] = None
