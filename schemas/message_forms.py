"""Forms: how one field of a message is read from a JSON text, and how it is written again.

What is read is a slice of a text that passed `check_json_text`, so a form checks kinds and not grammar.
What is written is what Go's encoder writes: no white space, and `<`, `>`, `&` escaped. JSON that nobody
interprets (a tool's input and result, metadata) is carried as its text, so that no number is rounded.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from schemas.json_text import compact, elements, members, read_string

integer_digits_max: Final = 19
"""Whole numbers are 64 bits wide; 2**63 has 19 digits."""

T = TypeVar("T")


class FormError(ValueError):
    """A value that is not of its field's form. The message tells its path, and none of its content."""


@dataclass(frozen=True, slots=True)
class Span:
    """A value in a JSON text: where it begins and ends, and the path that messages call it by."""

    text: str
    start: int
    end: int
    path: str

    @property
    def raw(self) -> str:
        """The value's own text."""
        return self.text[self.start : self.end]

    @property
    def is_null(self) -> bool:
        """True for `null`."""
        return self.text[self.start] == "n"

    def items(self) -> list[Span]:
        """The values of an array; FormError for anything else."""
        if self.text[self.start] != "[":
            raise self.wrong("must be an array")
        return [
            Span(self.text, start, end, f"{self.path}[{index}]")
            for index, (start, end) in enumerate(elements(self.text, self.start))
        ]

    def fields(self) -> dict[str, Span]:
        """The fields of an object, of equal keys the last; FormError for anything else."""
        if self.text[self.start] != "{":
            raise self.wrong("must be an object")
        return {
            key: Span(self.text, start, end, f"{self.path}.{key}") for key, start, end in members(self.text, self.start)
        }

    def wrong(self, problem: str) -> FormError:
        """The error that this value has a problem."""
        return FormError(f"{self.path} {problem}")


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """How a value of one kind is read and written. Null is read by whoever holds the value."""

    read: Callable[[Span], T]
    write: Callable[[T], str]


def list_of(form: Form[T]) -> Form[tuple[T, ...]]:
    """An array whose values all have one form."""

    def read(span: Span) -> tuple[T, ...]:
        return tuple(form.read(item) for item in span.items())

    def write(values: tuple[T, ...]) -> str:
        return f"[{','.join(form.write(value) for value in values)}]"

    return Form(read, write)


@dataclass(frozen=True, slots=True)
class Shape(Generic[T]):
    """The fields of an object in the order they are written, and how they make a value.

    A field that is absent or null is its zero value, unless it is `required`: then it must be there and
    not be empty. `check` tells what is wrong with the value as a whole, or None.
    """

    make: Callable[..., T]
    forms: Mapping[str, Form[Any]]
    required: frozenset[str] = frozenset()
    check: Callable[[T], str | None] = lambda _: None

    def read(self, span: Span, fields: Mapping[str, Span]) -> T:
        """The value that the fields of an object make; FormError where one is unknown or wrong."""
        values: dict[str, Any] = {}
        for name, field in fields.items():
            form = self.forms.get(name)
            if form is None:
                raise span.wrong("has a field that is unknown, or of another case")
            if not field.is_null:
                values[name] = form.read(field)
        for name in self.required:
            if not values.get(name):
                raise span.wrong(f"must have {name}, and not empty")
        value = self.make(**values)
        problem = self.check(value)
        if problem is not None:
            raise span.wrong(problem)
        return value

    def write(self, value: T) -> list[str]:
        """Each field of the value as `"name":value`, every field named."""
        written = []
        for name, form in self.forms.items():
            field = getattr(value, name)
            written.append(f'"{name}":{"null" if field is None else form.write(field)}')
        return written


def object_of(shape: Shape[T]) -> Form[T]:
    """An object of one shape."""

    def read(span: Span) -> T:
        return shape.read(span, span.fields())

    def write(value: T) -> str:
        return f"{{{','.join(shape.write(value))}}}"

    return Form(read, write)


_go_escaped: Final = re.compile(r"[<>&\u2028\u2029\ud800-\udfff]").sub
_integer: Final = re.compile(rf"-?[0-9]{{1,{integer_digits_max}}}").fullmatch


def _escape_as_go(text: str) -> str:
    # In a JSON text these stand in strings only. A lone surrogate cannot be written in UTF-8 at all.
    return _go_escaped(lambda found: f"\\u{ord(found[0]):04x}", text)


def _read_text(span: Span) -> str:
    if span.text[span.start] != '"':
        raise span.wrong("must be a string")
    return read_string(span.text, span.start)


def _write_text(value: str) -> str:
    return _escape_as_go(json.dumps(value, ensure_ascii=False))


def _read_flag(span: Span) -> bool:
    raw = span.raw
    if raw not in {"true", "false"}:
        raise span.wrong("must be true or false")
    return raw == "true"


def _write_flag(value: bool) -> str:  # noqa: FBT001  a form takes its value alone
    return "true" if value else "false"


def _read_integer(span: Span) -> int:
    raw = span.raw
    if _integer(raw) is None or not -(2**63) <= int(raw) < 2**63:
        raise span.wrong("must be a whole number of 64 bits, written without a fraction or an exponent")
    return int(raw)


def _read_bytes(span: Span) -> bytes:
    try:
        return binascii.a2b_base64(_read_text(span), strict_mode=True)
    except ValueError:
        raise span.wrong("must be standard base64") from None


def _write_bytes(value: bytes) -> str:
    return f'"{b64encode(value).decode()}"'


def _read_json_object(span: Span) -> str:
    if span.text[span.start] != "{":
        raise span.wrong("must be an object")
    return span.raw


def _write_json(value: str) -> str:
    return _escape_as_go(compact(value))


TEXT: Final = Form(_read_text, _write_text)
FLAG: Final = Form(_read_flag, _write_flag)
INTEGER: Final = Form(_read_integer, str)
BYTES: Final = Form(_read_bytes, _write_bytes)
TEXTS: Final = list_of(TEXT)
JSON: Final = Form(lambda span: span.raw, _write_json)
JSON_OBJECT: Final = Form(_read_json_object, _write_json)
