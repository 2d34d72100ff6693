"""A connection hands on each answer once it is whole, however it comes, and breaks on one that cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import ApiVersionResponse_v0
from aiokafka.protocol.produce import ProduceResponse_v7

from engine.kafka.connections import _Connection
from engine.kafka.produce import Produce, Produced

VERSIONS = ApiVersionResponse_v0(0, [(0, 0, 7)]).encode()


def _framed(correlation_id: int, body: bytes) -> bytes:
    frame = correlation_id.to_bytes(4, "big") + body
    return len(frame).to_bytes(4, "big") + frame


def _answer(correlation_id: int, offset: int) -> bytes:
    return _framed(correlation_id, ProduceResponse_v7([("topic", [(0, 0, offset, -1, 0)])], 0).encode())


async def _tell_versions(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A broker that tells what it speaks and answers nothing else."""
    size = int.from_bytes(await reader.readexactly(4), "big")
    request = await reader.readexactly(size)
    writer.write(_framed(int.from_bytes(request[4:8], "big"), VERSIONS))
    await reader.read()
    writer.close()


@pytest.fixture
async def connection() -> AsyncIterator[_Connection]:
    server = await asyncio.start_server(_tell_versions, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    connection = _Connection(host, port)
    await connection.connect()
    yield connection
    await connection.close()
    server.close()
    await server.wait_closed()


def _post(connection: _Connection, count: int) -> tuple[list[asyncio.Future[Produced]], list[int]]:
    posted = [connection.post(Produce("topic", 0, b"batch", 1)) for _ in range(count)]
    return posted, [correlation_id for correlation_id, _, _ in connection._requests]


@pytest.mark.parametrize("piece_bytes", [1, 3, 4, 30, 1000])
async def test_answers_come_whole_from_any_pieces(connection: _Connection, piece_bytes: int) -> None:
    posted, numbers = _post(connection, 3)
    data = b"".join(_answer(number, 100 + index) for index, number in enumerate(numbers))
    for begin in range(0, len(data), piece_bytes):
        connection._take(data[begin : begin + piece_bytes])
    assert [each.result().offset for each in posted] == [100, 101, 102]


@pytest.mark.parametrize("wrong", [_framed(2, b"\x00"), _answer(77, 0)], ids=["cut short", "another's"])
async def test_an_answer_that_cannot_be_read_ends_the_connection(connection: _Connection, wrong: bytes) -> None:
    posted, numbers = _post(connection, 2)
    assert numbers == [2, 3]
    connection._take(wrong + _answer(3, 1))
    assert not connection.connected()
    for each in posted:
        with pytest.raises(KafkaError):
            await each
