"""Messages: what the payload of a transcript record holds, part by part.

`decode_messages` reads exactly the fields named here, case and all, and keeps the order of parts and the
digits of numbers. An absent or null field is its zero value; of equal keys the last counts.

Caveats: a tool's `input`, its `content` and a message's `meta` are JSON texts (`str`), not values. A text
may hold lone surrogates, which JSON can escape and UTF-8 cannot hold: write it with `encode_messages`, or
pass on `Message.stored`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from schemas.json_text import check_json_text
from schemas.message_forms import (
    BYTES,
    FLAG,
    INTEGER,
    JSON,
    JSON_OBJECT,
    TEXT,
    TEXTS,
    Form,
    FormError,
    Shape,
    Span,
    list_of,
    object_of,
)


class MessagesError(ValueError):
    """A payload that is no list of messages. The message tells the place, and none of the content."""


@dataclass(frozen=True, slots=True)
class ThinkingPart:
    """Reasoning that the provider signed or, as opaque bytes, redacted."""

    kind: ClassVar[str] = "thinking"
    text: str = ""
    signature: str = ""
    redacted: bytes | None = None
    index: int = 0
    final: bool = False


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text to be shown."""

    kind: ClassVar[str] = "text"
    text: str = ""


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image; both fields are required."""

    kind: ClassVar[str] = "image"
    format: str
    bytes: bytes


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """A document, in exactly one of `bytes`, `text`, `chunks` and `uri`."""

    kind: ClassVar[str] = "document"
    name: str = ""
    format: str = ""
    bytes: bytes | None = None
    text: str = ""
    chunks: tuple[str, ...] | None = None
    uri: str = ""
    context: str = ""
    cite: bool = False


@dataclass(frozen=True, slots=True)
class DocumentRange:
    """From where to where in which document of the request."""

    document_index: int = 0
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class CitationLocation:
    """Where cited content stands, counted in characters, chunks or pages."""

    document_char: DocumentRange | None = None
    document_chunk: DocumentRange | None = None
    document_page: DocumentRange | None = None


@dataclass(frozen=True, slots=True)
class Citation:
    """A source of generated text."""

    title: str = ""
    source: str = ""
    location: CitationLocation = CitationLocation()
    source_content: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class CitationsPart:
    """Generated text with its sources."""

    kind: ClassVar[str] = "citations"
    text: str = ""
    citations: tuple[Citation, ...] | None = None


@dataclass(frozen=True, slots=True)
class ToolUsePart:
    """A call that the model asks for. `id` is the provider's; `input` is the text of a JSON object."""

    kind: ClassVar[str] = "tool_use"
    input: str
    id: str = ""
    name: str = ""
    thought_signature: str = ""


@dataclass(frozen=True, slots=True)
class ToolResultPart:
    """What a call gave back. `content` is JSON text."""

    kind: ClassVar[str] = "tool_result"
    tool_use_id: str = ""
    content: str = "null"
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class CacheCheckpointPart:
    """Everything before here may be cached by the provider."""

    kind: ClassVar[str] = "cache_checkpoint"


Part = (
    ThinkingPart
    | TextPart
    | ImagePart
    | DocumentPart
    | CitationsPart
    | ToolUsePart
    | ToolResultPart
    | CacheCheckpointPart
)


@dataclass(frozen=True, slots=True)
class Message:
    """One turn's share of a conversation: who speaks, and parts in their order.

    `role` is any text but the empty one; `user`, `assistant` and `system` are met. `meta` is the text of a
    JSON object, or None. `stored` is the message's own bytes in the payload it was read from.
    """

    role: str
    parts: tuple[Part, ...] = ()
    meta: str | None = None
    stored: bytes = field(default=b"", compare=False)


def decode_messages(payload: bytes) -> tuple[Message, ...]:
    """The messages of a transcript record's payload, none for `null`; MessagesError when it holds anything else."""
    problem = check_json_text(payload)
    if problem is not None:
        raise MessagesError(f"messages {problem}")
    text = payload.decode().strip(" \t\n\r")
    span = Span(text, 0, len(text), "messages")
    if span.is_null:
        return ()
    try:
        return tuple(_read_message(item) for item in span.items())
    except FormError as error:
        raise MessagesError(str(error)) from None


def encode_messages(messages: Sequence[Message] | None) -> bytes:
    """The payload that Go's encoder would write for these messages; `null` for None.

    JSON carried as text loses the white space between its tokens and nothing else. Raises nothing.
    """
    if messages is None:
        return b"null"
    return f"[{','.join(_MESSAGE.write(message) for message in messages)}]".encode()


def _read_message(span: Span) -> Message:
    message = _MESSAGE.read(span)
    return Message(message.role, message.parts, message.meta, span.raw.encode())


def _read_part(span: Span) -> Part:
    fields = span.fields()
    kind = fields.pop("kind", None)
    if kind is None:
        raise span.wrong("must have a kind")
    shape = _SHAPES.get(TEXT.read(kind))
    if shape is None:
        raise span.wrong("must be of a known kind")
    part: Part = shape.read(span, fields)
    return part


def _write_part(part: Part) -> str:
    fields = ",".join([f'"kind":"{part.kind}"', *_SHAPES[part.kind].write(part)])
    return f"{{{fields}}}"


def _check_document(part: DocumentPart) -> str | None:
    sources = sum(map(bool, (part.bytes, part.text, part.chunks, part.uri)))
    return None if sources == 1 else f"must have exactly one of bytes, text, chunks and uri, not {sources}"


_RANGE: Final = object_of(Shape(DocumentRange, {"document_index": INTEGER, "start": INTEGER, "end": INTEGER}))
_LOCATION: Final = object_of(
    Shape(CitationLocation, {"document_char": _RANGE, "document_chunk": _RANGE, "document_page": _RANGE})
)
_CITATION: Final = object_of(
    Shape(Citation, {"title": TEXT, "source": TEXT, "location": _LOCATION, "source_content": TEXTS})
)
_SHAPES: Final[Mapping[str, Shape[Any]]] = {
    ThinkingPart.kind: Shape(
        ThinkingPart, {"text": TEXT, "signature": TEXT, "redacted": BYTES, "index": INTEGER, "final": FLAG}
    ),
    TextPart.kind: Shape(TextPart, {"text": TEXT}),
    ImagePart.kind: Shape(ImagePart, {"format": TEXT, "bytes": BYTES}, required=frozenset({"format", "bytes"})),
    DocumentPart.kind: Shape(
        DocumentPart,
        {
            "name": TEXT,
            "format": TEXT,
            "bytes": BYTES,
            "text": TEXT,
            "chunks": TEXTS,
            "uri": TEXT,
            "context": TEXT,
            "cite": FLAG,
        },
        check=_check_document,
    ),
    CitationsPart.kind: Shape(CitationsPart, {"text": TEXT, "citations": list_of(_CITATION)}),
    ToolUsePart.kind: Shape(
        ToolUsePart,
        {"id": TEXT, "name": TEXT, "input": JSON_OBJECT, "thought_signature": TEXT},
        required=frozenset({"input"}),
    ),
    ToolResultPart.kind: Shape(ToolResultPart, {"tool_use_id": TEXT, "content": JSON, "is_error": FLAG}),
    CacheCheckpointPart.kind: Shape(CacheCheckpointPart, {}),
}
_PARTS: Final = list_of(Form(_read_part, _write_part))
_MESSAGE: Final = object_of(
    Shape(
        Message,
        # No parts are written as null, whichever way they were read.
        {
            "role": TEXT,
            "parts": Form(_PARTS.read, lambda parts: _PARTS.write(parts) if parts else "null"),
            "meta": JSON_OBJECT,
        },
        required=frozenset({"role"}),
    )
)
