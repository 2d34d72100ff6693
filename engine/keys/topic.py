"""What the records of the keys topic look like. Pure: bytes in, values out.

The topic `<prefix>.keys` has one partition and is compacted: of each record key, the last value stays. Timestamps are
the broker's (`message.timestamp.type=LogAppendTime`). A record key begins with its kind and a NUL::

    record key                                value
    key␀ owner ␀ key_id (16)                  wrapped (60): a data key of the owner; none: it is purged, for good
    value␀ name                               version (8, big-endian) wrapped: a named value; the highest version holds,
                                              of equal ones the later
    agreed␀ name ␀ proposal_id (16)           wrapped: a value proposed under a name; the first of a name holds
    filler␀                                   nothing (but not none): written so that a segment ends

Owner and name are UTF-8 without NUL. An owner is `session:<session ID>` or `tree:<run ID>`.
`wrapped` is a nonce (12) and AES-256-GCM under the master key; its associated data is::

    a data key       key␀ key_id owner
    a named value    value␀ name ␀ version (8)
    an agreed value  agreed␀ name

What was agreed as `check_name` is `check_value`, which opens only under the master key that wrapped all the rest.

- A data key that follows its own tombstone is void: a late copy. Whoever reads it writes the tombstone again.
- Each proposal has a record key of its own, since compaction would drop the first of two values under one record key.
- A kind that is not known here is a later version's: it is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.keys.interface import key_id_bytes
from engine.keys.master import key_bytes, nonce_bytes

wrapped_key_bytes: Final = nonce_bytes + key_bytes + 16
version_bytes: Final = 8
proposal_id_bytes: Final = 16

check_name: Final = "master key check"
check_value: Final = b"runstore keys"

segment_ms: Final = 600_000
"""How old a segment may get before the next record begins another: what a purge waits for at least."""

compaction_lag_ms_max: Final = 600_000
"""How long a closed segment may stay uncompacted."""

topic_settings: Final[dict[str, str]] = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "LogAppendTime",
    "segment.ms": str(segment_ms),
    "segment.jitter.ms": "0",
    "max.compaction.lag.ms": str(compaction_lag_ms_max),
    "min.compaction.lag.ms": "0",
}
"""How the topic is made, beside replication. With clocks of clients, one that is ahead could keep a segment open."""

_KEY: Final = b"key\0"
_VALUE: Final = b"value\0"
_AGREED: Final = b"agreed\0"
FILLER: Final = b"filler\0"


class FormError(Exception):
    """A record of a known kind that is not of its form; the message holds no value of it."""


@dataclass(frozen=True, slots=True)
class KeyKept:
    """A data key, wrapped."""

    owner: str
    key_id: bytes
    wrapped: bytes


@dataclass(frozen=True, slots=True)
class KeyGone:
    """The tombstone of a data key."""

    owner: str
    key_id: bytes


@dataclass(frozen=True, slots=True)
class ValueKept:
    """A named value, wrapped."""

    name: str
    version: int
    wrapped: bytes


@dataclass(frozen=True, slots=True)
class Proposed:
    """A value, wrapped, proposed under a name."""

    name: str
    wrapped: bytes


@dataclass(frozen=True, slots=True)
class Other:
    """A filler, or what a later version writes."""


Parsed = KeyKept | KeyGone | ValueKept | Proposed | Other
_OTHER: Final = Other()


def parse(key: bytes | None, value: bytes | None) -> Parsed:
    """What a record says. Raises `FormError`."""
    if key is None:
        raise FormError("a record without a key")
    if key.startswith(_KEY):
        return _parse_key(key, value)
    if key.startswith(_VALUE):
        if value is None or len(value) < version_bytes:
            raise FormError(f"the named value {key!r} has no version")
        version = int.from_bytes(value[:version_bytes], "big")
        return ValueKept(_text(key, key[len(_VALUE) :]), version, value[version_bytes:])
    if key.startswith(_AGREED):
        if value is None:
            # Nothing here writes one; whoever did has taken the proposal back.
            return _OTHER
        return Proposed(_text(key, _head(key, _AGREED, proposal_id_bytes)), value)
    return _OTHER


def key_kept(owner: str, key_id: bytes, wrapped: bytes) -> tuple[bytes, bytes]:
    """The record of a data key."""
    if len(wrapped) != wrapped_key_bytes:
        raise ValueError(f"a wrapped data key is {wrapped_key_bytes} bytes, not {len(wrapped)}")
    return _key(owner, key_id), wrapped


def key_gone(owner: str, key_id: bytes) -> tuple[bytes, None]:
    """The tombstone of a data key."""
    return _key(owner, key_id), None


def value_kept(name: str, version: int, wrapped: bytes) -> tuple[bytes, bytes]:
    """The record of a named value."""
    return _VALUE + _name(name), version.to_bytes(version_bytes, "big") + wrapped


def proposed(name: str, proposal_id: bytes, wrapped: bytes) -> tuple[bytes, bytes]:
    """The record of a proposed value."""
    return _AGREED + _name(name) + b"\0" + proposal_id, wrapped


def filler() -> tuple[bytes, bytes]:
    """The record that only takes time."""
    return FILLER, b""


def value_associated(name: str, version: int) -> bytes:
    """What a wrapped named value is bound to."""
    return _VALUE + name.encode() + b"\0" + version.to_bytes(version_bytes, "big")


def agreed_associated(name: str) -> bytes:
    """What a wrapped agreed value is bound to."""
    return _AGREED + name.encode()


def _parse_key(key: bytes, value: bytes | None) -> Parsed:
    owner = _text(key, _head(key, _KEY, key_id_bytes))
    key_id = key[-key_id_bytes:]
    if value is None:
        return KeyGone(owner, key_id)
    if len(value) != wrapped_key_bytes:
        raise FormError(f"data key {key_id.hex()} of {owner!r} is {len(value)} bytes, not {wrapped_key_bytes}")
    return KeyKept(owner, key_id, value)


def _head(key: bytes, kind: bytes, id_bytes: int) -> bytes:
    """The text between the kind and the ID that ends a record key."""
    end = len(key) - id_bytes - 1
    if end <= len(kind) or key[end] != 0:
        raise FormError(f"the record key {key!r} does not end in an ID")
    return key[len(kind) : end]


def _text(key: bytes, text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise FormError(f"the record key {key!r} is not UTF-8") from error


def _key(owner: str, key_id: bytes) -> bytes:
    return _KEY + owner.encode() + b"\0" + key_id


def _name(name: str) -> bytes:
    if not name or "\0" in name:
        raise ValueError("a name is a text without NUL, and not empty")
    return name.encode()
