"""The shapes of what is read back from a run's records, field by field. `render_replays` makes them."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from service.answers import EmbeddedRecordAnswer, RecordAnswer, RunAnswer

MessageAnswer = Annotated[
    dict[str, object],
    Field(description="A message: `role`, `parts`, `meta`, every digit and the order of parts as stored."),
]


class ViolationAnswer(TypedDict):
    """Where a rule is first broken: message and part by index from 0, and the tool-use ID.

    `part` is `null` where something is missing: a result is missing from the next user message, or after the last
    assistant message where none follows.
    """

    message: int
    part: int | None
    id: Annotated[str, Field(description="Empty where the part has none.")]
    detail: str


class ValidityAnswer(TypedDict):
    """Whether the messages keep a rule."""

    valid: bool
    violation: ViolationAnswer | None


class SaidMessageAnswer(TypedDict):
    """A message and the record that holds it. Seeds rebuild the model's input, and are no new output."""

    message: MessageAnswer
    record_id: str
    seed: bool


class TranscriptAnswer(TypedDict):
    """The messages of a run in record order, and how they keep the planner's rule and Bedrock's."""

    messages: list[SaidMessageAnswer]
    planner: ValidityAnswer
    bedrock: ValidityAnswer


class ModelInputAnswer(TypedDict):
    """What the next model call would see. The other fields are there where `keep_turns` is 1 or more.

    `older_digest` is the SHA-256 in hex over the bytes of the older messages as stored, joined by nothing; `summary` is
    the payload of the run's newest `history_summarized` record with that digest, or `null`.
    """

    messages: list[MessageAnswer]
    kept: NotRequired[list[MessageAnswer]]
    older: NotRequired[list[MessageAnswer]]
    older_digest: NotRequired[str]
    summary: NotRequired[Annotated[object, Field(description="JSON text; with `payload=json` the JSON itself.")]]


class UnreadableAnswer(TypedDict):
    """A record whose payload is not of the shape that this view reads, and what is wrong with it."""

    record: RecordAnswer | EmbeddedRecordAnswer
    problem: str


Unreadables = Annotated[
    list[UnreadableAnswer],
    Field(description="Records that the view could not read, as they are; left out where there are none."),
]


class PromptAnswer(TypedDict):
    """A prompt in one version, and of its first use the scope and the record."""

    prompt_id: str
    version: str
    scope: dict[str, object] | None
    run_id: str
    record_id: str


class PromptsAnswer(TypedDict):
    """Prompts in the order in which the log first has them."""

    prompts: list[PromptAnswer]
    count: int
    unreadable: NotRequired[Unreadables]


class ChildTreeAnswer(TypedDict):
    """A child run with its own children, and the tool call of its parent that asked for it."""

    run: RunAnswer
    tool_name: str
    tool_call_id: str
    children: list[ChildTreeAnswer]


class TreeAnswer(TypedDict):
    """A run with its descendants, the chain of runs that it continues, nearest first, and the runs that continue it."""

    run: RunAnswer
    children: list[ChildTreeAnswer]
    predecessors: list[RunAnswer]
    successors: list[RunAnswer]


class ToolCallAnswer(TypedDict):
    """A tool call by the runtime's ID, and the provider's ID beside it.

    `scheduled` and `result` are record IDs. `result` is `null` while the call is open, `scheduled` where a result is of
    a call that this run did not schedule.
    """

    tool_call_id: str
    model_tool_call_id: str | None
    tool_name: str
    scheduled: str | None
    result: str | None
    failed: bool


class ToolCallsAnswer(TypedDict):
    """The tool calls of a run, in the order in which each was first met."""

    tool_calls: list[ToolCallAnswer]
    unreadable: NotRequired[Unreadables]
