"""How answers look on a terminal: text that cannot harm it, tables, facts, JSON, and progress.

Data goes to stdout; progress and what went wrong to stderr, so that both can be redirected apart.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TextIO
from unicodedata import combining, east_asian_width

import click

from bin.cli.json_lines import escaped, indented

STATUS_COLORS: Final = {
    "active": "green",
    "running": "cyan",
    "suspended": "yellow",
    "completed": "green",
    "failed": "red",
    "canceled": "magenta",
    "serving": "green",
    "stopped": "red",
}
_BAR_CHARS: Final = 30
_WIDTH_CHARS: Final = 100
_CELL_CHARS_MIN: Final = 8
_LINE_CHARS_MIN: Final = 20
_KIB: Final = 1024


def plain(text: str) -> str:
    """The text with everything escaped that a terminal might obey instead of show."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def terminal_width() -> int:
    """How many columns there are to write in; 100 where no terminal tells, nor `COLUMNS`."""
    return shutil.get_terminal_size((_WIDTH_CHARS, 0)).columns


def wrapped(text: str, indent: str = "") -> Iterator[str]:
    """The text in lines that fit, each after the indent: nothing is left out, breaks are after spaces or commas."""
    room = max(_LINE_CHARS_MIN, terminal_width() - len(indent))
    for line in text.split("\n"):
        rest = plain(line.removesuffix("\r").expandtabs(4))
        while _width(rest) > room:
            end = _fitting(rest, room)
            gap = max(rest.rfind(char, room // 2, end) for char in " ,")
            cut = gap + 1 if gap > 0 else end
            yield indent + rest[:cut]
            rest = rest[cut:]
        yield indent + rest


def short_time(text: str) -> str:
    """A time of the interface, to the second: `2026-11-30 14:56:46Z`."""
    return text[:19].replace("T", " ") + "Z" if text else ""


def size(count: int) -> str:
    """A number of bytes for a person: `812 B`, `3.4 KiB`."""
    if count < _KIB:
        return f"{count} B"
    if count < _KIB * _KIB:
        return f"{count / _KIB:.1f} KiB"
    return f"{count / _KIB / _KIB:.1f} MiB"


def counted(count: int, noun: str, nouns: str = "") -> str:
    """`1 run`, `2 runs`; `nouns` where the plural is not the noun with an s."""
    return f"{count} {noun if count == 1 else nouns or noun + 's'}"


def run_counts(counts: dict[str, int]) -> str:
    """How the runs of a session stand: `2 completed, 1 running`; `none` where there are none."""
    return ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "none"


def say(line: str = "") -> None:
    """Print a line."""
    click.echo(line, color=_color(sys.stdout))


def note(line: str) -> None:
    """Print a line that is not data to stderr."""
    click.echo(line, err=True, color=_color(sys.stderr))


def status_word(status: str) -> str:
    """A status in its color."""
    return click.style(status, fg=STATUS_COLORS.get(status))


def print_json(value: Any) -> None:
    """Print JSON, indented."""
    _print_json(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_text(text: str) -> None:
    """Print a JSON text, indented, every digit and escape as it is."""
    _print_json(indented(text))


def print_json_line(text: str) -> None:
    """Print a JSON text that is one line as it is, for programs that read line by line."""
    _print_json(text)


def _print_json(text: str) -> None:
    unicode = sys.stdout.encoding.lower().replace("-", "") == "utf8"
    say(escaped(text, ascii_only=not unicode))


def print_table(
    headers: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[str] = (), *, narrow: str = ""
) -> None:
    """Print rows under headers; `numbers` are columns set to the right. Cells are escaped; statuses get a color.

    Where the table is wider than the terminal, of the column `narrow` only the ends of its cells are shown; and where
    even that would not help, it is left out.
    """
    shown = [[plain(cell) for cell in row] for row in rows]
    widths = _widths(headers, shown)
    excess = sum(widths) + 2 * len(widths) - 2 - terminal_width()
    if narrow in headers and excess > 0:
        at = list(headers).index(narrow)
        room = widths[at] - excess
        kept = slice(at, at) if room < max(len(narrow), _CELL_CHARS_MIN) else slice(at, at + 1)
        headers = [*headers[:at], *headers[kept], *headers[at + 1 :]]
        shown = [[*row[:at], *(_end_of(cell, room) for cell in row[kept]), *row[at + 1 :]] for row in shown]
        widths = _widths(headers, shown)
    right = [header in set(numbers) for header in headers]
    say(click.style(_line(headers, widths, right), bold=True))
    for row in shown:
        line = _line(row, widths, right)
        word = next((cell for header, cell in zip(headers, row, strict=True) if header in {"status", "state"}), "")
        say(line.replace(f"  {word}", f"  {status_word(word)}", 1) if word in STATUS_COLORS else line)


def print_facts(facts: Iterable[tuple[str, str]], indent: str = "") -> None:
    """Print names with their values, aligned; those without a value are left out."""
    shown = [(name, value) for name, value in facts if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        text = status_word(value) if name in {"status", "state"} else plain(value)
        say(f"{indent}{click.style(name.ljust(width), bold=True)}  {text}")


def print_record(record: dict[str, Any]) -> None:
    """Print a record as people read it: its payload is the text that was stored, in lines that fit."""
    head = f"{record['id']}  {record['type']}  {record['timestamp']}"
    say(click.style(plain(head), bold=True))
    for line in wrapped(record["payload"], "    "):
        say(line)


class Progress:
    """Progress of work with a known amount: a bar where stderr is a terminal, a line a step otherwise."""

    def __init__(self, title: str, *, stream: TextIO | None = None) -> None:
        self._title = title
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._drawn = ""

    def show(self, fraction: float, what: str) -> None:
        """Tell how far the work is, 0 to 1, and what is being done. Shown on a terminal only."""
        if not self._live:
            return
        full = round(min(1.0, max(0.0, fraction)) * _BAR_CHARS)
        line = f"{self._title} [{'#' * full}{'-' * (_BAR_CHARS - full)}] {fraction:4.0%}  {what}"
        if line != self._drawn:
            self._stream.write("\r\x1b[K" + line)
            self._stream.flush()
            self._drawn = line

    def step(self, line: str) -> None:
        """Tell that a part of the work is done. Shown where there is no terminal."""
        if not self._live:
            self._stream.write(f"{self._title}: {line}\n")
            self._stream.flush()

    def clear(self) -> None:
        """Remove the bar."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn = ""


def _widths(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(_width, column)) for column in zip(headers, *rows, strict=True)]


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        " " * (width - _width(cell)) + cell if to_right else cell + " " * (width - _width(cell))
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def _fitting(text: str, room: int) -> int:
    """How many characters of a text fit."""
    if text.isascii():
        return room
    taken = 0
    for index, char in enumerate(text):
        taken += _width(char)
        if taken > room:
            return index
    return len(text)


def _end_of(text: str, room: int) -> str:
    """A text, or as much of its end as fits."""
    if _width(text) <= room:
        return text
    return "…" + text[len(text) - _fitting(text[::-1], room - 1) :]


def _color(stream: TextIO) -> bool | None:
    """None leaves it to click: color on a terminal only."""
    return None if not os.environ.get("NO_COLOR") and stream.isatty() else False
