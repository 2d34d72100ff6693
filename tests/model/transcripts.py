"""The rules for transcripts, stated once more: slowly, over plain JSON, and without a line of the validators.

Every violation there is gets a place in the order of the law, and the least of them is the first one.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

Place = tuple[int, int | None, str]
"""Message, part or None, tool-use ID."""

Json = dict[str, Any]


def planner(messages: list[Json]) -> Place | None:
    """Where the planner's rule is first broken."""
    found = [
        (turn, *violation)
        for turn, (said, answer) in enumerate(turns(messages))
        for violation in violations(messages, said, answer)
    ]
    return min(found, key=lambda each: each[:3])[3] if found else None


def bedrock(messages: list[Json]) -> Place | None:
    """The same, or the first assistant message with a tool use that starts with no thinking where that is earlier."""
    unthinking = [
        index
        for index, message in enumerate(messages)
        if message["role"] == "assistant" and ids(message, "tool_use") and message["parts"][0]["kind"] != "thinking"
    ]
    broken = planner(messages)
    if unthinking and (broken is None or unthinking[0] < broken[0]):
        return unthinking[0], 0, ids(messages[unthinking[0]], "tool_use")[0][1]
    return broken


def turns(messages: list[Json]) -> list[tuple[list[int], int | None]]:
    """Each longest run of assistant messages, with the message after it; every other message follows an empty run."""
    found: list[tuple[list[int], int | None]] = []
    for speaks, group in groupby(range(len(messages)), lambda index: messages[index]["role"] == "assistant"):
        if speaks:
            found.append((list(group), None))
            continue
        for index in group:
            if found and found[-1][1] is None:
                found[-1] = (found[-1][0], index)
            else:
                found.append(([], index))
    return found


def violations(messages: list[Json], said: list[int], answer: int | None) -> list[tuple[int, int, Place]]:
    """Every violation of one turn: the step of the law that it breaks, its number in the step, and its place."""
    spoken = [(index, part, kind, each) for index in said for part, kind, each in named(messages[index])]
    uses = [each for *_, kind, each in spoken if kind == "tool_use"]
    results = ids(messages[answer], "tool_result") if answer is not None else []
    given = [each for _, each in results]
    found: list[tuple[int, int, Place]] = []
    for number, (index, part, kind, each) in enumerate(spoken):
        before = [name for *_, other, name in spoken[:number] if other == "tool_use"]
        if (kind == "tool_use" and (not each or each in before)) or (kind == "tool_result" and each not in before):
            found.append((0, number, (index, part, each)))
    if uses and (answer is None or messages[answer]["role"] != "user"):
        found.append((1, 0, (said[-1], None, uses[0])))
    if answer is None:
        return found
    if not uses:
        return found + [(2, part, (answer, part, each)) for part, each in results]
    for number, (part, each) in enumerate(results):
        if not each or each in given[:number]:
            found.append((3, part, (answer, part, each)))
        if each not in uses:
            found.append((5, part, (answer, part, each)))
    found += [(4, number, (answer, None, each)) for number, each in enumerate(uses) if each not in given]
    return found


def named(message: Json) -> list[tuple[int, str, str]]:
    """The tool uses and results of a message: part, kind and ID."""
    names = {"tool_use": "id", "tool_result": "tool_use_id"}
    return [
        (index, part["kind"], part.get(names[part["kind"]]) or "")
        for index, part in enumerate(message.get("parts") or [])
        if part["kind"] in names
    ]


def ids(message: Json, kind: str) -> list[tuple[int, str]]:
    """The parts of one kind in a message, with their IDs."""
    return [(part, each) for part, found, each in named(message) if found == kind]
