"""The transcript of a run, and how it keeps the rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.contract import builders
from tests.contract.builders import compact
from tests.contract.reading import APPENDED, SEEDED, message, result, said, text, use, view, view_refused
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")

CATALOG: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "data/traces/transcript-catalog.jsonl").read_text().splitlines()
]
REFUSED = [each["payload"] for each in CATALOG if each.get("refused") and not each["payload"].endswith("] []")]
TAKEN = [each["payload"] for each in CATALOG if not each.get("refused")]
JUDGED = [each for each in CATALOG if "planner_valid" in each]

HELLO = message("user", text("hello"))
ANSWER = message("assistant", text("hi"))
USE = message("assistant", use("a"), use("b"))


@pytest.mark.parametrize("family", ["root", "child", "one shot"])
async def test_a_transcript_is_seeds_and_appends_in_record_order(scene: Scene, family: str) -> None:
    run = await (scene.one_shot() if family == "one shot" else scene.run())
    if family == "child":
        run = await scene.child(run)
    await scene.do(said(run, "1", HELLO, ANSWER, kind=SEEDED))
    await scene.do(run.append("2"))
    await scene.do(said(run, "3", HELLO))
    await scene.do(said(run, "4", ANSWER, kind=SEEDED))
    ids = {record["event_key"]: record["id"] for record in await scene.records(run)}
    shown = (await view(scene, run, "transcript"))["messages"]
    assert shown == [
        {"message": HELLO, "record_id": ids["1"], "seed": True},
        {"message": ANSWER, "record_id": ids["1"], "seed": True},
        {"message": HELLO, "record_id": ids["3"], "seed": False},
        {"message": ANSWER, "record_id": ids["4"], "seed": True},
    ]


@pytest.mark.parametrize("payload", TAKEN)
async def test_every_kind_of_part_is_shown_as_it_is_stored(scene: Scene, payload: str) -> None:
    run = await scene.run()
    await scene.do(run.append("1", payload, APPENDED))
    shown = (await view(scene, run, "transcript"))["messages"]
    assert [each["message"] for each in shown] == (json.loads(payload) or [])


@pytest.mark.parametrize("payload", REFUSED)
async def test_a_transcript_record_that_does_not_decode_is_named(scene: Scene, payload: str) -> None:
    run = await scene.run()
    good = await scene.do(said(run, "1", HELLO))
    bad = await scene.do(run.append("2", payload, SEEDED))
    for name in ("transcript", "model-input"):
        refused = await view_refused(scene, run, name)
        assert refused.code == "transcript_invalid"
        assert refused.refusal.ids == {"run_id": run.run_id, "record_id": bad["id"]}
        assert bad["id"] in refused.refusal.detail
    assert len((await view(scene, run, "transcript", through=good["id"]))["messages"]) == 1
    assert await scene.payload_of(run, "2") == payload


async def test_a_run_without_a_transcript_has_none(scene: Scene) -> None:
    run = await scene.run()
    first = await scene.do(run.append("1"))
    for query in ({}, {"through": first["id"]}):
        refused = await view_refused(scene, run, "transcript", **query)
        assert (refused.code, refused.refusal.ids) == ("transcript_not_found", {"run_id": run.run_id})
    await scene.do(said(run, "2", HELLO))
    assert (await view_refused(scene, run, "transcript", through=first["id"])).code == "transcript_not_found"


@pytest.mark.parametrize("payload", ["null", "[]"])
async def test_a_transcript_may_be_empty(scene: Scene, payload: str) -> None:
    run = await scene.run()
    await scene.do(run.append("1", payload, SEEDED))
    valid = {"valid": True, "violation": None}
    assert await view(scene, run, "transcript") == {"messages": [], "planner": valid, "bedrock": valid}


async def test_through_ends_a_transcript_with_a_record_of_the_run(scene: Scene) -> None:
    run = await scene.run()
    other = await scene.run(run.session_id)
    await scene.do(said(run, "1", HELLO, ANSWER))
    await scene.do(run.append("2"))
    await scene.do(said(run, "3", USE))
    foreign = (await scene.do(other.append("1")))["id"]
    counts = {}
    for record in (await scene.records(run))[1:]:
        shown = await view(scene, run, "transcript", through=record["id"])
        counts[record["event_key"]] = (len(shown["messages"]), shown["planner"]["valid"])
    assert counts == {"1": (2, True), "2": (2, True), "3": (3, False)}
    for wrong in (foreign, "nonsense", "0", foreign + "0", "é", foreign.upper() + " "):
        assert (await view_refused(scene, run, "transcript", through=wrong)).code == "invalid_command"


@pytest.mark.parametrize("case", JUDGED, ids=lambda case: case["case"])
async def test_the_planners_rule_is_told_with_the_transcript(scene: Scene, case: dict[str, Any]) -> None:
    run = await scene.run()
    await scene.do(run.append("1", case["payload"], APPENDED))
    shown = await view(scene, run, "transcript")
    assert shown["planner"]["valid"] is case["planner_valid"]
    assert (shown["planner"]["violation"] is None) is case["planner_valid"]


@pytest.mark.parametrize(
    ("messages", "planner", "bedrock"),
    [
        ([USE, message("user", result("a"))], (1, None, "b"), (0, 0, "a")),
        ([message("assistant", {"kind": "thinking"}, use("a"))], (0, None, "a"), (0, None, "a")),
        ([HELLO, message("user", text("x"), result("z"))], (1, 1, "z"), (1, 1, "z")),
        ([message("assistant", use("a")), message("user", result("a"), result("a"))], (1, 1, "a"), (0, 0, "a")),
        ([message("assistant", text("x"), use(""))], (0, 1, ""), (0, 1, "")),
        ([message("assistant", use("a")), message("user", result("a"))], None, (0, 0, "a")),
    ],
    ids=["missing", "open", "early", "doubled", "empty ID", "no thinking"],
)
async def test_the_first_violation_is_named(
    scene: Scene, messages: list[Any], planner: tuple[Any, ...] | None, bedrock: tuple[Any, ...]
) -> None:
    run = await scene.run()
    for number, each in enumerate(messages):
        await scene.do(said(run, str(number), each))
    before = await scene.everything()
    shown = await view(scene, run, "transcript")
    for rule, expected in (("planner", planner), ("bedrock", bedrock)):
        violation = shown[rule]["violation"]
        assert shown[rule]["valid"] is (expected is None)
        found = None if violation is None else (violation["message"], violation["part"], violation["id"])
        assert found == expected
    assert [each["message"] for each in shown["messages"]] == messages
    await scene.same(before)


@pytest.mark.parametrize("name", ["transcript", "model-input", "prompts", "tree", "tool-calls"])
async def test_what_is_read_back_is_of_a_run_that_is_there(scene: Scene, name: str) -> None:
    missing = scene.new_run()
    refused = await view_refused(scene, missing, name)
    assert (refused.code, refused.refusal.ids) == ("run_not_found", {"run_id": missing.run_id})
    run = await scene.run()
    await scene.do(said(run, "1", HELLO))
    await view(scene, run, name)
    await scene.do(run.end())
    await scene.do(builders.end_session(run.session_id))
    await view(scene, run, name)
    await scene.do(builders.purge_session(run.session_id))
    assert (await view_refused(scene, run, name)).code == "run_not_found"


@pytest.mark.parametrize("name", ["transcript", "model-input", "prompts", "tree", "tool-calls"])
async def test_a_run_is_read_back_wherever_its_directory_entry_lies(scene: Scene, name: str) -> None:
    session_id = await scene.session(partition=2)
    for partition in (2, 5):
        run = await scene.run(session_id, partition=partition)
        await scene.do(run.append("1", compact([HELLO]), APPENDED))
        assert await view(scene, run, name)


@pytest.mark.parametrize("name", ["transcript", "model-input", "prompts", "tree", "tool-calls"])
async def test_what_is_read_back_takes_its_own_parameters_only(scene: Scene, name: str) -> None:
    run = await scene.run()
    await scene.do(said(run, "1", HELLO))
    assert await view(scene, run, name, payload="json")
    for query in ({"payload": "text"}, {"limit": "1"}, {"cursor": "x"}):
        assert (await view_refused(scene, run, name, **query)).code == "invalid_command"
