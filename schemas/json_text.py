"""JSON text: is it any, how is it read strictly, and where in it does a value stand.

Four readers, from lax to strict. `check_json_text` says whether bytes are one JSON text and builds
nothing; `elements` and `members` find the values of an array or object in a text that passed, so that
a slice of it can be kept as it is; `load_object_no_duplicates` and `load_strict` build values.

Caveats of the standard library's reader, which does the scanning: it takes `NaN`, a byte order mark's
text and lone surrogates, keeps the last of two equal keys, and counts nesting against the caller's own
stack. Each is dealt with here, and nowhere else.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Iterator
from itertools import accumulate
from json.scanner import make_scanner
from typing import Final, NoReturn

from schemas.limits import payload_depth_max

integer_digits_max: Final = 4300
"""Reading an integer takes time that grows with the square of its digits, so longer ones are refused."""


class JsonError(ValueError):
    """Bytes that are not the JSON asked for. The message tells the place, and none of the content."""


class JsonTooDeep(JsonError):
    """The text is nested deeper than can be read here; whether it is JSON is not known."""


def check_json_text(data: bytes) -> str | None:
    """None for one JSON text by RFC 8259 in UTF-8, nested at most 128 deep (`[]` is 1), else what is wrong.

    Numbers of any magnitude, equal keys and escapes of lone surrogates are fine.
    """
    try:
        text = _decode_utf8(data)
        _check_depth(data)
        if not _is_json(text):
            return "not JSON"
    except JsonError as error:
        return str(error)
    return None


def load_strict(data: bytes | str) -> object:
    """The value of a JSON text with no key twice and no lone surrogate. JsonError otherwise.

    Integers are `int`, other numbers `float`; a number that neither holds is infinite, which no field takes. A text
    nested deeper than can be read here is `JsonTooDeep`.
    """
    if isinstance(data, str):
        try:
            data = data.encode()
        except UnicodeEncodeError:
            raise JsonError("a text holds a lone surrogate") from None
    text = _decode_utf8(data)
    try:
        value = _read(text, _lenient_numbers)
    except JsonTooDeep:
        if sum(_bracket_steps(data)) != 0:
            raise JsonError("not JSON: an array or object does not end") from None
        raise
    if _surrogate_escape(text):
        _refuse_lone_surrogates(value)
    return value


def load_object_no_duplicates(data: bytes) -> dict[str, object]:
    """The one object of a JSON text with no key twice; escapes of lone surrogates are fine. JsonError otherwise.

    `1` is an `int` and `1.0` a `float`, so that a field of whole numbers can tell them apart.
    """
    text = _decode_utf8(data)
    _check_depth(data)
    value = _read(text, _strict)
    if not isinstance(value, dict):
        raise JsonError("not a JSON object")
    return value


def elements(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Where each value of the array at `start` begins and ends, in a text that `check_json_text` passed."""
    at = _after_space(text, start + 1)
    while text[at] != "]":
        end = _scan(text, at)[1]
        yield at, end
        at = _after_space(text, end)
        if text[at] == ",":
            at = _after_space(text, at + 1)


def members(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    """Each key of the object at `start`, and where its value begins and ends, in a text that passed."""
    at = _after_space(text, start + 1)
    while text[at] != "}":
        key, end = _scan(text, at)
        at = _after_space(text, _after_space(text, end) + 1)
        end = _scan(text, at)[1]
        yield key, at, end
        at = _after_space(text, end)
        if text[at] == ",":
            at = _after_space(text, at + 1)


def read_string(text: str, start: int) -> str:
    """The string at `start` of a text that passed; escapes of lone surrogates become lone surrogates."""
    value = _scan(text, start)[0]
    assert isinstance(value, str)
    return value


def compact(text: str) -> str:
    """A JSON text that passed, without white space between its tokens; every other character stays."""
    return _string_or_space(lambda found: found[1] or "", text)


_string_or_space: Final = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+")|[ \t\n\r]+').sub
_token: Final = re.compile(
    r'(?P<string>"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")'
    r"|(?P<scalar>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null)"
    r"|(?P<space>[ \t\n\r]+)|[\[\]{},:]|(?P<other>.)",
    re.DOTALL,
).sub
_LETTERS: Final = {"string": "s", "scalar": "v", "space": "", "other": "?"}
_innermost: Final = re.compile(r"\[(?:[vs](?:,[vs])*+)?\]|\{(?:s:[vs](?:,s:[vs])*+)?\}").sub
_surrogate_escape: Final = re.compile(r"\\u[dD][89a-fA-F]").search
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_BRACKET_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def _decode_utf8(data: bytes) -> str:
    if data.startswith(b"\xef\xbb\xbf"):
        raise JsonError("not JSON: it starts with a byte order mark")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise JsonError(f"not valid UTF-8 at byte {error.start}") from None


def _check_depth(data: bytes) -> None:
    if data.count(b"[") + data.count(b"{") <= payload_depth_max:
        return
    depth = max(accumulate(_bracket_steps(data)), default=0)
    if depth > payload_depth_max:
        raise JsonError(f"nested {depth} deep, where {payload_depth_max} is the most")


def _bracket_steps(data: bytes) -> array[int]:
    """For each bracket outside strings, 1 where it opens and -1 where it closes."""
    if b"\\" in data:
        # Left to right, so that a quote after an even number of backslashes stays.
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside_strings = b"".join(data.split(b'"')[::2])
    brackets = outside_strings.translate(_BRACKET_STEPS, _NOT_BRACKETS)
    return array("b", brackets)


def _is_json(text: str) -> bool:
    try:
        _skipper.decode(text)
    except json.JSONDecodeError as error:
        raise JsonError(f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        # The text is shallow by now, so the caller's own stack is deep, and that must not decide.
        return _is_json_by_folding(text)
    return True


def _is_json_by_folding(text: str) -> bool:
    """The same answer without a stack: one letter a token, then each innermost array or object becomes a value."""
    shape = _token(lambda found: _LETTERS.get(found.lastgroup or "", found[0]), text)
    for _ in range(payload_depth_max):
        shape = _innermost("v", shape)
    return shape in {"v", "s"}


def _read(text: str, decoder: json.JSONDecoder) -> object:
    try:
        return decoder.decode(text)
    except json.JSONDecodeError as error:
        raise JsonError(f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise JsonTooDeep("nested too deep to read here") from None


def _after_space(text: str, at: int) -> int:
    while text[at] in " \t\n\r":
        at += 1
    return at


def _refuse_constant(name: str) -> NoReturn:
    raise JsonError(f"not JSON: {name} is no JSON number")


def _read_integer(digits: str) -> int:
    if len(digits) > integer_digits_max:
        raise JsonError(f"a number of {len(digits)} digits, where {integer_digits_max} is the most")
    return int(digits)


def _read_any_integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= integer_digits_max else math.inf


def _read_fraction(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise JsonError("a number beyond the range of a float")
    return value


def _read_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        # Which key it is stays unsaid: a label's is private.
        raise JsonError("a key stands twice in one object")
    return value


def _refuse_lone_surrogates(value: object) -> None:
    left = [value]
    while left:
        found = left.pop()
        if isinstance(found, str):
            try:
                found.encode()
            except UnicodeEncodeError:
                raise JsonError("a text holds a lone surrogate") from None
        elif isinstance(found, dict):
            left.extend(found)
            left.extend(found.values())
        elif isinstance(found, list):
            left.extend(found)


# Numbers and objects are checked and thrown away at once: `bool` and `len` make nothing that lasts.
_skipper: Final = json.JSONDecoder(
    parse_int=bool, parse_float=bool, parse_constant=_refuse_constant, object_pairs_hook=len
)
_scan: Final = make_scanner(_skipper)  # type: ignore[arg-type]  # its stub names itself, where a decoder is meant
_lenient_numbers: Final = json.JSONDecoder(
    parse_int=_read_any_integer, parse_constant=_refuse_constant, object_pairs_hook=_read_pairs
)
_strict: Final = json.JSONDecoder(
    parse_int=_read_integer,
    parse_float=_read_fraction,
    parse_constant=_refuse_constant,
    object_pairs_hook=_read_pairs,
)
