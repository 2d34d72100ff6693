"""How the query of a request is read: each parameter known, and given once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

from schemas.limits import page_records_default, page_records_max
from schemas.refusals import Refused, invalid
from service.wire import shown_chars_max

Query = Mapping[str, str]
"""Query parameters by name; one that is empty is absent."""

_stray_percent: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})").search
_small_number: Final = re.compile(r"[0-9]{1,9}").fullmatch


def decode_percent(text: bytes) -> str | None:
    """A part of a URL as text; None where its percent-encoding or its UTF-8 is broken."""
    try:
        if b"%" not in text:
            return text.decode()
        return None if _stray_percent(text) else unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        return None


def parse_query(query: bytes, known: tuple[str, ...] = ()) -> Query:
    """The parameters by name, empty ones left out. Refused: one that is not known, twice given, or badly encoded."""
    found: dict[str, str] = {}
    given: set[str] = set()
    for part in query.split(b"&"):
        if not part:
            continue
        raw_name, _, raw_value = part.replace(b"+", b" ").partition(b"=")
        name, value = decode_percent(raw_name), decode_percent(raw_value)
        if name not in known:
            raise Refused(invalid(f"unknown query parameter {_shown(name)}; known here: {', '.join(known) or 'none'}"))
        if value is None:
            raise Refused(invalid(f"query parameter {name} is not percent-encoded UTF-8"))
        if name in given:
            raise Refused(invalid(f"query parameter {name} is given twice"))
        given.add(name)
        if value:
            found[name] = value
    return found


def limit_of(query: Query) -> int:
    """`limit`: 1 to 1,000, and 100 where none is given."""
    text = query.get("limit")
    if text is None:
        return page_records_default
    limit = int(text) if _small_number(text) else 0
    if not 1 <= limit <= page_records_max:
        raise Refused(invalid("query parameter limit must be a whole number from 1 to 1,000"))
    return limit


def flag_of(query: Query, name: str, *, default: bool) -> bool:
    """A parameter that is `true` or `false`."""
    text = query.get(name)
    if text not in (None, "true", "false"):
        raise Refused(invalid(f"query parameter {name} must be true or false"))
    return default if text is None else text == "true"


def count_of(query: Query, name: str) -> int:
    """A parameter that counts something: a whole number, and 0 where none is given."""
    text = query.get(name, "0")
    if not _small_number(text):
        raise Refused(invalid(f"query parameter {name} must be a whole number of at most nine digits"))
    return int(text)


def list_of(query: Query, name: str) -> tuple[str, ...]:
    """A parameter that holds one value or several, with commas between; none at all where it is not given."""
    text = query.get(name)
    if text is None:
        return ()
    values = tuple(text.split(","))
    if not all(values):
        raise Refused(invalid(f"query parameter {name} holds an empty value between its commas"))
    return values


def payload_is_json(query: Query) -> bool:
    """`payload=json`: whether payloads are to be embedded as JSON."""
    value = query.get("payload")
    if value not in (None, "json"):
        raise Refused(invalid("query parameter payload can only be json"))
    return value == "json"


def _shown(name: str | None) -> str:
    return name if name is not None and len(name) <= shown_chars_max and name.isprintable() else "with that name"
