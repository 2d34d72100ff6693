"""Every recorded run, replayed against every kind of store."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.contract.clients import Client
from tests.contract.scene import Scene
from tests.model.reference import Reference
from tests.model.shapes import LIFECYCLE
from tests.traces.replay import FOLDER, Bindings, TraceMismatchError, differences, prefixed_payload, read, replay

pytestmark = pytest.mark.asyncio(loop_scope="session")

TRACES = sorted(FOLDER.glob("?_*.jsonl"))
numbers = itertools.count(1)


def prefix() -> str:
    """A prefix that no other replay has."""
    return f"replay-{next(numbers)}/"


async def test_the_traces_are_there() -> None:
    stories = {path.name.split(".")[0] for path in TRACES}
    assert stories == {"a_chat", "b_tools", "c_child", "e_suspended", "h_prompts"}
    assert len(TRACES) == 10


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
async def test_every_answer_is_the_recorded_one(store: Client, path: Path) -> None:
    bindings = await replay(store, path, prefix())
    assert bindings.values


async def test_replays_share_one_store_at_the_same_time(store: Client) -> None:
    found = await asyncio.gather(*(replay(store, path, prefix()) for path in TRACES * 2))
    for first, second in itertools.combinations(found, 2):
        shared = {value for name, value in first.values.items() if name.startswith("$cursor")} & set(second.names)
        assert not shared, "a cursor of one replay was issued in another"


@pytest.mark.parametrize("path", [path for path in TRACES if ".retries" not in path.name], ids=lambda path: path.stem)
async def test_a_story_told_twice_is_a_story_of_retries(store: Client, path: Path) -> None:
    """The whole story again: all its mutations are retries now, and what it ends with is the same."""
    mine = prefix()
    bindings = await replay(store, path, mine)
    for call in read(path, mine):
        answer = await store.call(call.method, bindings.fill(call.args))
        for inserted in inserted_in(answer):
            assert inserted is False, call
        if call.method in ("list_run_records", "load_checkpoint", "list_runs_by_session"):
            assert list(differences(call.expected, answer, bindings)) == []


@pytest.mark.parametrize("catalog", ["payload-catalog", "transcript-catalog"])
async def test_real_payloads_of_every_type_are_kept(store: Client, catalog: str) -> None:
    scene = Scene(store, catalog)
    run = await scene.run()
    lines = [json.loads(line) for line in (FOLDER / f"{catalog}.jsonl").read_text(encoding="utf-8").splitlines()]
    sent = [(each.get("type", "transcript_messages_appended"), each["payload"]) for each in lines]
    sent = [(kind, payload) for kind, payload in sent if kind not in LIFECYCLE and not payload.endswith("] []")]
    assert len(sent) > 12
    for number, (kind, payload) in enumerate(sent):
        await scene.do(run.append(f"note/{number}", payload, kind))
    assert [(record["type"], record["payload"]) for record in (await scene.records(run))[1:]] == sent


def inserted_in(answer: Any) -> list[bool]:
    """Every `inserted` of an answer."""
    if not isinstance(answer, dict):
        return []
    own = [answer["inserted"]] if "inserted" in answer else []
    return own + [each for value in answer.values() for each in inserted_in(value)]


# The replay itself


class Changing:
    """The reference model, with one thing changed in its answers."""

    def __init__(self, method: str, old: str, new: str) -> None:
        self.reference = Reference()
        self.method, self.old, self.new = method, old, new

    async def call(self, method: str, args: dict[str, Any]) -> dict[str, Any]:
        """Do the method and change its answer."""
        answer = await self.reference.call(method, args)
        if method == self.method:
            text = json.dumps(answer)
            assert self.old in text
            answer = json.loads(text.replace(self.old, self.new))
        return answer


@pytest.mark.parametrize(
    ("method", "old", "new"),
    [
        ("append_record", '"inserted": true', '"inserted": false'),
        ("append_record", '"id": "', '"id": "other'),
        ("record_terminal", '"active"', '"ended"'),
        ("load_run", '"completed"', '"failed"'),
        ("load_run", '"updated_at"', '"changed_at"'),
        ("load_run", "updated_at", "updated"),
        ("list_run_records", '\\"Phase\\":', '\\"Phase\\": '),
        ("list_run_records", '"event_key"', '"key"'),
        ("list_session_records", '"records": [', '"records": [{}, '),
        ("list_runs_by_session", '"labels": {"tenant": "acme"}', '"labels": {}'),
    ],
)
async def test_a_changed_answer_is_noticed(method: str, old: str, new: str) -> None:
    with pytest.raises(TraceMismatchError, match=r"a_chat\.jsonl:\d+ "):
        await replay(Changing(method, old, new), FOLDER / "a_chat.jsonl")


async def test_a_placeholder_stands_for_one_thing_only() -> None:
    bindings = Bindings()
    assert list(differences("$id(r,1)", "x", bindings)) == []
    assert list(differences("$id(r,1)", "x", bindings)) == []
    assert list(differences("$id(r,1)", "y", bindings)) == ["answer: $id(r,1) was 'x' and is now 'y'"]
    assert list(differences("$id(r,2)", "x", bindings)) == ["answer: 'x' stands for $id(r,1) and for $id(r,2)"]
    assert list(differences("$id(r,3)", "", bindings)) == ["answer: $id(r,3) -> ''"]
    assert bindings.fill({"cursor": "$id(r,1)", "limit": 4}) == {"cursor": "x", "limit": 4}


async def test_empty_is_empty_however_it_is_written() -> None:
    for one, other in itertools.product(({"a": ""}, {"a": {}}, {"a": None}, {}), repeat=2):
        assert list(differences(one, other, Bindings())) == []
    assert list(differences({"a": ""}, {"a": []}, Bindings())) == ["answer.a: '' -> []"]
    assert list(differences({"a": False}, {}, Bindings())) == ["answer.a: False -> None"]


async def test_a_prefix_changes_nothing_but_the_ids_of_a_payload() -> None:
    names = ("parent_run_id", "predecessor_run_id")
    assert prefixed_payload('{"parent_run_id":"r", "labels":{"a":"r"}}', names, "p/") == (
        '{"parent_run_id":"p/r", "labels":{"a":"r"}}'
    )
    assert prefixed_payload('{"parent_run_id":""}', names, "p/") == '{"parent_run_id":""}'
    assert prefixed_payload("{}", names, "p/") == "{}"
