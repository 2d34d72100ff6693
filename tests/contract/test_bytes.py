"""Payloads: one JSON text, kept and given back byte for byte."""

from __future__ import annotations

import dataclasses
from urllib.parse import quote

import pytest

from tests.contract.builders import Command, spaced
from tests.contract.scene import Scene

pytestmark = pytest.mark.asyncio(loop_scope="session")

MIB = 1024 * 1024


def nested(depth: int, brackets: str = "[]") -> str:
    """A JSON text nested this deep; the outermost bracket is one."""
    start = "[" if brackets == "[]" else '{"a":'
    inner = "[]" if brackets == "[]" else "{}"
    return start * (depth - 1) + inner + brackets[1] * (depth - 1)


def filled(length: int, character: str = "x") -> str:
    """A JSON string of exactly so many bytes."""
    room = length - 2
    width = len(character.encode())
    return '"' + character * (room // width) + "x" * (room % width) + '"'


KEPT = {
    "trailing zero": '{"a": 1.10}',
    "large integer": '{"n":123456789012345678901234567890}',
    "beyond a float's digits": '{"n":9007199254740993}',
    "long fraction": "0.1000000000000000055511151231257827021181583404541015625",
    "very long integer": "9" * 5000,
    "huge exponent": "1E400",
    "tiny exponent": "-1e-400",
    "exponent forms": "[1e5,1E+5,1E-05,-0,-0.0,0e0]",
    "odd spacing": ' \t\r\n{ "a" :\t[ 1 ,2\n] } \n',
    "escapes of HTML": '"\\u003cok\\u003e \\u0026"',
    "every escape": '"\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u00e9"',
    "escape case": '["\\u00E9","\\u00e9","é"]',
    "key order": '{"b":1,"a":2,"B":3}',
    "equal keys": '{"a":1,"a":2}',
    "equal keys by escape": '{"a":1,"\\u0061":2}',
    "empty key": '{"":{}}',
    "zero escape": '"\\u0000"',
    "zero escape in key": '{"\\u0000":"\\u0000\\u0000"}',
    "control escapes": '"\\u0001\\u001f\\u007f\\u0085"',
    "delete": '"\x7f\x85"',
    "lone high surrogate": '"\\ud800"',
    "lone low surrogate": '"\\udfff"',
    "surrogates the wrong way round": '"\\ude00\\ud83d"',
    "surrogate pair": '"\\ud83d\\ude00"',
    "the same not escaped": '"😀"',
    "line separators": '"\u2028\u2029"',
    "byte order mark inside": '"\ufeff"',
    "noncharacters": '"\ufffe\uffff\U0010ffff"',
    "right to left": '"\u202eabc\u202c"',
    "not normalized": '"e\u0301"',
    "normalized": '"\u00e9"',
    "null": "null",
    "false": "false",
    "zero": "0",
    "minus zero": "-0",
    "empty string": '""',
    "empty array": "[]",
    "empty object": "{}",
    "looks like a placeholder": '"$id(run,1)"',
    "128 arrays": nested(128),
    "128 objects": nested(128, "{}"),
    "128 arrays twice": f"[{nested(127)},{nested(127)}]",
    "brackets inside strings": '"' + "[{" * 1000 + '"',
    "brackets after an escaped quote": '"\\"' + "[" * 200 + '"',
    "many siblings": "[" + ",".join(["[]"] * 5000) + "]",
    "1 MiB": filled(MIB),
}

REFUSED = {
    "empty": "",
    "white space": " \n",
    "not JSON": "hello",
    "single quotes": "{'a':1}",
    "unquoted key": "{a:1}",
    "NaN": "NaN",
    "Infinity": "Infinity",
    "minus Infinity": "-Infinity",
    "NaN inside": '{"a":[NaN]}',
    "byte order mark": "\ufeff{}",
    "byte order mark behind": "{}\ufeff",
    "two values": "{} {}",
    "two numbers": "1 2",
    "two lines": '{"a":1}\n{"a":2}',
    "cut": '{"a":',
    "cut string": '"a',
    "cut escape": '"\\u00"',
    "unknown escape": '"\\x41"',
    "bare backslash": '"\\"',
    "trailing comma": "[1,]",
    "trailing comma in object": '{"a":1,}',
    "leading comma": "[,1]",
    "no value": '{"a"}',
    "no key": "{1:2}",
    "comment": "{} // note",
    "block comment": "{/**/}",
    "leading zero": "01",
    "minus leading zero": "-01",
    "plus": "+1",
    "no fraction": "1.",
    "no whole": ".5",
    "no exponent": "1e",
    "hexadecimal": "0x10",
    "underscore": "1_000",
    "other digits": "١٢٣",
    "True": "True",
    "undefined": "undefined",
    "raw zero": '"\x00"',
    "raw line break": '"a\nb"',
    "raw tab": '"a\tb"',
    "raw control": '"\x1f"',
    "zero behind": "{}\x00",
    "no-break space": "\u00a0{}",
    "form feed": "\x0c{}",
    "129 arrays": nested(129),
    "129 objects": nested(129, "{}"),
    "129 mixed": '{"a":' + nested(128) + "}",
    "129 in the second": f"[[],{nested(128)}]",
    "very deep": nested(100_000),
    "very deep and open": "[" * 100_000,
}


@pytest.mark.parametrize("payload", KEPT.values(), ids=list(KEPT))
async def test_a_payload_is_kept_byte_for_byte(scene: Scene, payload: str) -> None:
    run = await scene.run()
    first = await scene.do(run.append(payload=payload))
    assert (await scene.records(run))[-1]["payload"] == payload
    assert (await scene.session_records(run.session_id))[-1]["payload"] == payload
    await scene.repeats(run.append(payload=payload), first)


@pytest.mark.parametrize("payload", KEPT.values(), ids=list(KEPT))
async def test_a_payload_is_served_in_the_views_of_records(scene: Scene, payload: str) -> None:
    run = await scene.run()
    await scene.do(run.append(payload=payload))
    for path in (f"/v1/runs/{quote(run.run_id, safe='')}", f"/v1/sessions/{quote(run.session_id, safe='')}"):
        assert (await scene.client.get(f"{path}/records"))["records"][-1]["payload"] == payload


@pytest.mark.parametrize("payload", [text for text in KEPT.values() if len(text) < 10_000])
async def test_the_same_value_in_other_bytes_is_another_record(scene: Scene, payload: str) -> None:
    run = await scene.run()
    await scene.do(run.append(payload=payload))
    await scene.refuses("record_conflict", run.append(payload=spaced(payload)))


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        ('{"a":1.10}', '{"a":1.1}'),
        ('{"a":1,"b":2}', '{"b":2,"a":1}'),
        ('"\\u00e9"', '"é"'),
        ('"\\u00e9"', '"\\u00E9"'),
        ('"e\u0301"', '"\u00e9"'),
        ('{"a":1,"a":2}', '{"a":2}'),
        ("1E2", "1e2"),
        ("-0", "0"),
        ('"\\/"', '"/"'),
        ('"\\ud800"', '"\\udbff"'),
        ('"\\ud83d\\ude00"', '"😀"'),
    ],
)
async def test_equal_values_are_not_equal_payloads(scene: Scene, stored: str, sent: str) -> None:
    run = await scene.run()
    await scene.do(run.append(payload=stored))
    await scene.refuses("record_conflict", run.append(payload=sent))
    assert await scene.payload_of(run, "note/1") == stored


@pytest.mark.parametrize("payload", REFUSED.values(), ids=list(REFUSED))
async def test_what_is_not_one_json_text_is_refused(scene: Scene, payload: str) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.append(payload=payload))


@pytest.mark.parametrize("payload", ["\ud800", '"\ud800"', '{"a":"\udfff"}'], ids=ascii)
async def test_a_lone_surrogate_that_is_not_escaped_is_no_valid_text(scene: Scene, payload: str) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.append(payload=payload))


@pytest.mark.parametrize("payload", [None, 7, True, {}, {"n": 1}, ["{}"]], ids=str)
async def test_a_payload_is_a_string(scene: Scene, payload: object) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.append().but("record.payload", payload))
    await scene.refuses("invalid_command", run.append().without("record.payload"))


@pytest.mark.parametrize("character", ["x", "é", "😀"])
async def test_a_payload_of_exactly_4_mib_is_kept(scene: Scene, character: str) -> None:
    run = await scene.run()
    payload = filled(4 * MIB, character)
    assert len(payload.encode()) == 4 * MIB
    first = await scene.do(run.append(payload=payload))
    assert await scene.payload_of(run, "note/1") == payload
    assert await scene.do(run.append(payload=payload)) == {**first, "inserted": False}


@pytest.mark.parametrize("character", ["x", "é", "😀"])
async def test_a_payload_of_one_byte_more_is_refused(scene: Scene, character: str) -> None:
    run = await scene.run()
    await scene.refuses("invalid_command", run.append(payload=filled(4 * MIB + 1, character)))


async def test_white_space_counts_as_bytes(scene: Scene) -> None:
    run = await scene.run()
    await scene.do(run.append(payload=" " * (4 * MIB - 1) + "7"))
    await scene.refuses("invalid_command", run.append("note/2", payload=" " * (4 * MIB) + "7"))


async def test_a_lifecycle_payload_is_at_most_4_mib_too(scene: Scene) -> None:
    run = await scene.run()
    end = run.end()
    room = 4 * MIB - len(end.at("record.payload"))
    await scene.refuses("invalid_command", end.but("record.payload", end.at("record.payload") + " " * (room + 1)))
    await scene.do(end.but("record.payload", end.at("record.payload") + " " * room))
    assert len((await scene.records(run))[-1]["payload"]) == 4 * MIB


async def test_many_payloads_keep_apart(scene: Scene) -> None:
    run = await scene.run()
    texts = list(KEPT.values())
    for number, payload in enumerate(texts):
        await scene.do(run.append(f"note/{number}", payload=payload))
    assert [record["payload"] for record in (await scene.records(run))[1:]] == texts


async def test_a_sessionless_payload_is_kept_byte_for_byte(scene: Scene) -> None:
    run = await scene.one_shot()
    for number, payload in enumerate(KEPT.values()):
        await scene.do(run.append(f"note/{number}", payload=payload))
    assert [record["payload"] for record in (await scene.records(run))[1:]] == list(KEPT.values())


async def test_two_forms_of_one_id_are_two_ids(scene: Scene) -> None:
    """IDs are compared as bytes: nothing is normalized, folded or trimmed."""
    session_id = await scene.session()
    base = scene.new_id("r")
    forms = [base + tail for tail in ("\u00e9", "e\u0301", "É", " ", "  ", "\u200b", "%C3%A9", "/", "//")]
    for run_id in forms:
        run = scene.new_run(session_id, run_id=run_id)
        await scene.started(run)
        await scene.do(run.append(payload=f'"{forms.index(run_id)}"'))
    for run_id in forms:
        run = dataclasses.replace(scene.new_run(session_id, run_id=run_id))
        assert (await scene.load(run))["run_id"] == run_id
        assert await scene.payload_of(run, "note/1") == f'"{forms.index(run_id)}"'
        view = await scene.client.get(f"/v1/runs/{quote(run_id, safe='')}")
        assert view["run"]["run_id"] == run_id
    listed = await scene.do(Command("list_runs_by_session", {"session_id": session_id}))
    assert [run["run_id"] for run in listed["runs"]] == forms
