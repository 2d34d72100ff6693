"""How answers become JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec


def encoded(value: object) -> bytes:
    """A value as JSON in UTF-8; `msgspec.Raw` in it stays as it is.

    A text may hold a lone surrogate, as an escape in a payload can: it is shown as that escape again.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_escaped(value))


def _escaped(value: object) -> object:
    """The value with every text that UTF-8 cannot hold replaced by its JSON text in ASCII."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return msgspec.Raw(json.dumps(value).encode("ascii"))
    elif isinstance(value, Mapping):
        return {name: _escaped(item) for name, item in value.items()}
    elif isinstance(value, list | tuple):
        return [_escaped(item) for item in value]
    return value
