"""What is read back over HTTP is byte for byte what was stored; only line breaks outside strings become spaces."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from schemas.json_text import elements
from tests.contract.builders import Run
from tests.contract.clients import HttpClient
from tests.contract.reading import APPENDED, path
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")

HARD = '{"b": 123456789012345678901234567890, "a":1.10,"a":1e-7 , "s":"\\u0000\\ud800 \\/ \\u00e9é<&>", "n":-0, "":[ ]}'
HARD_MESSAGES = [
    '{"role":"user","parts":[{"kind":"text","text":"\\ud83d\\u0000é\\u00e9 \u2028"}],"meta":' + HARD + "}",
    '{"parts" : [{"thought_signature":"", "input":'
    + HARD
    + ',"kind":"tool_use","id":"a","name":"n"}],"role":"assistant"}',
    '{"role":"user","parts":[{"kind":"tool_result","tool_use_id":"a","content":' + HARD + "}]}",
]
SURROGATE = "\\udc80"


async def body(server: HttpClient, run: Run, name: str, **query: Any) -> str:
    """The body of a view, as it came."""
    response: httpx.Response = await server.http.get(path(run, name), params=query)
    assert response.status_code == 200, response.text
    return response.content.decode()


def values(text: str, name: str) -> Iterator[str]:
    """The texts of the values of an array that is a field of the answer."""
    start = text.index(f'"{name}":[') + len(name) + 3
    return (text[begin:end] for begin, end in elements(text, start))


@pytest.mark.parametrize("query", [{}, {"payload": "json"}], ids=["text", "json"])
async def test_messages_are_the_stored_bytes(http_scene: Scene, server: HttpClient, query: dict[str, str]) -> None:
    run = await http_scene.run()
    for number, message in enumerate(HARD_MESSAGES):
        await http_scene.do(run.append(str(number), f" [{message} ]", APPENDED))
    shown = list(values(await body(server, run, "transcript", **query), "messages"))
    assert [each[: each.index(',"record_id":')] for each in shown] == [f'{{"message":{each}' for each in HARD_MESSAGES]
    bare = await body(server, run, "model-input", keep_turns=1, **query)
    assert list(values(bare, "messages")) == HARD_MESSAGES
    assert list(values(bare, "kept")) == HARD_MESSAGES
    assert list(values(bare, "older")) == []


async def test_line_breaks_outside_strings_become_spaces(http_scene: Scene, server: HttpClient) -> None:
    run = await http_scene.run()
    message = '{\r\n"role":\n"a\\nb"\r}'
    await http_scene.do(run.append("1", f"[\n{message}\n]", APPENDED))
    assert list(values(await body(server, run, "model-input"), "messages")) == ['{  "role": "a\\nb" }']


async def test_a_scope_is_the_stored_bytes(http_scene: Scene, server: HttpClient) -> None:
    run = await http_scene.run()
    payload = f'{{"PromptID":"{SURROGATE}é","Scope": {HARD} ,"Version":"\\u0000"}}'
    await http_scene.do(run.append("1", payload, "prompt_rendered"))
    (shown,) = values(await body(server, run, "prompts"), "prompts")
    assert shown.startswith(f'{{"prompt_id":"{SURROGATE}\\u00e9","version":"\\u0000","scope":{HARD},"run_id":')


@pytest.mark.parametrize("kind", ["prompt_rendered", "tool_call_scheduled", "tool_result_received"])
async def test_a_payload_of_another_shape_is_the_stored_bytes(http_scene: Scene, server: HttpClient, kind: str) -> None:
    run = await http_scene.run()
    payload = f"[{HARD}]"
    await http_scene.do(run.append("1", payload, kind))
    name = "prompts" if kind == "prompt_rendered" else "tool-calls"
    assert f'"payload":{payload}}}' in await body(server, run, name, payload="json")
    (shown,) = (await http_scene.client.get(path(run, name)))["unreadable"]
    assert shown["record"]["payload"] == payload


async def test_a_summary_is_the_stored_bytes(http_scene: Scene, server: HttpClient) -> None:
    run = await http_scene.run()
    await http_scene.do(run.append("1", f"[{HARD_MESSAGES[0]}]", APPENDED))
    older = (await http_scene.client.get(path(run, "model-input"), keep_turns=1))["older_digest"]
    summary = f'{{"summary":{HARD},"older_digest":"{older}"}}'
    await http_scene.do(run.append("2", summary, "history_summarized"))
    assert f'"summary":{summary}}}' in await body(server, run, "model-input", keep_turns=1, payload="json")
    assert (await http_scene.client.get(path(run, "model-input"), keep_turns=1))["summary"] == summary


async def test_ids_that_no_utf8_holds_are_shown_as_their_escapes(http_scene: Scene, server: HttpClient) -> None:
    run = await http_scene.run()
    names = f'"ToolCallID":"{SURROGATE}","ToolName":"t{SURROGATE}","ModelToolCallID":"{SURROGATE}m"'
    await http_scene.do(run.append("1", f"{{{names}}}", "tool_call_scheduled"))
    await http_scene.do(run.append("2", f'{{"tool_call_id":"{SURROGATE}"}}', "tool_result_received"))
    (call,) = values(await body(server, run, "tool-calls"), "tool_calls")
    ids = f'"tool_call_id":"{SURROGATE}","model_tool_call_id":"{SURROGATE}m","tool_name":"t{SURROGATE}"'
    assert call.startswith(f"{{{ids}")
    assert '"result":null' not in call
    use = f'[{{"role":"assistant","parts":[{{"kind":"tool_use","id":"{SURROGATE}","input":{HARD}}}]}}]'
    await http_scene.do(run.append("3", use, APPENDED))
    shown = await body(server, run, "transcript")
    assert f'"violation":{{"message":0,"part":null,"id":"{SURROGATE}",' in shown
    assert f'"message":{use[1:-1]},' in shown
    child = http_scene.new_child(run)
    start = child.start()
    link = start.at("parent_linked.payload").replace("research.ask", SURROGATE)
    await http_scene.do(start.but("parent_linked.payload", link))
    (branch,) = values(await body(server, run, "tree"), "children")
    assert f'"tool_name":"{SURROGATE}","tool_call_id":"call-1","children":[]' in branch


def any_json(chance: random.Random, depth: int = 3) -> str:
    """A JSON text in some form: any number, escape, key order and white space that the grammar allows."""
    gap = "".join(chance.choices(["", "", "", " ", "\t"], k=2))
    kind = chance.choice(["number", "text", "text", "list", "object"] if depth else ["number", "text"])
    if kind == "number":
        digits = str(chance.randrange(10 ** chance.randrange(1, 40)))
        return gap + chance.choice(["", "-"]) + digits + chance.choice(["", ".10", ".0", "e5", "E-07", ".50e+9"])
    if kind == "text":
        letters = [
            "a",
            "é",
            "😀",
            "\u2028",
            "\\n",
            "\\u0000",
            "\\ud800",
            "\\udfff",
            "\\/",
            '\\"',
            "\\\\",
            "\\u003C",
            "<",
        ]
        return gap + '"' + "".join(chance.choices(letters, k=chance.randrange(6))) + '"'
    inner = [any_json(chance, depth - 1) for _ in range(chance.randrange(4))]
    if kind == "list":
        return f"{gap}[{','.join(inner)}{gap}]"
    return gap + "{" + ",".join(f'"{chance.choice("aabé")}"{gap}:{each}' for each in inner) + gap + "}"


async def test_whatever_is_stored_is_what_is_shown(http_scene: Scene, server: HttpClient) -> None:
    chance = random.Random(20261201)
    run = await http_scene.run()
    stored = []
    for number in range(150):
        content, meta = any_json(chance).strip(), any_json(chance, 0).strip()
        fields = [
            f'"role":{chance.choice(["", " "])}"user"',
            f'"parts":[{{"content":{content},"kind":"tool_result"}}]',
            f'"meta":{{"m": {meta}}}',
        ]
        chance.shuffle(fields)
        stored.append("{" + ",".join(fields) + "}")
        await http_scene.do(run.append(str(number), f"[{stored[-1]}]", APPENDED))
    assert list(values(await body(server, run, "model-input"), "messages")) == stored
    shown = list(values(await body(server, run, "transcript"), "messages"))
    assert [each[11 : each.rindex(',"record_id":')] for each in shown] == stored
