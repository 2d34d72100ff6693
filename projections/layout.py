"""Which keys a projection holds, and in what order they sort.

A key starts with one letter, its table. Capital letters are rows found by an ID; small letters are
indexes that belong to one **owner** – a session, the tree of a sessionless root run, or a memory – and start
with the owner's number, so that a purge is one range delete a table. A number is the position of
the record that created the thing (session, root run, run, memory): eight bytes, big-endian, so that byte order is log
order.

==========  ==============================================  =======================================
 key         is                                              holds
==========  ==============================================  =======================================
``M``        the projection itself                           `rows.Applied`
``S`` id     a session                                       `rows.SessionRow`
``R`` id     a run that lives in this partition              `rows.RunRow`
``D`` id     a run ID reserved here for another home         the home partition, four bytes
``P`` pos    a purge                                         owner of the keys that go with it
``A`` ids    a memory: agent ID, 0, run ID                   `rows.MemoryRow`
``C`` name   a consumer                                      `rows.ConsumerRow`
``L``        a session in the list: inverted created, id     –
``r``        owner, run, position: records of a run          –
``t``        owner, run, type, 0, position: by type          –
``s``        owner, position: records of a session           –
``u``        owner, type, 0, position: by type               –
``e``        owner, run, event key                           position
``n``        owner, run: runs of a session, in start order   run ID
``c``        owner, run, successor: continuations of a run   run ID of the successor
``m``        memory, position: appends of a memory           –
``k``        memory, appearance: appends that look alike     positions, eight bytes each
==========  ==============================================  =======================================
"""

from __future__ import annotations

import struct
from typing import Final

VIEW_VERSION: Final = 2
"""The version of fold, layout and rows together. A projection of another version is rebuilt."""

APPLIED: Final = b"M"
SESSION: Final = b"S"
RUN: Final = b"R"
RESERVED: Final = b"D"
PURGE: Final = b"P"
MEMORY: Final = b"A"
CONSUMER: Final = b"C"
SESSION_LIST: Final = b"L"
RUN_RECORDS: Final = b"r"
RUN_TYPES: Final = b"t"
SESSION_RECORDS: Final = b"s"
SESSION_TYPES: Final = b"u"
EVENT_KEYS: Final = b"e"
SESSION_RUNS: Final = b"n"
SUCCESSORS: Final = b"c"
MEMORY_APPENDS: Final = b"m"
MEMORY_ALIKE: Final = b"k"

OWNED_TABLES: Final = (
    RUN_RECORDS,
    RUN_TYPES,
    SESSION_RECORDS,
    SESSION_TYPES,
    EVENT_KEYS,
    SESSION_RUNS,
    SUCCESSORS,
)
"""The tables whose keys start with the number of a session or a tree: what a session's purge removes."""

MEMORY_TABLES: Final = (MEMORY_APPENDS, MEMORY_ALIKE)
"""The tables whose keys start with the number of a memory: what its purge removes."""

_PACK_U64 = struct.Struct(">Q")
_PACK_I32 = struct.Struct(">i")
_CREATED_MAX: Final = (1 << 63) - 1

number_bytes = _PACK_U64.pack
"""A position as eight big-endian bytes."""


def read_number(data: bytes) -> int:
    """The position in the last eight bytes of a key or value."""
    value: int = _PACK_U64.unpack(data[-8:])[0]
    return value


def read_numbers(data: bytes) -> list[int]:
    """The positions in a value that holds several, in order."""
    return [number for (number,) in _PACK_U64.iter_unpack(data)]


def session_key(session_id: str) -> bytes:
    """The key of a session's row."""
    return SESSION + session_id.encode()


def run_key(run_id: str) -> bytes:
    """The key of a run's row."""
    return RUN + run_id.encode()


def reserved_key(run_id: str) -> bytes:
    """The key of a reservation."""
    return RESERVED + run_id.encode()


def pack_home(home: int) -> bytes:
    """A home partition as a reservation keeps it."""
    return _PACK_I32.pack(home)


def read_home(data: bytes) -> int:
    """The home partition of a reservation."""
    value: int = _PACK_I32.unpack(data)[0]
    return value


def purge_key(position: int) -> bytes:
    """The key of a purge."""
    return PURGE + number_bytes(position)


def session_list_key(created_at: int, session_id: str) -> bytes:
    """The key that sorts a session into the list: newest `created_at` first, then by ID."""
    return SESSION_LIST + number_bytes(_CREATED_MAX - created_at) + session_id.encode()


def read_session_list_key(key: bytes) -> tuple[int, str]:
    """`created_at` and the session ID of a key of the list."""
    return _CREATED_MAX - int.from_bytes(key[1:9], "big"), key[9:].decode()


def run_records_prefix(owner: int, run: int) -> bytes:
    """Where the records of a run start; a position follows."""
    return RUN_RECORDS + number_bytes(owner) + number_bytes(run)


def run_types_prefix(owner: int, run: int, record_type: str) -> bytes:
    """Where the records of a run with one type start; a position follows. A type holds no control character."""
    return RUN_TYPES + number_bytes(owner) + number_bytes(run) + record_type.encode() + b"\x00"


def session_records_prefix(owner: int) -> bytes:
    """Where the records of a session start; a position follows."""
    return SESSION_RECORDS + number_bytes(owner)


def session_types_prefix(owner: int, record_type: str) -> bytes:
    """Where the records of a session with one type start; a position follows."""
    return SESSION_TYPES + number_bytes(owner) + record_type.encode() + b"\x00"


def event_key(owner: int, run: int, key: str) -> bytes:
    """The key that leads from a run's event key to the position of its record."""
    return EVENT_KEYS + number_bytes(owner) + number_bytes(run) + key.encode()


def session_runs_prefix(owner: int) -> bytes:
    """Where the runs of a session start; the run's number follows."""
    return SESSION_RUNS + number_bytes(owner)


def successors_prefix(owner: int, run: int) -> bytes:
    """Where the runs that continue a run start; the successor's number follows."""
    return SUCCESSORS + number_bytes(owner) + number_bytes(run)


def memory_key(agent_id: str, run_id: str) -> bytes:
    """The key of a memory's row. No ID holds NUL."""
    return MEMORY + agent_id.encode() + b"\x00" + run_id.encode()


def consumer_key(name: str) -> bytes:
    """The key of a consumer's row."""
    return CONSUMER + name.encode()


def read_consumer_key(key: bytes) -> str:
    """The name of the consumer whose row has this key."""
    return key[1:].decode()


def memory_appends_prefix(memory: int) -> bytes:
    """Where the appends of a memory start; a position follows."""
    return MEMORY_APPENDS + number_bytes(memory)


def memory_alike_key(memory: int, appearance: str) -> bytes:
    """The key that leads to a memory's appends that look alike."""
    return MEMORY_ALIKE + number_bytes(memory) + appearance.encode()


def memory_ranges(memory: int) -> list[tuple[bytes, bytes]]:
    """The key ranges, begin included and end not, that hold everything a memory has in the indexes."""
    return [(table + number_bytes(memory), table + number_bytes(memory + 1)) for table in MEMORY_TABLES]


def owned_ranges(owner: int) -> list[tuple[bytes, bytes]]:
    """The key ranges, begin included and end not, that hold everything a session or a tree has in the indexes."""
    return [(table + number_bytes(owner), table + number_bytes(owner + 1)) for table in OWNED_TABLES]
