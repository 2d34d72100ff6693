"""A Produce request of one batch for one partition, written by hand: a caller waits for each.

It is a request as aiokafka's connections take it, with the bytes that aiokafka's own has; those are made of many small
parts, in as much time as most commands take to be decided.
"""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Final, NamedTuple

from aiokafka.errors import IncompatibleBrokerVersion

_API_KEY: Final = 0
_VERSIONS: Final = range(3, 8)
"""Their requests are alike, and their answers as far as they are read here."""

_ALL_REPLICAS: Final = -1
_HEADER: Final = struct.Struct(">hhih")
_BEGIN: Final = struct.Struct(">hhiih")
_PARTITION: Final = struct.Struct(">iii")
_ANSWER: Final = struct.Struct(">iihq")
_CORRELATION: Final = struct.Struct(">i")


class Produced(NamedTuple):
    """The answer: an error's code, 0 for none, and the batch's first offset."""

    error_code: int
    offset: int

    @staticmethod
    def decode(answer: BytesIO) -> Produced:
        """Read it, after the header."""
        data = answer.getbuffer()[answer.tell() :]
        topic_bytes = int.from_bytes(data[4:6], "big")
        _, _, error_code, offset = _ANSWER.unpack_from(data, 6 + topic_bytes)
        return Produced(error_code, offset)


class _AnswerHeader(NamedTuple):
    correlation_id: int


class _Encoded(NamedTuple):
    data: bytes

    def encode(self) -> bytes:
        return self.data


class Produce:
    """Hands over one batch, to be answered when all in-sync replicas have it."""

    RESPONSE_TYPE: Final = Produced

    def __init__(self, topic: str, partition: int, batch: bytes, broker_ms: int) -> None:
        self._topic = topic.encode()
        self._partition = partition
        self._batch = batch
        self._broker_ms = broker_ms
        self._version = _VERSIONS[-1]

    def prepare(self, versions: dict[int, tuple[int, int]]) -> Produce:
        """Choose a version that the broker knows. Raises `IncompatibleBrokerVersion`."""
        least, most = versions.get(_API_KEY, (0, 0))
        self._version = min(most, _VERSIONS[-1])
        if self._version not in _VERSIONS or self._version < least:
            raise IncompatibleBrokerVersion(f"the broker takes Produce requests of versions {least} to {most}")
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> _Encoded:
        """What comes first."""
        client = client_id.encode()
        return _Encoded(_HEADER.pack(_API_KEY, self._version, correlation_id, len(client)) + client)

    def encode(self) -> bytes:
        """What follows the header."""
        no_transaction = -1
        return b"".join(
            (
                _BEGIN.pack(no_transaction, _ALL_REPLICAS, self._broker_ms, 1, len(self._topic)),
                self._topic,
                _PARTITION.pack(1, self._partition, len(self._batch)),
                self._batch,
            )
        )

    def parse_response_header(self, answer: BytesIO) -> _AnswerHeader:
        """Read the answer's header."""
        return _AnswerHeader(*_CORRELATION.unpack(answer.read(_CORRELATION.size)))
