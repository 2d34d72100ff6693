"""Messages are read strictly, keep what nobody interprets, and are written as Go writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.messages import (
    CacheCheckpointPart,
    Citation,
    CitationLocation,
    CitationsPart,
    DocumentPart,
    DocumentRange,
    ImagePart,
    Message,
    MessagesError,
    Part,
    TextPart,
    ThinkingPart,
    ToolResultPart,
    ToolUsePart,
    decode_messages,
    encode_messages,
)

TRACES = Path(__file__).parent.parent / "data" / "traces"
CATALOG: list[dict[str, Any]] = [
    json.loads(line) for line in (TRACES / "transcript-catalog.jsonl").read_text().splitlines()
]


def again(payload: bytes) -> bytes:
    return encode_messages(None if payload.strip() == b"null" else decode_messages(payload))


def one_part(fields: str) -> Part:
    (message,) = decode_messages(f'[{{"role":"r","parts":[{fields}]}}]'.encode())
    (part,) = message.parts
    return part


def refusal(payload: str) -> str:
    with pytest.raises(MessagesError) as refused:
        decode_messages(payload.encode())
    return str(refused.value)


def part_refusal(fields: str) -> str:
    return refusal(f'[{{"role":"r","parts":[{{"kind":"text"}},{fields}]}}]')


@pytest.mark.parametrize("entry", CATALOG, ids=lambda entry: entry["case"])
def test_the_catalog_of_a_runtime(entry: dict[str, Any]) -> None:
    payload = entry["payload"].encode()
    if entry.get("refused"):
        with pytest.raises(MessagesError):
            decode_messages(payload)
    else:
        assert again(payload) == entry.get("reencoded", entry["payload"]).encode()


def test_the_catalog_is_whole() -> None:
    kinds = {entry["case"].partition("/")[0] for entry in CATALOG}
    assert kinds == {"encode", "decode", "validate"}
    assert sum(entry.get("refused", False) for entry in CATALOG) == 15


def test_every_transcript_in_the_traces_is_written_again_byte_for_byte() -> None:
    payloads = set()
    for path in TRACES.glob("?_*.jsonl"):
        for line in path.read_text().splitlines():
            record = json.loads(line).get("args", {}).get("record", {})
            if record.get("type", "").startswith("transcript_messages_"):
                payloads.add(record["payload"])
    assert len(payloads) > 5
    for payload in payloads:
        assert again(payload.encode()) == payload.encode()


def test_every_kind_is_read_field_by_field() -> None:
    assert one_part(
        '{"kind":"thinking","text":"t","signature":"s","redacted":"AP8=","index":3,"final":true}'
    ) == ThinkingPart("t", "s", b"\x00\xff", 3, final=True)
    assert one_part('{"kind":"text","text":"t"}') == TextPart("t")
    assert one_part('{"kind":"image","format":"png","bytes":"iVA="}') == ImagePart("png", b"\x89P")
    assert one_part(
        '{"kind":"document","name":"n","format":"f","chunks":["a",""],"context":"c","cite":true}'
    ) == DocumentPart("n", "f", None, "", ("a", ""), "", "c", cite=True)
    assert one_part(
        '{"kind":"citations","text":"t","citations":[{"title":"T","source":"S","source_content":["c"],'
        '"location":{"document_page":{"document_index":1,"start":2,"end":3}}},{}]}'
    ) == CitationsPart(
        "t", (Citation("T", "S", CitationLocation(document_page=DocumentRange(1, 2, 3)), ("c",)), Citation())
    )
    assert one_part(
        '{"kind":"tool_use","id":"u","name":"n","input":{ "a": 1.50 },"thought_signature":"s"}'
    ) == ToolUsePart('{ "a": 1.50 }', "u", "n", "s")
    assert one_part('{"kind":"tool_result","tool_use_id":"u","content":[ 1 ],"is_error":true}') == ToolResultPart(
        "u", "[ 1 ]", is_error=True
    )
    assert one_part('{"kind":"cache_checkpoint"}') == CacheCheckpointPart()


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ('"kind":"thinking"', ThinkingPart()),
        ('"kind":"thinking","text":null,"signature":null,"redacted":null,"index":null,"final":null', ThinkingPart()),
        ('"kind":"text"', TextPart()),
        ('"kind":"document","uri":"s3://x"', DocumentPart(uri="s3://x")),
        ('"kind":"document","uri":"u","text":"","bytes":"","chunks":[]', DocumentPart(uri="u", bytes=b"", chunks=())),
        ('"kind":"citations"', CitationsPart()),
        ('"kind":"citations","citations":[]', CitationsPart(citations=())),
        ('"kind":"tool_use","input":{}', ToolUsePart("{}")),
        ('"kind":"tool_result"', ToolResultPart()),
        ('"kind":"tool_result","content":null', ToolResultPart()),
        ('"kind":"cache_checkpoint"', CacheCheckpointPart()),
    ],
)
def test_an_absent_or_null_field_is_its_zero_value(fields: str, part: Part) -> None:
    assert one_part(f"{{{fields}}}") == part


@pytest.mark.parametrize(
    "fields",
    [
        "null",
        "1",
        '"text"',
        "[]",
        "{}",
        '{"text":"x"}',
        '{"kind":null}',
        '{"kind":1}',
        '{"kind":""}',
        '{"kind":"Text"}',
        '{"kind":"text","kind ":"text"}',
        '{"kind":"text","text":1}',
        '{"kind":"text","text":["x"]}',
        '{"kind":"thinking","final":1}',
        '{"kind":"thinking","final":"true"}',
        '{"kind":"thinking","index":1.0}',
        '{"kind":"thinking","index":1e0}',
        '{"kind":"thinking","index":"1"}',
        '{"kind":"thinking","index":true}',
        '{"kind":"thinking","index":9223372036854775808}',
        '{"kind":"thinking","index":' + "1" * 5000 + "}",
        '{"kind":"thinking","redacted":"A"}',
        '{"kind":"thinking","redacted":"AQ"}',
        '{"kind":"thinking","redacted":"AQ==\\n"}',
        '{"kind":"thinking","redacted":"AQ====="}',
        '{"kind":"thinking","redacted":"A_8="}',
        '{"kind":"thinking","redacted":"é==="}',
        '{"kind":"thinking","redacted":[1]}',
        '{"kind":"image","format":"png","bytes":null}',
        '{"kind":"image","format":"png","bytes":""}',
        '{"kind":"image","format":"","bytes":"iVA="}',
        '{"kind":"image","bytes":"iVA="}',
        '{"kind":"document","name":"n"}',
        '{"kind":"document","text":""}',
        '{"kind":"document","chunks":[]}',
        '{"kind":"document","bytes":"AQ==","chunks":["a"]}',
        '{"kind":"document","chunks":"a"}',
        '{"kind":"document","chunks":[null]}',
        '{"kind":"document","text":"a","cite":0}',
        '{"kind":"citations","citations":{}}',
        '{"kind":"citations","citations":[null]}',
        '{"kind":"citations","citations":[{"Title":"T"}]}',
        '{"kind":"citations","citations":[{"location":[]}]}',
        '{"kind":"citations","citations":[{"location":{"document_line":null}}]}',
        '{"kind":"citations","citations":[{"location":{"document_char":{"Start":1}}}]}',
        '{"kind":"citations","citations":[{"location":{"document_char":{"start":"1"}}}]}',
        '{"kind":"tool_use","id":"u","name":"n","input":null}',
        '{"kind":"tool_use","id":"u","name":"n","input":"{}"}',
        '{"kind":"tool_use","id":1,"name":"n","input":{}}',
        '{"kind":"tool_result","Content":1}',
        '{"kind":"tool_result","is_error":null,"error":null}',
    ],
)
def test_a_part_of_another_shape_is_refused_and_named(fields: str) -> None:
    assert part_refusal(fields).startswith("messages[0].parts[1]")


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "1",
        "{}",
        '"x"',
        "[null]",
        "[[]]",
        "[{}]",
        '[{"role":""}]',
        '[{"role":null}]',
        '[{"role":1}]',
        '[{"parts":[]}]',
        '[{"role":"r","parts":{}}]',
        '[{"role":"r","meta":[]}]',
        '[{"role":"r","meta":"x"}]',
        '[{"role":"r","Meta":null}]',
        '[{"role":"r"},]',
        "[] []",
        "null null",
        "\ufeff[]",
        "[NaN]",
    ],
)
def test_a_payload_of_another_shape_is_refused(payload: str) -> None:
    assert refusal(payload).startswith("messages")


@pytest.mark.parametrize("payload", ["null", " null\n", "[]", " [ ] "])
def test_an_empty_list_may_be_null(payload: str) -> None:
    assert decode_messages(payload.encode()) == ()


def test_any_role_and_no_parts_and_no_meta() -> None:
    for payload in (
        '[{"role":"robot"}]',
        '[{"role":"robot","parts":null,"meta":null}]',
        '[{"role":"robot","parts":[]}]',
    ):
        assert decode_messages(payload.encode()) == (Message("robot"),)
        assert again(payload.encode()) == b'[{"role":"robot","parts":null,"meta":null}]'


def test_a_refusal_keeps_content_private() -> None:
    for fields in (
        '{"kind":"secret"}',
        '{"kind":"text","secret":1}',
        '{"kind":"text","text":{"secret":1}}',
        '{"kind":"image","format":"secret"}',
        '{"kind":"thinking","redacted":"secret!"}',
        '{"kind":"tool_use","input":["secret"]}',
    ):
        assert "secret" not in part_refusal(fields)


def test_stored_bytes_are_the_messages_own_slice() -> None:
    payload = ' [ {"role" : "é","meta":{"n": 1.50}} ,\n{"role":"\\u00e9"}]'.encode()
    first, second = decode_messages(payload)
    assert first.stored == '{"role" : "é","meta":{"n": 1.50}}'.encode()
    assert second.stored == b'{"role":"\\u00e9"}'
    assert first.meta == '{"n": 1.50}'
    assert first.role == second.role == "é"


def test_uninterpreted_json_keeps_digits_keys_order_and_escapes() -> None:
    inner = '{"b": 9007199254740993, "a": 1.50, "a": 1e-7, "s": "\\ud800 \\/ \\u00e9 <&>\\\\\\" x", "n": -0}'
    payload = (
        f'[{{"role":"r","parts":[{{"kind":"tool_use","input":{inner}}},{{"kind":"tool_result","content":{inner}}}],'
        f'"meta":{inner}}}]'
    ).encode()
    (message,) = decode_messages(payload)
    use, result = message.parts
    assert isinstance(use, ToolUsePart)
    assert isinstance(result, ToolResultPart)
    assert use.input == result.content == message.meta == inner
    written = (
        b'{"b":9007199254740993,"a":1.50,"a":1e-7,"s":"\\ud800 \\/ \\u00e9 \\u003c\\u0026\\u003e\\\\\\" x","n":-0}'
    )
    assert again(payload).count(written) == 3
    assert again(again(payload)) == again(payload)


def test_text_is_escaped_as_go_escapes_it() -> None:
    text = '<é>&\u2028\u2029\x00\x1f\b\f\n\r\t"\\/\x7f😀'
    assert (
        encode_messages([Message("r", (TextPart(text),))])
        == (
            '[{"role":"r","parts":[{"kind":"text","text":"\\u003cé\\u003e\\u0026\\u2028\\u2029\\u0000\\u001f\\b\\f\\n\\r\\t'
            '\\"\\\\/\x7f😀"}],"meta":null}]'
        ).encode()
    )


def test_a_lone_surrogate_is_read_and_written_as_its_escape() -> None:
    payload = b'[{"role":"r","parts":[{"kind":"text","text":"\\ud800x"}],"meta":null}]'
    assert again(payload) == payload
    assert one_part('{"kind":"text","text":"\\ud800x"}') == TextPart("\ud800x")


def test_of_equal_keys_the_last_counts() -> None:
    assert one_part('{"kind":"text","text":"a","text":"b"}') == TextPart("b")
    assert one_part('{"kind":"nope","text":"a","kind":"text"}') == TextPart("a")
    assert one_part('{"kind":"text","text":"a","text":null}') == TextPart("")


def test_depth_is_bounded_as_in_any_payload() -> None:
    def payload(levels: int) -> bytes:
        return b'[{"role":"r","parts":[{"kind":"tool_result","content":' + b"[" * levels + b"]" * levels + b"}]}]"

    assert decode_messages(payload(124))
    with pytest.raises(MessagesError, match="128"):
        decode_messages(payload(125))


texts = st.text(max_size=8)
integers = st.integers(-(2**63), 2**63 - 1)
# Go escapes these three, so a text that is to come back as it was has none.
keys = st.text(st.characters(exclude_characters="<>&", exclude_categories=["Cs"]), max_size=8)
json_texts = (st.none() | st.integers() | keys | st.lists(st.dictionaries(keys, st.floats(allow_nan=False)))).map(
    lambda value: json.dumps(value, separators=(",", ":")).replace("Infinity", "1e999")
)
json_objects = st.dictionaries(keys, st.integers()).map(lambda value: json.dumps(value, separators=(",", ":")))
ranges = st.none() | st.builds(DocumentRange, integers, integers, integers)
citations = st.builds(
    Citation, texts, texts, st.builds(CitationLocation, ranges, ranges, ranges), st.none() | st.lists(texts).map(tuple)
)
parts = st.one_of(
    st.builds(ThinkingPart, texts, texts, st.none() | st.binary(), integers, final=st.booleans()),
    st.builds(TextPart, texts),
    st.builds(ImagePart, texts.filter(bool), st.binary(min_size=1)),
    st.builds(DocumentPart, texts, texts, uri=texts.filter(bool), context=texts, cite=st.booleans()),
    st.builds(DocumentPart, texts, texts, chunks=st.lists(texts, min_size=1).map(tuple)),
    st.builds(CitationsPart, texts, st.none() | st.lists(citations, max_size=3).map(tuple)),
    st.builds(ToolUsePart, json_objects, texts, texts, texts),
    st.builds(ToolResultPart, texts, json_texts, is_error=st.booleans()),
    st.just(CacheCheckpointPart()),
)
messages = st.builds(Message, texts.filter(bool), st.lists(parts, max_size=4).map(tuple), st.none() | json_objects)


@given(st.lists(messages, max_size=3))
@settings(max_examples=50)
def test_what_is_written_reads_back(written: list[Message]) -> None:
    payload = encode_messages(written)
    read = decode_messages(payload)
    assert [*read] == written
    assert encode_messages(read) == payload
    assert b",".join(message.stored for message in read) == payload[1:-1]
