"""How what is read back from a run's records is asked for over HTTP, and how it is written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from schemas.refusals import Code, Refused, refuse
from schemas.replays import (
    KeptTurns,
    ModelInput,
    Prompts,
    PromptUse,
    RunTree,
    SaidMessage,
    ToolCall,
    ToolCalls,
    Transcript,
    TreeRun,
    Unreadable,
)
from schemas.transcripts import Violation
from schemas.values import ChildLink, Record
from service import render_replays, views
from service.json_text import encoded
from service.replays import REPLAY_VIEWS
from tests.service.fake import FakeStore, record, run_meta

SAID = b'{"role":"user","parts":null,"n":1.10}'
ODD = Unreadable(Record("0009", record(type="prompt_rendered", payload=b"[1.10]")), "payload must be an object")
TRANSCRIPT = Transcript(
    (SaidMessage(SAID, "0001", seed=True), SaidMessage(SAID, "0002", seed=False)),
    None,
    Violation(1, None, "\udc80", "why"),
)
KEPT = KeptTurns((SAID,), (SAID, SAID), "ab" * 32, b'{"summary":1.10}')
PROMPTS = Prompts(
    (PromptUse("p", "v", '{"SessionID":"s"}', "r", "0001"), PromptUse("q", "", "null", "r", "0002")), (ODD,)
)
TREE = RunTree(
    (
        TreeRun(run_meta("top"), 0, None),
        TreeRun(run_meta("a"), 1, ChildLink("a", "x", "t", "c1")),
        TreeRun(run_meta("a1"), 2, ChildLink("a1", "x", "t", "c2")),
        TreeRun(run_meta("a11"), 3, ChildLink("a11", "x", "\ud800", "c3")),
        TreeRun(run_meta("b"), 1, ChildLink("b", "x", "t", "c4")),
        TreeRun(run_meta("b1"), 2, ChildLink("b1", "x", "t", "c5")),
        TreeRun(run_meta("b2"), 2, ChildLink("b2", "x", "t", "c6")),
    ),
    (run_meta("before"),),
    (run_meta("after"),),
)
CALLS = ToolCalls(
    (ToolCall("c", "m", "t", "0001", "0002", failed=True), ToolCall("d", None, "t", None, None, failed=False)), (ODD,)
)
VALUES: dict[str, Any] = {
    "run transcript": TRANSCRIPT,
    "run model input": ModelInput((SAID, SAID, SAID), KEPT),
    "run prompts": PROMPTS,
    "run tree": TREE,
    "run tool calls": CALLS,
}


@pytest.fixture
def store() -> FakeStore:
    fresh = FakeStore()
    fresh.values = dict(VALUES)
    return fresh


@pytest.mark.parametrize(
    ("path", "query", "read"),
    [
        ("transcript", {}, ("run transcript", "a/b", "")),
        ("transcript", {"through": "0001"}, ("run transcript", "a/b", "0001")),
        ("model-input", {}, ("run model input", "a/b", 0)),
        ("model-input", {"keep_turns": "3"}, ("run model input", "a/b", 3)),
        ("prompts", {}, ("run prompts", "a/b", True, False)),
        ("prompts", {"descendants": "false", "predecessors": "true"}, ("run prompts", "a/b", False, True)),
        ("tree", {}, ("run tree", "a/b")),
        ("tool-calls", {}, ("run tool calls", "a/b")),
    ],
)
async def test_a_view_asks_the_store(store: FakeStore, path: str, query: dict[str, str], read: tuple[Any, ...]) -> None:
    await views.get(store, f"/v1/runs/a%2Fb/{path}", query)
    assert store.reads == [read]


@pytest.mark.parametrize("query", [{}, {"payload": "json"}], ids=["text", "json"])
@pytest.mark.parametrize("view", REPLAY_VIEWS, ids=lambda view: view.name)
async def test_a_view_answers_in_the_shape_it_is_described_with(
    store: FakeStore, view: Any, query: dict[str, str]
) -> None:
    answer = await views.get(store, view.path.replace("{id}", "r"), query)
    TypeAdapter(view.answer).validate_python(answer, strict=True, extra="forbid")


@pytest.mark.parametrize("view", REPLAY_VIEWS, ids=lambda view: view.name)
async def test_a_refusal_is_raised(view: Any) -> None:
    store = FakeStore()
    refusal = refuse(Code.TRANSCRIPT_INVALID, "no", run_id="r")
    store.values = {"r": refusal}
    with pytest.raises(Refused) as refused:
        await views.get(store, view.path.replace("{id}", "r"))
    assert refused.value.refusal is refusal


def test_a_transcript_has_exactly_its_fields() -> None:
    body = encoded(render_replays.transcript(TRANSCRIPT))
    assert body == (
        b'{"messages":[{"message":' + SAID + b',"record_id":"0001","seed":true},'
        b'{"message":' + SAID + b',"record_id":"0002","seed":false}],'
        b'"planner":{"valid":true,"violation":null},'
        b'"bedrock":{"valid":false,"violation":{"message":1,"part":null,"id":"\\udc80","detail":"why"}}}'
    )


def test_model_input_has_more_fields_where_turns_are_kept() -> None:
    said = SAID.decode()
    assert encoded(render_replays.model_input(ModelInput((SAID,), None), embed=True)) == b'{"messages":[' + SAID + b"]}"
    shown = encoded(render_replays.model_input(ModelInput((SAID, SAID, SAID), KEPT), embed=True)).decode()
    assert shown.endswith(
        f'"kept":[{said}],"older":[{said},{said}],"older_digest":"{"ab" * 32}","summary":{{"summary":1.10}}}}'
    )
    text = json.loads(encoded(render_replays.model_input(ModelInput((SAID,), KEPT), embed=False)))
    assert text["summary"] == '{"summary":1.10}'


def test_what_could_not_be_read_is_shown_only_where_there_is_any() -> None:
    shown = json.loads(encoded(render_replays.prompts(PROMPTS, embed=False)))
    (odd,) = shown["unreadable"]
    assert (odd["problem"], odd["record"]["payload"]) == ("payload must be an object", "[1.10]")
    assert b'"payload":[1.10]' in encoded(render_replays.prompts(PROMPTS, embed=True))
    assert set(render_replays.prompts(Prompts((), ()), embed=False)) == {"prompts", "count"}
    assert set(render_replays.tool_calls(ToolCalls((), ()), embed=False)) == {"tool_calls"}


def outline(branch: Any) -> Any:
    return branch["run"]["run_id"], [outline(child) for child in branch["children"]]


def test_a_tree_is_written_from_its_flat_list() -> None:
    shown = json.loads(encoded(render_replays.tree(TREE)))
    assert outline(shown) == ("top", [("a", [("a1", [("a11", [])])]), ("b", [("b1", []), ("b2", [])])])
    assert [each["tool_call_id"] for each in shown["children"]] == ["c1", "c4"]
    assert shown["children"][0]["children"][0]["children"][0]["tool_name"] == "\ud800"
    assert ([each["run_id"] for each in shown["predecessors"]], shown["successors"][0]["run_id"]) == (
        ["before"],
        "after",
    )


def test_a_tree_of_any_depth_can_be_written() -> None:
    link = ChildLink("r", "a", "t", "c")
    depth = 20_000
    runs = (TreeRun(run_meta(), 0, None), *(TreeRun(run_meta(), level, link) for level in range(1, depth)))
    body = encoded(render_replays.tree(RunTree(runs, (), ())))
    assert body.count(b'"children":[{') == depth - 1
    assert body.count(b"{") == body.count(b"}")
    assert b'"children":[]' + b"}]" * (depth - 1) in body
