"""One question in Kafka's own protocol: who is in the cluster, and who leads what."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Final

answer_seconds_max: Final = 2.0
answer_bytes_max: Final = 16 << 20

_METADATA: Final = 3
_VERSION: Final = 4  # The last before the flexible ones but four; Kafka 4 still answers it.


class WireError(Exception):
    """The broker does not answer, or not in this protocol."""


@dataclass(frozen=True)
class Partition:
    """A partition's place: `leader` is -1 where it has none."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True)
class Metadata:
    """What a broker knows: the IDs of the live brokers, and the asked topics that exist."""

    brokers: frozenset[int]
    topics: dict[str, dict[int, Partition]]


class _Reader:
    """Reads fields of an answer, in their order."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._at = 0

    def number(self, form: str) -> int:
        """Read an integer."""
        (value,) = struct.unpack_from(form, self._answer, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def text(self) -> str:
        """Read a string; a null is the empty one."""
        length = max(0, self.number(">h"))
        self._at += length
        return self._answer[self._at - length : self._at].decode()

    def numbers(self) -> tuple[int, ...]:
        """Read an array of broker IDs."""
        return tuple(self.number(">i") for _ in range(self.number(">i")))


def metadata(host: str, port: int, topics: tuple[str, ...] = ()) -> Metadata:
    """Ask a broker. Raises `WireError` where no answer comes within `answer_seconds_max`."""
    body = struct.pack(">i", len(topics)) + b"".join(map(_text, topics)) + b"\0"
    header = struct.pack(">hhi", _METADATA, _VERSION, 1) + _text("bin-kafka")
    try:
        with socket.create_connection((host, port), answer_seconds_max) as connection:
            connection.sendall(struct.pack(">i", len(header + body)) + header + body)
            (length,) = struct.unpack(">i", _exactly(connection, 4))
            if not 0 < length <= answer_bytes_max:
                raise WireError(f"{host}:{port} answers {length} bytes")
            return _parse(_Reader(_exactly(connection, length)))
    except (OSError, struct.error, UnicodeDecodeError) as error:
        raise WireError(f"{host}:{port} does not answer: {error}") from error


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _exactly(connection: socket.socket, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        more = connection.recv(length - len(received))
        if not more:
            raise ConnectionResetError("closed within an answer")
        received += more
    return bytes(received)


def _parse(reader: _Reader) -> Metadata:
    reader.number(">i")  # Correlation
    reader.number(">i")  # Throttling
    brokers = set()
    for _ in range(reader.number(">i")):
        brokers.add(reader.number(">i"))
        reader.text()
        reader.number(">i")
        reader.text()
    reader.text()  # Cluster
    reader.number(">i")  # Controller
    topics = {}
    for _ in range(reader.number(">i")):
        code, name, _internal = reader.number(">h"), reader.text(), reader.number(">b")
        partitions = {}
        for _ in range(reader.number(">i")):
            reader.number(">h")
            index, leader = reader.number(">i"), reader.number(">i")
            partitions[index] = Partition(leader, reader.numbers(), reader.numbers())
        if code == 0:
            topics[name] = partitions
    return Metadata(frozenset(brokers), topics)
