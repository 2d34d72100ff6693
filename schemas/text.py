"""The rules of names: IDs, event keys, types, turn IDs, cancellation reasons and labels.

Every check takes a value and the name of its field, and returns None when the value is fine, else a
message that names the field and its limit. A message never repeats the value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from schemas.limits import id_bytes_max, label_bytes_max, labels_count_max, reason_bytes_max
from schemas.values import RESERVED_TYPES

_plain: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]+").fullmatch
_surrogate: Final = re.compile(r"[\ud800-\udfff]").search


def check_id(value: str, name: str) -> str | None:
    """An ID is 1 to 512 bytes of UTF-8 without control characters, and neither `.` nor `..`."""
    if value in {".", ".."}:
        # A path with such a segment is rewritten by clients and proxies before it arrives.
        return f"{name} must be an ID of 1 to {id_bytes_max} bytes that is neither '.' nor '..'"
    return _check_name(value, name, id_bytes_max)


def check_turn_id(value: str, name: str = "turn_id") -> str | None:
    """A turn ID is an ID, or empty."""
    return check_id(value, name) if value else None


def check_event_key(value: str, name: str = "event_key") -> str | None:
    """An event key is 1 to 512 bytes of UTF-8 without control characters."""
    return _check_name(value, name, id_bytes_max)


def check_type(value: str, name: str = "type") -> str | None:
    """A type is 1 to 512 bytes without control characters and commas, and not a name that streams reserve."""
    if value in RESERVED_TYPES:
        return f"{name} must be a type of 1 to {id_bytes_max} bytes other than {' and '.join(sorted(RESERVED_TYPES))}"
    return _check_without_comma(value, name, id_bytes_max)


def check_reason(value: str, name: str = "reason") -> str | None:
    """A cancellation reason is 1 to 1,024 bytes of UTF-8 without control characters and commas."""
    return _check_without_comma(value, name, reason_bytes_max)


def check_labels(labels: Mapping[str, str], name: str = "labels") -> str | None:
    """Labels are at most 64; a key is 1 to 512 bytes without control characters, a value any text, both at most 1,024.

    Which label it is stays unsaid, since labels are private.
    """
    if len(labels) > labels_count_max:
        return f"{name} must be at most {labels_count_max}, not {len(labels)}"
    for key, value in labels.items():
        problem = _check_name(key, f"a key of {name}", id_bytes_max)
        if problem is not None:
            return problem
        if not value.isascii() and _surrogate(value):
            return (
                f"a value of {name} must be text without lone surrogates, key and value at most {label_bytes_max} bytes"
            )
        size = utf8_size(key) + utf8_size(value)
        if size > label_bytes_max:
            return f"{name} must have a key and value of at most {label_bytes_max} bytes together, not {size}"
    return None


def utf8_size(value: str) -> int:
    """How many bytes a text without lone surrogates takes in UTF-8."""
    return len(value) if value.isascii() else len(value.encode())


def _check_without_comma(value: str, name: str, bytes_max: int) -> str | None:
    if "," in value:
        return f"{name} must be 1 to {bytes_max} bytes of UTF-8 without commas"
    return _check_name(value, name, bytes_max)


def _check_name(value: str, name: str, bytes_max: int) -> str | None:
    # What is printable has neither controls nor surrogates, and is the common case.
    plain = value.isprintable() or _plain(value)
    if value and plain and (len(value) * 4 <= bytes_max or utf8_size(value) <= bytes_max):
        return None
    law = f"{name} must be 1 to {bytes_max} bytes of UTF-8 without control characters"
    if not value:
        return f"{law}: it is empty"
    if plain:
        return f"{law}: it has {utf8_size(value)} bytes"
    return f"{law}: it has a {'lone surrogate' if _surrogate(value) else 'control character'}"
