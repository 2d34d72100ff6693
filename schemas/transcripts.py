"""Transcripts: does a list of messages follow the rules that planners and providers hold it to.

A validator changes nothing, and tells the first violation it meets, or None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schemas.messages import Message, ThinkingPart, ToolResultPart, ToolUsePart


@dataclass(frozen=True, slots=True)
class Violation:
    """What breaks a rule: the message and part by index from 0, the tool-use ID (or ""), and the rule.

    `part` is None where something is missing. A missing result is a violation of the user message that
    follows, or of the last assistant message where none follows at once.
    """

    message: int
    part: int | None
    id: str
    detail: str


def validate_planner(messages: Sequence[Message]) -> Violation | None:
    """Consecutive assistant messages with tool uses are followed at once by one user message with their results.

    Exactly one result a tool-use ID, IDs non-empty and unique, no result without its use before it.
    """
    at = 0
    while at < len(messages):
        end = at
        while end < len(messages) and messages[end].role == "assistant":
            end += 1
        violation = _check_uses(messages, at, end) or _check_results(messages, at, end)
        if violation is not None:
            return violation
        at = end + 1
    return None


def validate_bedrock(messages: Sequence[Message]) -> Violation | None:
    """The planner's rule, and besides it every assistant message that holds a tool use starts with thinking.

    Of two violations the one in the earlier message is the first; in the same message it is the planner's.
    """
    planner = validate_planner(messages)
    thinking = _check_thinking(messages)
    if planner is None or thinking is None:
        return planner or thinking
    return thinking if thinking.message < planner.message else planner


def _check_thinking(messages: Sequence[Message]) -> Violation | None:
    for index, message in enumerate(messages):
        if message.role != "assistant" or isinstance(next(iter(message.parts), None), ThinkingPart):
            continue
        for _, use in _uses(message):
            return Violation(index, 0, use.id, "an assistant message that holds a tool_use must start with thinking")
    return None


def _check_uses(messages: Sequence[Message], start: int, end: int) -> Violation | None:
    """What is wrong within a run of assistant messages alone."""
    seen: set[str] = set()
    for index in range(start, end):
        for part_index, part in enumerate(messages[index].parts):
            if isinstance(part, ToolUsePart):
                if not part.id:
                    return Violation(index, part_index, "", "a tool_use must have an ID")
                if part.id in seen:
                    return Violation(index, part_index, part.id, "a tool_use ID must be unique in its turn")
                seen.add(part.id)
            elif isinstance(part, ToolResultPart) and part.tool_use_id not in seen:
                return Violation(index, part_index, part.tool_use_id, "a tool_result must follow its tool_use")
    return None


def _check_results(messages: Sequence[Message], start: int, end: int) -> Violation | None:
    """What is wrong between a run of assistant messages, perhaps empty, and the message after it."""
    uses = [use.id for index in range(start, end) for _, use in _uses(messages[index])]
    follower = messages[end] if end < len(messages) else None
    if uses and (follower is None or follower.role != "user"):
        return Violation(
            end - 1, None, uses[0], "a tool_use must be followed at once by a user message with its result"
        )
    results = [] if follower is None else list(_results(follower))
    if not uses and results:
        part_index, result = results[0]
        return Violation(end, part_index, result.tool_use_id, "a tool_result must follow its tool_use")
    seen: set[str] = set()
    for part_index, result in results:
        if not result.tool_use_id:
            return Violation(end, part_index, "", "a tool_result must have a tool-use ID")
        if result.tool_use_id in seen:
            return Violation(end, part_index, result.tool_use_id, "a tool_use must have one tool_result only")
        seen.add(result.tool_use_id)
    for use_id in uses:
        if use_id not in seen:
            return Violation(end, None, use_id, "a tool_use must have its tool_result in the user message that follows")
    used = set(uses)
    for part_index, result in results:
        if result.tool_use_id not in used:
            return Violation(end, part_index, result.tool_use_id, "a tool_result must have its tool_use before it")
    return None


def _uses(message: Message) -> Iterator[tuple[int, ToolUsePart]]:
    return ((index, part) for index, part in enumerate(message.parts) if isinstance(part, ToolUsePart))


def _results(message: Message) -> Iterator[tuple[int, ToolResultPart]]:
    return ((index, part) for index, part in enumerate(message.parts) if isinstance(part, ToolResultPart))
