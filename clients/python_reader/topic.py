"""Topics as a plain consumer reads them: partitions assigned by hand, nothing committed, an end that is told."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from .errors import TopicUnreadable

Config = Mapping[str, str | int | float | bool]
"""Settings of librdkafka, such as `bootstrap.servers` and `sasl.password`."""

answer_seconds_max: Final = 15.0
"""How long brokers may leave a question, or a reader that is not at the end, without an answer."""

poll_seconds: Final = 0.5
poll_messages_max: Final = 500

_OUT_OF_RANGE: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)  # noqa: SLF001 -- documented so
_PASSING: Final = (
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 -- documented so
    KafkaError._TRANSPORT,  # noqa: SLF001 -- documented so
    KafkaError._TIMED_OUT,  # noqa: SLF001 -- documented so
)


class OutOfRange(Exception):
    """The topic does not hold the offset that was to be read next."""

    def __init__(self, partition: int) -> None:
        super().__init__(f"partition {partition}")
        self.partition = partition


class Topic:
    """A topic, read from given offsets on."""

    def __init__(self, config: Config, name: str) -> None:
        self._name = name
        settings: dict[str, str | int | float | bool] = {"group.id": "runstore-reader", **config}
        settings |= {
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            # The position rule says what counts. A transaction that someone left open or aborted does not.
            "isolation.level": "read_uncommitted",
        }
        self._consumer = Consumer(settings)

    def partitions(self) -> list[int]:
        """The numbers of its partitions. Raises `TopicUnreadable`."""
        try:
            found = self._consumer.list_topics(self._name, timeout=answer_seconds_max).topics[self._name]
        except KafkaException as error:
            raise TopicUnreadable(f"topic {self._name}: {error}") from error
        if found.error is not None:
            raise TopicUnreadable(f"topic {self._name}: {found.error}")
        return sorted(found.partitions)

    def range(self, partition: int) -> tuple[int, int]:
        """Its first offset and the one after its last, asked now. Raises `TopicUnreadable`."""
        try:
            found = self._consumer.get_watermark_offsets(
                TopicPartition(self._name, partition), timeout=answer_seconds_max, cached=False
            )
        except KafkaException as error:
            raise TopicUnreadable(f"topic {self._name}, partition {partition}: {error}") from error
        if found is None:
            raise TopicUnreadable(f"topic {self._name}, partition {partition}: no answer")
        return found

    def start(self, offsets: Mapping[int, int]) -> None:
        """Read these partitions, from these offsets on."""
        self._consumer.assign([TopicPartition(self._name, partition, offset) for partition, offset in offsets.items()])

    def stop(self, partition: int) -> None:
        """Read a partition no further."""
        self._consumer.incremental_unassign([TopicPartition(self._name, partition)])

    def poll(self) -> Iterator[tuple[int, int, Message | None]]:
        """What has come within `poll_seconds`: partition, offset and message; None for a message at an end.

        Raises `OutOfRange`, or `TopicUnreadable` for what does not pass by itself.
        """
        first = self._consumer.poll(poll_seconds)
        # To consume many with a time limit is to wait for that limit: so for one, and then what is there already.
        messages = [] if first is None else [first, *self._consumer.consume(poll_messages_max, 0)]
        for message in messages:
            error = message.error()
            if error is None:
                yield _number(message.partition()), _number(message.offset()), message
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 -- documented so
                yield _number(message.partition()), _number(message.offset()), None
            elif error.code() in _OUT_OF_RANGE:
                raise OutOfRange(_number(message.partition()))
            elif error.code() not in _PASSING:
                raise TopicUnreadable(f"topic {self._name}: {error}")

    def close(self) -> None:
        """Let go of the brokers."""
        self._consumer.close()


class Patience:
    """Ends a wait for brokers that do not answer."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since = time.monotonic()

    def answered(self) -> None:
        """Be told that something came."""
        self._since = time.monotonic()

    def check(self) -> None:
        """Raise `TopicUnreadable` when nothing has come for too long."""
        if time.monotonic() - self._since > answer_seconds_max:
            raise TopicUnreadable(f"{self._what}: no answer for {answer_seconds_max:.0f} seconds")


def _number(value: int | None) -> int:
    assert value is not None
    return value
