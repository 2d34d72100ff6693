"""How a transcript looks on a terminal: who speaks, and each part in its order, JSON as it is stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from bin.cli.output import plain, say, size, wrapped
from schemas.json_text import elements, members
from schemas.messages import (
    CacheCheckpointPart,
    CitationsPart,
    DocumentPart,
    ImagePart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolResultPart,
    ToolUsePart,
    decode_messages,
)

_INDENT: Final = "    "


def print_transcript(told: dict[str, Any], text: str) -> None:
    """Print a transcript from its answer and that answer's own text."""
    for number, (said, message) in enumerate(zip(told["messages"], _messages(text), strict=True)):
        seeded = "  seeded" if said["seed"] else ""
        head = f"{number}  {plain(message.role)}"
        say(f"{click.style(head, bold=True)}  {said['record_id']}{seeded}")
        for part in message.parts:
            for line in _lines(part):
                say(line)
        if message.meta is not None:
            for line in wrapped(f"meta {message.meta}", _INDENT):
                say(line)
    for rule in ("planner", "bedrock"):
        say(f"{click.style(rule.ljust(7), bold=True)}  {_judgement(told[rule])}")


def _messages(text: str) -> Iterator[Message]:
    """The messages of a transcript's text, each read from its own bytes."""
    fields = {name: start for name, start, _ in members(text, 0)}
    for start, _ in elements(text, fields["messages"]):
        (stored,) = (text[begin:end] for name, begin, end in members(text, start) if name == "message")
        yield decode_messages(f"[{stored}]".encode())[0]


def _judgement(told: dict[str, Any]) -> str:
    if told["valid"]:
        return click.style("valid", fg="green")
    violation = told["violation"]
    place = f"message {violation['message']}"
    if violation["part"] is not None:
        place += f", part {violation['part']}"
    use = f", {plain(violation['id'])}" if violation["id"] else ""
    return click.style("broken", fg="red") + f" at {place}{use}: {plain(violation['detail'])}"


def _lines(part: Part) -> Iterator[str]:
    title, text = _shown(part)
    if title:
        yield _INDENT + click.style(plain(title), dim=True)
    if text:
        yield from wrapped(text, _INDENT)


def _shown(part: Part) -> tuple[str, str]:
    """A part's title, which may be empty, and its text, likewise."""
    match part:
        case TextPart():
            return "", part.text
        case ThinkingPart():
            hidden = "" if part.redacted is None else f", {size(len(part.redacted))} redacted"
            return f"thinking{hidden}", part.text
        case ToolUsePart():
            return f"tool use {part.id}  {part.name}", part.input
        case ToolResultPart():
            failed = "  is an error" if part.is_error else ""
            return f"tool result {part.tool_use_id}{failed}", part.content
        case ImagePart():
            return f"image {part.format}, {size(len(part.bytes))}", ""
        case DocumentPart():
            return _document(part)
        case CitationsPart():
            return f"cites {', '.join(each.title or each.source for each in part.citations or ())}", part.text
        case CacheCheckpointPart():
            return "cache checkpoint", ""


def _document(part: DocumentPart) -> tuple[str, str]:
    title = f"document {part.name} {part.format}".rstrip()
    if part.bytes:
        return f"{title}, {size(len(part.bytes))}", ""
    return title, part.text or part.uri or "\n".join(part.chunks or ())
