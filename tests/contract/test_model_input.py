"""What the next model call of a run would see, and which of it is old."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from tests.contract.builders import Run, compact
from tests.contract.reading import APPENDED, SEEDED, message, result, said, text, use, view, view_refused
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")

SYSTEM = message("system", text("be kind"))
TURNS = [
    [message("user", text("one")), message("assistant", text("1"))],
    [message("user", text("two")), message("assistant", use("a")), message("user", result("a"))],
    [message("user", {"kind": "cache_checkpoint"}), message("assistant", text("3"))],
]
ALL = [SYSTEM, *(each for turn in TURNS for each in turn)]


async def talked(scene: Scene, messages: list[Any]) -> Run:
    """A run whose messages lie in several records, seeds before the others."""
    run = await scene.run()
    await scene.do(said(run, "seed", *messages[:2], kind=SEEDED))
    for number, each in enumerate(messages[2:]):
        await scene.do(said(run, str(number), each))
    return run


def digest(messages: list[Any]) -> str:
    return hashlib.sha256("".join(map(compact, messages)).encode()).hexdigest()


async def test_model_input_is_bare_messages_in_order(scene: Scene) -> None:
    run = await talked(scene, ALL)
    assert await view(scene, run, "model-input") == {"messages": ALL}
    assert await view(scene, run, "model-input", keep_turns=0) == {"messages": ALL}


@pytest.mark.parametrize("payload", [None, "null", "[]"])
async def test_no_messages_are_no_model_input(scene: Scene, payload: str | None) -> None:
    run = await scene.run()
    if payload is not None:
        await scene.do(run.append("1", payload, APPENDED))
    for query in ({}, {"keep_turns": 1}):
        refused = await view_refused(scene, run, "model-input", **query)
        assert (refused.code, refused.refusal.ids) == ("transcript_not_found", {"run_id": run.run_id})


@pytest.mark.parametrize(("keep", "cut"), [(1, 6), (2, 3), (3, 1), (4, 1), (999_999_999, 1)])
async def test_whole_turns_are_kept_and_the_rest_is_older(scene: Scene, keep: int, cut: int) -> None:
    run = await talked(scene, ALL)
    assert await view(scene, run, "model-input", keep_turns=keep) == {
        "messages": ALL,
        "kept": ALL[cut:],
        "older": ALL[:cut],
        "older_digest": digest(ALL[:cut]),
        "summary": None,
    }


@pytest.mark.parametrize(
    ("messages", "cut"),
    [
        ([message("user", text("one")), message("user", text("two"))], 1),
        ([message("user", text("one")), message("user")], 0),
        ([message("user", text("one")), {"role": "user"}], 0),
        ([message("user", text("one")), message("assistant", use("a")), message("user", result("a"), text("two"))], 2),
        ([message("assistant", text("hello")), message("user", result("a"))], 2),
        ([message("user", text("one"))], 0),
    ],
    ids=["two in a row", "no parts", "parts absent", "a result and more", "no turn at all", "one"],
)
async def test_a_turn_starts_at_a_user_message_with_more_than_results(
    scene: Scene, messages: list[Any], cut: int
) -> None:
    run = await scene.run()
    await scene.do(said(run, "1", *messages))
    shown = await view(scene, run, "model-input", keep_turns=1)
    assert (shown["older"], shown["kept"]) == (messages[:cut], messages[cut:])
    assert shown["older_digest"] == digest(messages[:cut])


async def test_the_digest_is_of_the_bytes_as_stored(scene: Scene) -> None:
    run = await scene.run()
    old = ' { "role":"user" ,"parts":[{"kind":"text","text":"\\u00e9\\ud800"} ]}  '
    await scene.do(run.append("1", f'\n[{old},{{"role":"user","parts":[{{"kind":"text"}}]}}]', APPENDED))
    shown = await view(scene, run, "model-input", keep_turns=1)
    assert shown["older_digest"] == hashlib.sha256(old.strip().encode()).hexdigest()


async def test_the_newest_summary_of_the_same_messages_is_reused(scene: Scene) -> None:
    run = await talked(scene, ALL)
    older = digest(ALL[:3])
    payloads = [
        compact({"older_digest": older, "summary": "first"}),
        f'{{"summary": {{"n": 1.10}}, "older_digest": "{older}"}}',
        compact({"older_digest": digest(ALL[:2]), "summary": "of others"}),
        compact({"older_digest": older.upper(), "summary": "of nothing"}),
        compact({"older_digest": 7, "summary": "of another shape"}),
        "null",
        "[]",
    ]
    for number, payload in enumerate(payloads):
        await scene.do(run.append(f"summary/{number}", payload, "history_summarized"))
    assert (await view(scene, run, "model-input", keep_turns=2))["summary"] == payloads[1]
    embedded = await view(scene, run, "model-input", keep_turns=2, payload="json")
    assert embedded["summary"] == json.loads(payloads[1])
    assert (await view(scene, run, "model-input", keep_turns=1))["summary"] is None


@pytest.mark.parametrize("wrong", ["-1", "1.0", "one", "1e3", "9999999999"])
async def test_turns_are_counted_in_whole_numbers(http_scene: Scene, wrong: str) -> None:
    run = await talked(http_scene, ALL)
    assert (await view_refused(http_scene, run, "model-input", keep_turns=wrong)).code == "invalid_command"
