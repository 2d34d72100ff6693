"""Product memory: what an agent's product keeps of a run, apart from the runtime's own records.

The events of one append are sealed together, as a JSON array of objects: `type`, `timestamp` (milliseconds), `data` (a
text that holds the JSON text, so that every byte of it stays) and `labels`, sorted by key, so that equal events are
equal bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

MEMORY_TYPES: Final = (
    "user_message",
    "assistant_message",
    "tool_call",
    "tool_result",
    "planner_note",
    "thinking",
)
"""What a memory's event can be."""


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """Something to remember. `data` is JSON text, kept byte for byte. Two are equal when all fields are."""

    type: str
    timestamp: int
    data: bytes
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """All that is remembered of a run by an agent, in order; without a history, no events."""

    agent_id: str
    run_id: str
    events: tuple[MemoryEvent, ...]


class _Stored(msgspec.Struct, frozen=True):
    type: str
    timestamp: int
    data: str
    labels: dict[str, str]


_encode: Final = msgspec.json.Encoder(order="sorted").encode
_decode: Final = msgspec.json.Decoder(list[_Stored]).decode


def encode_events(events: Sequence[MemoryEvent]) -> bytes:
    """The events of one append as they are sealed."""
    return _encode([_Stored(each.type, each.timestamp, each.data.decode(), dict(each.labels)) for each in events])


def decode_events(data: bytes) -> list[MemoryEvent]:
    """The events of one append from what was sealed. Raises `ValueError`."""
    return [MemoryEvent(each.type, each.timestamp, each.data.encode(), each.labels) for each in _decode(data)]


def appearance(events: Sequence[MemoryEvent], encoded_bytes: int) -> str:
    """What shows of an append in the log: how many events, the times of the first and last, how many bytes are sealed.

    Equal appends look alike, so only those that do are opened to tell a retry. It holds no digest of what is private.
    """
    return f"{len(events)}/{events[0].timestamp}/{events[-1].timestamp}/{encoded_bytes}"
