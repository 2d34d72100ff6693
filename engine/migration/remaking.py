"""The log's topic deleted and made anew, after a copy went wrong. Only what this store has written there may go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from aiokafka import errors as codes
from aiokafka.protocol.admin import DeleteTopicsRequest
from aiokafka.protocol.metadata import MetadataRequest

from engine.environment import Environment
from engine.kafka.client import KafkaClient
from engine.logs.interface import LogEntry
from engine.migration.errors import MigrationRefused, MigrationStopped
from engine.migration.repeating import answer_seconds_max, repeated
from schemas.log_record import RecordUnreadable, decode

gone_seconds_max: Final = 30.0
"""How long a topic that was deleted may still be seen."""

_wait_seconds: Final = 0.1


class Fetching(Protocol):
    """The source, as far as single records are asked for."""

    async def read(self, partition: int, position: int, records_max: int = 1) -> Sequence[LogEntry]:
        """See `Log`."""
        ...


class Reading(Protocol):
    """The topic."""

    async def end(self, partition: int) -> int:
        """See `Target`."""
        ...

    async def read(self, partition: int, offset: int) -> Sequence[LogEntry]:
        """See `Target`."""
        ...


async def find_foreign(source: Fetching, topic: Reading, partitions: int, filler: bytes) -> tuple[int, int] | None:
    """The first (partition, offset) of the topic that holds neither a record of the source nor a filler of ours."""
    for partition in range(partitions):
        offset = 0
        while entries := await topic.read(partition, offset):
            for entry in entries:
                if entry.data != filler and not await _is_copy(source, partition, entry.data):
                    return partition, entry.offset
            offset = entries[-1].offset + 1
    return None


async def _is_copy(source: Fetching, partition: int, data: bytes) -> bool:
    """Whether the source holds this record at the position that it says, wherever the topic has it."""
    try:
        position = decode(data).position
    except RecordUnreadable:
        return False
    if position < 0:
        return False
    found = await source.read(partition, position, 1)
    return bool(found) and found[0].data == data


async def delete_topic(client: KafkaClient, topic: str, environment: Environment) -> None:
    """Delete a topic and wait until no broker tells of it. Raises `MigrationRefused` or `MigrationStopped`."""
    request = DeleteTopicsRequest([topic], int(answer_seconds_max * 1000))
    answer = await repeated(environment, lambda: client.ask(request, answer_seconds_max, controller=True))
    for _, code in answer.topic_error_codes:
        error = codes.for_code(code)
        if error not in {codes.NoError, codes.UnknownTopicOrPartitionError}:
            raise MigrationRefused(
                f"the topic {topic} cannot be deleted: {error.__name__}",
                "delete it, then repeat the command: it copies everything again",
            )
    deadline = environment.monotonic() + gone_seconds_max
    while await _is_there(client, topic, environment):
        if environment.monotonic() > deadline:
            raise MigrationStopped(
                f"the topic {topic} was deleted and is still there after {gone_seconds_max:.0f} s",
                "repeat the command: it copies everything again",
            )
        await environment.sleep(_wait_seconds)
    client.look_again()


async def _is_there(client: KafkaClient, topic: str, environment: Environment) -> bool:
    request = MetadataRequest([topic], allow_auto_topic_creation=False)
    answer: Any = await repeated(environment, lambda: client.ask(request, answer_seconds_max, controller=True))
    return any(codes.for_code(each["error_code"]) is codes.NoError for each in answer.to_object()["topics"])
