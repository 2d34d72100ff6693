"""Writing to the keys topic: one batch for all that waits, and nothing is sent again behind its caller's back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from engine.environment import Environment
from engine.kafka.client import KafkaClient
from engine.kafka.errors import KafkaFailed, NotAnswered, NotSent
from engine.rounds import Rounds

produce_seconds_max: Final = 1.0
"""How long a batch waits for its answer; after that what became of it is told by the topic alone."""

batch_records_max: Final = 2000
"""Of at most some 300 bytes each, so that a batch stays below the smallest `max.message.bytes` in use (1 MiB)."""

TopicRecord = tuple[bytes, bytes | None]


@dataclass(slots=True, eq=False)
class Write:
    """Records that are to be written together, and what has become of them."""

    records: Sequence[TopicRecord]
    handed: bool = False
    """True once a broker may have got them."""
    given_up: bool = False
    """Set by a caller that waits no longer: what was not handed over by then never is."""


class Writes:
    """Writes to partition 0 of one topic."""

    def __init__(self, client: KafkaClient, topic: str, environment: Environment) -> None:
        self._client = client
        self._topic = topic
        self._environment = environment
        self._rounds: Rounds[Write] = Rounds(self._produce)

    async def write(self, write: Write) -> None:
        """Return when the records are replicated; order of calls is order in the topic. Raises `KafkaFailed`.

        `NotSent` means that nothing of this call was handed to a broker. A batch that is refused is refused for all
        that were in it.
        """
        try:
            await self._rounds.join(write)
        except BaseException:
            write.given_up = True
            raise

    async def drain(self) -> None:
        """Wait until nothing is being written; that takes no longer than the limits say."""
        await self._rounds.drain()

    async def _produce(self, writes: Sequence[Write]) -> None:
        handed = False
        for together in _batches(writes):
            # Whoever gave up while an earlier batch was on its way has been told that nothing was handed over.
            batch = [write for write in together if not write.given_up]
            if not batch:
                continue
            for write in batch:
                write.handed = True
            records = [record for write in batch for record in write.records]
            try:
                await self._client.produce(self._topic, 0, records, self._environment.wall_ms(), produce_seconds_max)
            except KafkaFailed as error:
                if isinstance(error, NotSent):
                    for write in batch:
                        write.handed = False
                if handed:
                    # The round fails as a whole, and an earlier batch of it was written.
                    raise NotAnswered(str(error)) from error
                raise
            handed = True


def _batches(writes: Sequence[Write]) -> Iterator[list[Write]]:
    """Cut what waits into batches; what one caller writes together may be long, and is its own batch then."""
    batch: list[Write] = []
    count = 0
    for write in writes:
        if batch and count + len(write.records) > batch_records_max:
            yield batch
            batch, count = [], 0
        batch.append(write)
        count += len(write.records)
    if batch:
        yield batch
