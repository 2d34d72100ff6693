"""Transcripts are held to the planner's and the provider's rule, and told where they break it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.messages import Message, Part, TextPart, ThinkingPart, ToolResultPart, ToolUsePart, decode_messages
from schemas.transcripts import Violation, validate_bedrock, validate_planner
from tests.model import transcripts as law

TRACES = Path(__file__).parent.parent / "data" / "traces"
CASES: list[dict[str, Any]] = [
    entry
    for line in (TRACES / "transcript-catalog.jsonl").read_text().splitlines()
    if "planner_valid" in (entry := json.loads(line))
]


def use(use_id: str) -> ToolUsePart:
    return ToolUsePart("{}", use_id, "n")


def result(use_id: str) -> ToolResultPart:
    return ToolResultPart(use_id)


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts)


def user(*parts: Part) -> Message:
    return Message("user", parts)


TEXT = TextPart("x")
THINKING = ThinkingPart("t", "s")


def place(found: Violation | None) -> tuple[int, int | None, str] | None:
    if found is None:
        return None
    assert found.detail
    return found.message, found.part, found.id


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_the_catalog_of_a_runtime(case: dict[str, Any]) -> None:
    assert (validate_planner(decode_messages(case["payload"].encode())) is None) is case["planner_valid"]


def test_the_catalog_is_whole() -> None:
    assert len(CASES) == 7


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [user(TEXT)],
        [assistant(TEXT), assistant(TEXT)],
        [user(), assistant()],
        [assistant(use("a")), user(result("a"))],
        [assistant(use("a"), use("b")), user(result("b"), TEXT, result("a"))],
        [assistant(use("a")), assistant(TEXT), assistant(use("b")), user(result("a"), result("b")), assistant(TEXT)],
        [assistant(use("a")), user(result("a")), assistant(use("a")), user(result("a"))],
        [user(use("a")), user(TEXT)],
    ],
)
def test_the_planners_rule_holds(messages: list[Message]) -> None:
    assert validate_planner(messages) is None


@pytest.mark.parametrize(
    ("messages", "where"),
    [
        ([assistant(use("a"))], (0, None, "a")),
        ([user(TEXT), assistant(use("a")), assistant(TEXT)], (2, None, "a")),
        ([assistant(use("a")), Message("system"), user(result("a"))], (0, None, "a")),
        ([assistant(use("a")), user(TEXT), user(result("a"))], (1, None, "a")),
        ([assistant(use("a")), user()], (1, None, "a")),
        ([assistant(use("a"), use("b")), user(result("a"))], (1, None, "b")),
        ([assistant(use("a")), assistant(use("b")), user(result("b"))], (2, None, "a")),
        ([assistant(use("a")), user(TEXT, result("a"), result("z"))], (1, 2, "z")),
        ([assistant(use("a")), user(result("a"), result("a"))], (1, 1, "a")),
        ([assistant(use("a")), user(result("a"), result(""))], (1, 1, "")),
        ([assistant(use("a")), user(result("z"))], (1, None, "a")),
        ([assistant(use("a")), user(result("a")), user(result("a"))], (2, 0, "a")),
        ([user(TEXT, result("a"))], (0, 1, "a")),
        ([user(result("a"), result("a"))], (0, 0, "a")),
        ([user(result("a"), result(""))], (0, 0, "a")),
        ([Message("tool", (result("a"),))], (0, 0, "a")),
        ([assistant(TEXT), user(result("a"))], (1, 0, "a")),
        ([assistant(TEXT, use("")), user(result(""))], (0, 1, "")),
        ([assistant(use("a"), use("a")), user(result("a"))], (0, 1, "a")),
        ([assistant(use("a")), assistant(use("a")), user(result("a"))], (1, 0, "a")),
        ([assistant(result("a"))], (0, 0, "a")),
        ([user(use("a")), user(result("a"))], (1, 0, "a")),
    ],
)
def test_the_planners_rule_is_broken_there(messages: list[Message], where: tuple[int, int | None, str]) -> None:
    assert place(validate_planner(messages)) == where
    bedrock = validate_bedrock(messages)
    assert bedrock is not None
    assert bedrock.message <= where[0]


def test_bedrock_wants_thinking_first_in_each_message_with_a_tool_use() -> None:
    good = [assistant(THINKING, TEXT, use("a")), user(result("a")), assistant(TEXT), user(TEXT)]
    assert validate_bedrock(good) is None
    late = [assistant(TEXT), assistant(TEXT, THINKING, use("a")), user(result("a"))]
    assert validate_planner(late) is None
    assert place(validate_bedrock(late)) == (1, 0, "a")
    assert validate_bedrock([user(TEXT, use("a")), user(TEXT)]) is None
    second = [assistant(THINKING, use("a")), assistant(use("b")), user(result("a"), result("b"))]
    assert place(validate_bedrock(second)) == (1, 0, "b")


def test_of_two_violations_bedrock_tells_the_one_in_the_earlier_message() -> None:
    later = [assistant(TEXT, use("a")), user(result("a"), result("a"))]
    assert place(validate_planner(later)) == (1, 1, "a")
    assert place(validate_bedrock(later)) == (0, 0, "a")
    earlier = [user(result("a")), assistant(TEXT, use("a")), user(result("a"))]
    assert place(validate_bedrock(earlier)) == (0, 0, "a")
    same = [assistant(TEXT, use(""))]
    assert place(validate_bedrock(same)) == (0, 1, "")


parts = st.one_of(
    st.just({"kind": "text", "text": "x"}),
    st.just({"kind": "thinking", "text": "t"}),
    st.builds(lambda each: {"kind": "tool_use", "id": each, "input": {}}, st.sampled_from(["0-0", "1-0", ""])),
    st.builds(lambda each: {"kind": "tool_result", "tool_use_id": each}, st.sampled_from(["0-0", "1-0", "z", ""])),
)
roles = st.sampled_from(["assistant", "user", "system"])


@st.composite
def lawful(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A conversation that follows both rules, which chance alone would seldom make."""
    conversation: list[dict[str, Any]] = []
    for turn in range(draw(st.integers(0, 3))):
        ids = [f"{turn}-{number}" for number in range(draw(st.integers(1, 3)))]
        uses = [{"kind": "tool_use", "id": each, "input": {}} for each in ids]
        conversation.append({"role": "assistant", "parts": [{"kind": "thinking"}, *uses]})
        results = [{"kind": "tool_result", "tool_use_id": each} for each in draw(st.permutations(ids))]
        conversation.append({"role": "user", "parts": results})
    return conversation


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A lawful conversation in which a few parts and messages were put, doubled, taken or moved."""
    conversation = draw(lawful())
    for _ in range(draw(st.integers(0, 3))):
        edit = draw(st.sampled_from(["add message", "drop message", "turn role", "add", "double", "drop"]))
        at = draw(st.integers(0, max(0, len(conversation) - 1)))
        if edit == "add message" or not conversation:
            conversation.insert(at, {"role": draw(roles), "parts": draw(st.lists(parts, max_size=2))})
            continue
        message = conversation[at]
        held = message["parts"]
        part = draw(st.integers(0, max(0, len(held) - 1)))
        if edit == "drop message":
            del conversation[at]
        elif edit == "turn role":
            message["role"] = draw(roles)
        elif edit == "add" or not held:
            held.insert(part, draw(parts))
        elif edit == "double":
            held.insert(draw(st.integers(0, len(held))), held[part])
        else:
            del held[part]
    return conversation


@given(conversations())
@settings(max_examples=500, deadline=None)
@example([])
@example([{"role": "assistant", "parts": []}])
def test_the_rules_are_what_their_slow_statement_says(conversation: list[dict[str, Any]]) -> None:
    payload = json.dumps(conversation).encode()
    messages = decode_messages(payload)
    assert place(validate_planner(messages)) == law.planner(conversation)
    assert place(validate_bedrock(messages)) == law.bedrock(conversation)
    assert messages == decode_messages(payload)


@given(lawful(), st.data())
@settings(max_examples=100, deadline=None)
def test_what_follows_the_rules_is_valid_and_one_lost_result_is_named(
    conversation: list[dict[str, Any]], data: st.DataObject
) -> None:
    assert law.planner(conversation) is law.bedrock(conversation) is None
    assert validate_bedrock(decode_messages(json.dumps(conversation).encode())) is None
    if conversation:
        at = 2 * data.draw(st.integers(0, len(conversation) // 2 - 1)) + 1
        lost = conversation[at]["parts"].pop()["tool_use_id"]
        assert place(validate_planner(decode_messages(json.dumps(conversation).encode()))) == (at, None, lost)


def test_many_calls_are_checked_in_time_that_grows_with_them() -> None:
    ids = [str(number) for number in range(50_000)]
    messages = [assistant(*map(use, ids)), user(*map(result, reversed(ids)))]
    assert validate_planner(messages) is None
