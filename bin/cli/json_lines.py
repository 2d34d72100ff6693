"""JSON text in indented lines, every token as it came: a number keeps its digits, a string its escapes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_tokens: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},:]|[^ \t\n\r\[\]{},:"]++').findall
_beyond_ascii: Final = re.compile("[^\x00-\x7f]").sub
_beyond_utf8: Final = re.compile("[\ud800-\udfff]").sub
_BASIC_PLANE_MAX: Final = 0xFFFF


def indented(text: str) -> str:
    """A JSON text with one value a line, two spaces a level."""
    return "".join(_pieces(_tokens(text)))


def escaped(text: str, *, ascii_only: bool) -> str:
    """A JSON text with what cannot be printed as escapes: lone surrogates always, else all beyond ASCII."""
    return (_beyond_ascii if ascii_only else _beyond_utf8)(lambda found: _escape(ord(found[0])), text)


def _pieces(pieces: list[str]) -> Iterator[str]:
    depth = 0
    before = ""
    for piece in pieces:
        if piece in "]}":
            depth -= 1
            if before not in "[{":
                yield "\n" + "  " * depth
        elif before and before in "[{,":
            yield "\n" + "  " * depth
        yield ": " if piece == ":" else piece
        if piece in "[{":
            depth += 1
        before = piece


def _escape(code: int) -> str:
    if code <= _BASIC_PLANE_MAX:
        return f"\\u{code:04x}"
    code -= _BASIC_PLANE_MAX + 1
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
