"""A Produce request written by hand is byte for byte what aiokafka writes, and its answer reads alike."""

from __future__ import annotations

from io import BytesIO

import pytest
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol import produce
from aiokafka.protocol.produce import ProduceRequest
from hypothesis import given
from hypothesis import strategies as st

from engine.kafka.produce import Produce, Produced

_ANSWERS = {number: getattr(produce, f"ProduceResponse_v{number}") for number in range(3, 8)}


@given(
    st.text(max_size=40), st.integers(0, 2**31 - 1), st.binary(max_size=300), st.integers(1, 10_000), st.integers(3, 9)
)
def test_the_bytes_are_those_of_aiokafka(topic: str, partition: int, batch: bytes, wait: int, most: int) -> None:
    version = min(most, 7)
    mine = Produce(topic, partition, batch, wait).prepare({0: (0, most)})
    theirs = ProduceRequest(None, -1, wait, [(topic, [(partition, batch)])]).prepare({0: (version, version)})
    assert mine.encode() == theirs.encode()
    for number in (0, 2**31 - 1):
        header = theirs.build_request_header(correlation_id=number, client_id="aiokafka")
        assert mine.build_request_header(correlation_id=number, client_id="aiokafka").encode() == header.encode()


@pytest.mark.parametrize("version", range(3, 8))
@pytest.mark.parametrize(("error", "offset"), [(0, 2**40), (6, -1)])
def test_an_answer_tells_error_and_offset(version: int, error: int, offset: int) -> None:
    later = () if version < 5 else (0,)
    body = _ANSWERS[version]([("a topic é", [(7, error, offset, -1, *later)])], 0).encode()
    request = Produce("a topic é", 7, b"batch", 1)
    frame = BytesIO((12345).to_bytes(4, "big") + body)
    assert request.parse_response_header(frame).correlation_id == 12345
    assert request.RESPONSE_TYPE.decode(frame) == Produced(error, offset)


@pytest.mark.parametrize("versions", [(0, 2), (8, 12)])
def test_a_broker_of_other_versions_is_refused(versions: tuple[int, int]) -> None:
    with pytest.raises(IncompatibleBrokerVersion):
        Produce("topic", 0, b"batch", 1).prepare({0: versions})
