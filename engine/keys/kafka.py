"""The key store in a compacted topic: the keys of a store that runs on Kafka, shared by all who open it.

The basics. Everything is wrapped under the master key and held in memory, as the topic says (`topic.py` has its form,
`kept.py` the fold). A call that changes something writes to the topic, then waits until that has been read back, so
what became of a write is never guessed: an answer that was lost is found in the topic or the call fails.
No call takes longer than `call_seconds_max`; one that fails leaves the store good, and works again with the brokers.

- **A data key is handed to a broker once.** With an unknown outcome it is looked for in the topic and not sent again:
  the caller makes another. So no copy of a key that sealed something can come later than its tombstone.
- Tombstones stick all the same. A copy that comes later is void, and the tombstone is written again (`upkeep.py`).
- Of values that are agreed on, the first in the topic holds for all.

The caveats.

- An owner that was purged is not to be used again: a store that learns of the purge late purges what it finds then.
- Acknowledged means replicated, not fsynced.
- Until the bound of `upkeep.py` is over, the broker's files still hold a purged key, wrapped.
- Every key is in memory, wrapped: about 350 bytes each, and 120 for each that was purged since this store was opened or
  in the last day before that (`delete.retention.ms`). Opening reads about 230,000 keys a second.
- A topic that was cut and has grown again past what was read is not noticed until the next opening.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from engine.environment import Environment
from engine.kafka.client import KafkaClient
from engine.kafka.errors import KafkaFailed, NotAnswered, NotReached, NotSent
from engine.kafka.settings import KafkaSettings
from engine.keys.errors import KeyStoreError, MasterKeyError
from engine.keys.follower import Follower
from engine.keys.interface import PurgeListener, check_key
from engine.keys.kept import Effects, Kept
from engine.keys.master import MasterKey, key_associated
from engine.keys.topic import (
    agreed_associated,
    check_name,
    check_value,
    key_gone,
    key_kept,
    proposal_id_bytes,
    proposed,
    segment_ms_default,
    value_associated,
    value_kept,
)
from engine.keys.upkeep import Upkeep
from engine.keys.writes import TopicRecord, Write, Writes
from engine.rounds import Rounds

log = logging.getLogger("runstore.keys")

call_seconds_max: Final = 2.0
end_seconds_max: Final = 1.0
retry_seconds: Final = 0.05

value_bytes_max: Final = 100_000

unknown_max: Final = 10_000
"""Of how many keys with an unknown outcome the owner is remembered, so that a purge leaves them a tombstone."""


class KafkaKeyStore:
    """See the module."""

    def __init__(
        self,
        settings: KafkaSettings,
        master: MasterKey,
        environment: Environment,
        segment_ms: int,
        make_client: Callable[[KafkaSettings], KafkaClient],
    ) -> None:
        self._topic = settings.keys_topic
        self._master = master
        self._environment = environment
        self._listeners: list[PurgeListener] = []
        self._kept = Kept(segment_ms)
        self._client = make_client(settings)
        self._reader = make_client(settings)
        self._follower = Follower(self._reader, self._topic, self._kept, self._was_read)
        self._writes = Writes(self._client, self._topic, environment)
        self._upkeep = Upkeep(self._kept, self._follower, self._writes, environment)
        self._ends: Rounds[None] = Rounds(self._ask_end)
        self._end = 0
        # Keys whose put runs, and those whose put has failed with an unknown outcome.
        self._putting: dict[bytes, str] = {}
        self._unknown: dict[bytes, str] = {}
        # Keys that a purge hides, and for each purge that runs the keys that were put after its call.
        self._hidden: set[bytes] = set()
        self._purges: dict[str, list[set[bytes]]] = {}
        self._versions: dict[str, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._why = ""
        self._closed = self._failed = False

    @classmethod
    async def open(
        cls,
        settings: KafkaSettings,
        master: MasterKey,
        environment: Environment,
        *,
        segment_ms: int = segment_ms_default,
        make_client: Callable[[KafkaSettings], KafkaClient] = KafkaClient,
    ) -> KafkaKeyStore:
        """Read the topic, which must be there, to its end, and follow it from then on; `segment_ms` is the topic's.

        Raises `MasterKeyError`, having written nothing, when the keys in it were wrapped by another master key, and
        `KeyStoreError`, which names the topic, when it cannot be read.
        """
        store = cls(settings, master, environment, segment_ms, make_client)
        try:
            await store._start()
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def failed(self) -> bool:
        """See `KeyStore`. Brokers that do not answer are no reason; they may again."""
        return self._failed

    async def put(self, owner: str, key_id: bytes, key: bytes) -> None:
        """See `KeyStore`. Raises `ValueError` for a key ID that is taken."""
        self._check_open()
        check_key(owner, key_id, key)
        self._environment.failpoint("keys.before_put")
        if self._is_taken(key_id):
            raise ValueError(f"data key {key_id.hex()} is kept already")
        wrapped = self._master.wrap(key, key_associated(owner, key_id))
        self._putting[key_id] = owner
        for put_later in self._purges.get(owner, ()):
            put_later.add(key_id)
        write = Write([key_kept(owner, key_id, wrapped)])
        try:
            async with self._limited(f"data key {key_id.hex()} may be kept or not"):
                await self._hand_once(write)
                await self._follower.until(lambda: self._is_settled(key_id))
        finally:
            del self._putting[key_id]
            if write.handed and not self._is_settled(key_id) and len(self._unknown) < unknown_max:
                self._unknown[key_id] = owner
        self._environment.failpoint("keys.after_put")

    def get(self, key_id: bytes) -> bytes | None:
        """See `KeyStore`. Raises `KeyStoreError` when what is kept is damaged."""
        found = None if key_id in self._hidden else self._kept.key(key_id)
        if found is None:
            return None
        owner, wrapped = found
        return self._unwrap(wrapped, key_associated(owner, key_id), f"data key {key_id.hex()}")

    def keys_of(self, owner: str) -> tuple[bytes, ...]:
        """See `KeyStore`."""
        return tuple(key_id for key_id in self._kept.keys_of(owner) if key_id not in self._hidden)

    async def purge(self, owner: str) -> None:
        """See `KeyStore`; "no file" holds from the bound of `upkeep.py` on. Also purges what other stores have put.

        Once it has failed, the keys stay hidden here, and a repeat finishes it.
        """
        self._check_open()
        self._environment.failpoint("keys.before_purge")
        known = self._ids_of(owner)
        self._hide(known)
        put_later: set[bytes] = set()
        self._purges.setdefault(owner, []).append(put_later)
        try:
            async with self._limited(f"the keys of {owner!r} are hidden here, but may still be in the topic"):
                await self._refresh()
                found = dict.fromkeys((*known, *(each for each in self._ids_of(owner) if each not in put_later)))
                key_ids = [key_id for key_id in found if not self._kept.is_dead(key_id)]
                self._hide(key_ids)
                if key_ids:
                    await self._hand([key_gone(owner, key_id) for key_id in key_ids])
                    await self._follower.until(lambda: all(map(self._kept.is_dead, key_ids)))
        finally:
            self._purges[owner].remove(put_later)
            if not self._purges[owner]:
                del self._purges[owner]
        self._environment.failpoint("keys.after_purge")

    def get_value(self, name: str) -> bytes | None:
        """See `KeyStore`. Raises `KeyStoreError` when what is kept is damaged."""
        agreed = self._kept.agreed(name)
        if agreed is not None:
            return self._unwrap(agreed, agreed_associated(name), f"value {name!r}")
        version, wrapped = self._kept.value(name)
        return self._unwrap(wrapped, value_associated(name, version), f"value {name!r}") if version else None

    async def put_value(self, name: str, data: bytes) -> None:
        """See `KeyStore`. Of two that are put at once, in one store or two, either may be the one that stays."""
        self._check_open()
        if len(data) > value_bytes_max:
            raise ValueError(f"a named value is at most {value_bytes_max} bytes, not {len(data)}")
        async with self._limited(f"value {name!r} may be kept or not"):
            while True:
                version = max(self._kept.value(name)[0], self._versions.get(name, 0)) + 1
                self._versions[name] = version
                wrapped = self._master.wrap(data, value_associated(name, version))
                await self._hand([value_kept(name, version, wrapped)])
                await self._refresh()
                if self._kept.value(name)[0] <= self._versions[name]:
                    return
                # Another store's was newer than what had been read here: this one may have come too late to count.

    async def agree_on_value(self, name: str, make: Callable[[], bytes]) -> bytes:
        """See `KeyStore`."""
        self._check_open()
        found = self.get_value(name)
        if found is not None:
            return found
        async with self._limited(f"whether {name!r} has a value is not known"):
            await self._refresh()
            if self._kept.agreed(name) is None:
                proposal_id = self._environment.random_bytes(proposal_id_bytes)
                wrapped = self._master.wrap(make(), agreed_associated(name))
                # Once, as a key: two copies under one record key would leave the later one after a compaction, and
                # another's might stand between.
                await self._hand_once(Write([proposed(name, proposal_id, wrapped)]))
                await self._follower.until(lambda: self._kept.agreed(name) is not None)
        found = self.get_value(name)
        assert found is not None
        return found

    async def refresh(self) -> None:
        """See `KeyStore`. Callers share the question for the topic's end."""
        self._check_open()
        async with self._limited("what other stores have put is not known"):
            await self._refresh()

    def subscribe(self, listener: PurgeListener) -> None:
        """See `KeyStore`."""
        self._listeners.append(listener)

    async def close(self) -> None:
        """See `KeyStore`."""
        if self._closed:
            return
        self._closed = True
        self._follower.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._writes.drain()
        await self._ends.drain()
        await asyncio.gather(self._client.close(), self._reader.close())

    # -- opening

    async def _start(self) -> None:
        try:
            await self._follower.read_to_end()
        except KafkaFailed as error:
            raise self._error(f"cannot be read: {error}") from error
        checked = self._kept.agreed(check_name)
        if checked is None and not self._kept.empty:
            raise self._error("damaged: it holds keys, and nothing that tells of which master key")
        if checked is not None:
            self._check_master(checked)
        following = self._follower.start()
        following.add_done_callback(self._followed)
        self._tasks.append(following)
        if checked is None:
            # Of several that make the store at once, one is first in the topic.
            checking = self._master.wrap(check_value, agreed_associated(check_name))
            proposal_id = self._environment.random_bytes(proposal_id_bytes)
            async with self._limited("whether it is made is not known"):
                await self._hand_once(Write([proposed(check_name, proposal_id, checking)]))
                await self._follower.until(lambda: self._kept.agreed(check_name) is not None)
            first = self._kept.agreed(check_name)
            assert first is not None
            self._check_master(first)
        self._tasks.append(asyncio.create_task(self._upkeep.run(), name="keys upkeep"))
        self._tasks[-1].add_done_callback(self._followed)

    def _check_master(self, checked: bytes) -> None:
        try:
            sound = self._master.unwrap(checked, agreed_associated(check_name)) == check_value
        except MasterKeyError as error:
            raise MasterKeyError(f"the keys in topic {self._topic} were wrapped by another master key") from error
        if not sound:
            raise self._error("damaged: what tells of its master key holds something else")

    # -- reading

    def _was_read(self, effects: Effects) -> None:
        if self._unknown:
            for key_id in [key_id for key_id in self._unknown if self._is_settled(key_id)]:
                del self._unknown[key_id]
        news = [key_id for key_id in effects.deleted if key_id not in self._hidden]
        self._hidden.difference_update(effects.deleted)
        if news:
            self._tell(news)

    def _followed(self, task: asyncio.Task[None]) -> None:
        """A task in the background has ended, which it does only when it is cancelled or at fault."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed = True
            log.critical("key store in topic %s: %s has stopped", self._topic, task.get_name(), exc_info=error)
            self._follower.close()

    async def _refresh(self) -> None:
        await self._repeat(lambda: self._ends.join(None))
        end = self._end
        await self._follower.until(lambda: self._follower.position >= end)

    async def _ask_end(self, _: Sequence[None]) -> None:
        self._end = await self._client.end(self._topic, 0, end_seconds_max)

    # -- writing

    async def _hand(self, records: Sequence[TopicRecord]) -> None:
        """Write what may be written twice, until it is acknowledged."""
        await self._repeat(lambda: self._writes.write(Write(records)))

    async def _hand_once(self, write: Write) -> None:
        """Write what must not be written twice: returns once a broker may have it. Only the topic tells if it has."""
        while True:
            try:
                return await self._writes.write(write)
            except NotReached:
                raise
            except NotAnswered as error:
                self._why = str(error)
                return None
            except NotSent as error:
                await self._pause(error)
                write.given_up = False

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do what may be done twice, until it is answered."""
        while True:
            try:
                return await work()
            except NotReached:
                raise
            except (NotSent, NotAnswered) as error:
                await self._pause(error)

    async def _pause(self, error: KafkaFailed) -> None:
        self._check_open()
        self._why = str(error)
        await asyncio.sleep(retry_seconds)

    # -- what is known of keys

    def _is_settled(self, key_id: bytes) -> bool:
        return self._kept.has(key_id) or self._kept.is_dead(key_id)

    def _is_taken(self, key_id: bytes) -> bool:
        return self._is_settled(key_id) or key_id in self._putting or key_id in self._unknown

    def _ids_of(self, owner: str) -> list[bytes]:
        """All keys of the owner, hidden ones and those that may yet come too, in order."""
        ids = dict.fromkeys(self._kept.keys_of(owner))
        for unsettled in (self._unknown, self._putting):
            ids.update(dict.fromkeys(key_id for key_id, its_owner in unsettled.items() if its_owner == owner))
        return list(ids)

    def _hide(self, key_ids: Sequence[bytes]) -> None:
        news = [key_id for key_id in key_ids if key_id not in self._hidden]
        self._hidden.update(news)
        if news:
            self._tell(news)

    def _tell(self, key_ids: Sequence[bytes]) -> None:
        for listener in self._listeners:
            listener(key_ids)

    def _unwrap(self, wrapped: bytes, associated: bytes, what: str) -> bytes:
        try:
            return self._master.unwrap(wrapped, associated)
        except MasterKeyError as error:
            # The check value did open under this master key, so it is not the key that is wrong.
            raise self._error(f"damaged: {what} does not open") from error

    # -- errors

    @contextlib.asynccontextmanager
    async def _limited(self, otherwise: str) -> AsyncIterator[None]:
        """Let what is inside take no longer than a call may; `otherwise` tells what then is so."""
        self._why = ""
        try:
            async with asyncio.timeout(call_seconds_max):
                yield
        except TimeoutError as error:
            why = self._why or self._follower.why or f"no answer within {call_seconds_max:.0f} s"
            raise self._error(f"{why}; {otherwise}") from error
        except KafkaFailed as error:
            raise self._error(f"{error}; {otherwise}") from error

    def _check_open(self) -> None:
        if self._closed:
            raise self._error("closed")

    def _error(self, detail: str) -> KeyStoreError:
        return KeyStoreError(None, f"key store in topic {self._topic}: {detail}")
