"""How the arguments of a call are read: strict models, and one clear message for what does not fit.

Only shapes are checked here (JSON types, names, times, base64); what a command may hold is the store's to
say. `null` reads as absent everywhere, and no message ever repeats a payload, a label or a checkpoint.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Annotated, Any, Final, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from schemas.limits import id_bytes_max, page_records_max
from schemas.refusals import Refusal, invalid
from schemas.times import parse_time


class Wire(BaseModel):
    """An object as a caller sends it: exact JSON types, no unknown field, never changed after."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)


WireT = TypeVar("WireT", bound=Wire)


def _wrong(reason: str) -> NoReturn:
    raise PydanticCustomError("wire", "{reason}", {"reason": reason})


def _read_time(value: object) -> int:
    if not isinstance(value, str):
        _wrong("must be a time as text")
    try:
        return parse_time(value)
    except ValueError as error:
        _wrong(str(error))


def _read_payload(value: object) -> bytes:
    if not isinstance(value, str):
        _wrong("must be a text that holds the JSON text")
    try:
        return value.encode()
    except UnicodeEncodeError:
        _wrong("holds a lone surrogate, which no UTF-8 bytes stand for")


def _read_base64(value: object) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, str):
        _wrong("must be a text in standard base64")
    try:
        data = b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        _wrong("is not standard base64 with padding")
    if b64encode(data) != value.encode():  # non-zero bits after the last byte: two texts for the same bytes
        _wrong("is not standard base64 with padding")
    return data


Time = Annotated[
    int,
    PlainValidator(_read_time),
    WithJsonSchema(
        {
            "type": "string",
            "format": "date-time",
            "description": "RFC 3339 in UTC (`Z` or `+00:00`), years 1970 to 9999, no part finer than a millisecond.",
        }
    ),
]
"""A time: text on the wire, milliseconds since 1970 UTC inside."""

Payload = Annotated[
    bytes,
    PlainValidator(_read_payload),
    WithJsonSchema(
        {
            "type": "string",
            "contentMediaType": "application/json",
            "description": "A text that holds one JSON text, kept byte for byte; at most 4 MiB of UTF-8.",
        }
    ),
]
"""A payload: text on the wire, its UTF-8 bytes inside."""

Base64 = Annotated[
    bytes,
    PlainValidator(_read_base64),
    WithJsonSchema(
        {
            "type": ["string", "null"],
            "contentEncoding": "base64",
            "description": "Standard base64 with padding; at most 8 MiB of bytes, and empty is legal.",
        }
    ),
]
"""Bytes: standard base64 on the wire; absent is empty."""

NotEmpty = Annotated[str, Field(min_length=1)]
"""A text that is not empty, where the store takes the empty one for something."""

Limit = Annotated[int, Field(ge=1, le=page_records_max)]
"""How many entries a page may hold."""

_MESSAGES: Final[Mapping[str, str]] = {
    "missing": "is missing",
    "extra_forbidden": "is not a field here",
    "string_type": "must be a text",
    "string_too_short": "must not be empty",
    "string_unicode": "holds a lone surrogate",
    "int_type": "must be a whole number",
    "int_parsing_size": "is out of range",
    "dict_type": "must be an object of texts",
    "list_type": "must be an array",
    "too_long": "holds too many entries",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "greater_than_equal": "must be from 1 to 1,000",
    "less_than_equal": "must be from 1 to 1,000",
}
_ID_NAMES: Final = ("session_id", "run_id", "parent_run_id", "predecessor_run_id", "agent_id", "event_key")
shown_chars_max: Final = 64
"""How much of a name that a caller made up is repeated in a message."""


def read(model: type[WireT], args: object) -> WireT | Refusal:
    """Read the arguments of a call, or say as `invalid_command` which field does not fit and why."""
    try:
        return model.model_validate(args)
    except ValidationError as error:
        return shape_refusal(error, args)


def shape_refusal(error: ValidationError, args: object) -> Refusal:
    """The refusal for arguments of another shape: the first field that does not fit, and the command's IDs."""
    first = error.errors(include_url=False, include_context=True)[0]
    kind, place = first["type"], first["loc"]
    if kind == "missing" or (first.get("input") is None and kind != "extra_forbidden" and _is_field(place)):
        reason = _MESSAGES["missing"]
    elif kind == "wire":
        reason = first["msg"]
    elif kind == "literal_error":
        reason = f"must be one of {first['ctx']['expected']}"
    else:
        reason = _MESSAGES.get(kind, "has the wrong shape")
    path = _path(place)
    detail = f"{path}: {reason}" if path else f"the arguments: {reason}"
    return invalid(detail, **ids_of(args))


def ids_of(args: object) -> dict[str, str]:
    """The IDs that unchecked arguments name, for a refusal; what could not be an ID is left out."""
    found: dict[str, str] = {}
    if not isinstance(args, dict):
        return found
    for place in (args, args.get("run"), args.get("record")):
        if not isinstance(place, dict):
            continue
        for name in _ID_NAMES:
            value: Any = place.get(name)
            if name not in found and isinstance(value, str) and value and _fits(value):
                found[name] = value
    return found


def _fits(value: str) -> bool:
    try:
        return len(value) <= id_bytes_max and len(value.encode()) <= id_bytes_max
    except UnicodeEncodeError:
        return False


def _is_field(place: tuple[int | str, ...]) -> bool:
    """Whether this is a field, which may be absent, and neither a label nor an entry of an array, which may not."""
    return "labels" not in place[:-1] and bool(place) and isinstance(place[-1], str)


def _path(place: tuple[int | str, ...]) -> str:
    """The field's path, without what a caller keeps private: below `labels` every name is a label's."""
    parts: list[str] = []
    for part in place:
        name = str(part)
        shown = name if len(name) <= shown_chars_max else name[:shown_chars_max] + "…"
        parts.append(shown.encode("utf-8", "replace").decode())
        if part == "labels":
            break
    return ".".join(parts)
