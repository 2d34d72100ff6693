"""Values of the views that are read from a run's records: what was said, what shaped it, its family, its tool calls.

All frozen. Bytes are the stored ones; an ID that a payload told may hold lone surrogates.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.transcripts import Violation
from schemas.values import ChildLink, Record, RunMeta


@dataclass(frozen=True, slots=True)
class SaidMessage:
    """A message of a transcript: its bytes as stored, the record that holds it, and whether it was seeded."""

    stored: bytes
    record_id: str
    seed: bool


@dataclass(frozen=True, slots=True)
class Transcript:
    """The messages of a run in record order, and where they first break the planner's and the provider's rule."""

    messages: tuple[SaidMessage, ...]
    planner: Violation | None
    bedrock: Violation | None


@dataclass(frozen=True, slots=True)
class KeptTurns:
    """The newest whole turns, the messages before them, and how a summary of those is known.

    `older_digest` is the SHA-256 in hex over the bytes of the older messages, joined by nothing. `summary` is the
    payload of the run's newest summary of exactly these, or None.
    """

    kept: tuple[bytes, ...]
    older: tuple[bytes, ...]
    older_digest: str
    summary: bytes | None


@dataclass(frozen=True, slots=True)
class ModelInput:
    """What the next model call would see, each message as stored; `turns` where only some were asked to be kept."""

    messages: tuple[bytes, ...]
    turns: KeptTurns | None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that a view looked into and whose payload is of another shape: it is shown as it is."""

    record: Record
    problem: str


@dataclass(frozen=True, slots=True)
class PromptUse:
    """The first use of a prompt in one version. `scope` is JSON text."""

    prompt_id: str
    version: str
    scope: str
    run_id: str
    record_id: str


@dataclass(frozen=True, slots=True)
class Prompts:
    """Every prompt in every version that was met, in the order of the log."""

    prompts: tuple[PromptUse, ...]
    unreadable: tuple[Unreadable, ...]


@dataclass(frozen=True, slots=True)
class TreeRun:
    """A run in a tree: how deep it stands below the top (0), and the link that made it (None at the top)."""

    run: RunMeta
    depth: int
    link: ChildLink | None


@dataclass(frozen=True, slots=True)
class RunTree:
    """A run and its descendants, each right after its parent or the descendants of the sibling before it.

    `predecessors` is the chain of runs that it continues, nearest first; `successors` are the runs that continue it.
    """

    runs: tuple[TreeRun, ...]
    predecessors: tuple[RunMeta, ...]
    successors: tuple[RunMeta, ...]


@dataclass(frozen=True, slots=True)
class ExportedRun:
    """A run as an export tells it; `predecessor_run_id` is empty where it continues none."""

    run: RunMeta
    predecessor_run_id: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call by the runtime's ID, with the provider's beside it.

    `scheduled` and `result` are record IDs, None where there is no such record; `failed` tells of the result.
    """

    tool_call_id: str
    model_tool_call_id: str | None
    tool_name: str
    scheduled: str | None
    result: str | None
    failed: bool


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """The tool calls of a run, in the order in which each was first met."""

    calls: tuple[ToolCall, ...]
    unreadable: tuple[Unreadable, ...]
