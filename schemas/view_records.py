"""Records that views look into: what little they read of payloads that the store otherwise leaves alone.

Exactly named fields count, case and all; any others are passed over, and of equal keys the last counts. Nothing here
refuses a record: a payload of another shape is a `FormError`, and the view that meets it shows it as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from schemas.message_forms import TEXT, Span

MESSAGES_SEEDED: Final = "transcript_messages_seeded"
MESSAGES_APPENDED: Final = "transcript_messages_appended"
PROMPT_RENDERED: Final = "prompt_rendered"
HISTORY_SUMMARIZED: Final = "history_summarized"
TOOL_CALL_SCHEDULED: Final = "tool_call_scheduled"
TOOL_RESULT_RECEIVED: Final = "tool_result_received"


@dataclass(frozen=True, slots=True)
class PromptRendered:
    """A prompt that shaped a run. `scope` is JSON text, an object's or `null`."""

    prompt_id: str
    version: str
    scope: str


@dataclass(frozen=True, slots=True)
class ToolCallScheduled:
    """A tool call as the runtime carries it out. `model_tool_call_id` is the provider's ID, None where none is told."""

    tool_call_id: str
    model_tool_call_id: str | None
    tool_name: str


@dataclass(frozen=True, slots=True)
class ToolResultReceived:
    """What a tool call came to. `tool_call_id` is the runtime's, never the provider's."""

    tool_call_id: str
    tool_name: str
    failed: bool


def read_prompt_rendered(payload: bytes) -> PromptRendered:
    """The payload of `prompt_rendered`; FormError for another shape."""
    payload_span, fields = _fields(payload)
    prompt_id = _text(fields, "PromptID")
    if not prompt_id:
        raise payload_span.wrong("must have PromptID, and not empty")
    scope = fields.get("Scope")
    if scope is not None and not scope.is_null:
        scope.fields()
    return PromptRendered(prompt_id, _text(fields, "Version"), "null" if scope is None else scope.raw)


def read_tool_call_scheduled(payload: bytes) -> ToolCallScheduled:
    """The payload of `tool_call_scheduled`; FormError for another shape."""
    _, fields = _fields(payload)
    model_id = _text(fields, "ModelToolCallID")
    return ToolCallScheduled(_text(fields, "ToolCallID"), model_id or None, _text(fields, "ToolName"))


def read_tool_result_received(payload: bytes) -> ToolResultReceived:
    """The payload of `tool_result_received`; FormError for another shape."""
    _, fields = _fields(payload)
    failure = fields.get("failure")
    failed = failure is not None and not failure.is_null
    return ToolResultReceived(_text(fields, "tool_call_id"), _text(fields, "tool_name"), failed)


def read_summarized_digest(payload: bytes) -> str:
    """The `older_digest` of a payload of `history_summarized`; FormError for another shape."""
    _, fields = _fields(payload)
    return _text(fields, "older_digest")


def _fields(payload: bytes) -> tuple[Span, dict[str, Span]]:
    text = payload.decode().strip(" \t\n\r")
    span = Span(text, 0, len(text), "payload")
    return span, span.fields()


def _text(fields: dict[str, Span], name: str) -> str:
    field = fields.get(name)
    return "" if field is None or field.is_null else TEXT.read(field)
