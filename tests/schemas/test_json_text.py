"""JSON text is taken and refused by its grammar, whatever its size and its reader's stack."""

from __future__ import annotations

import json
import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import json_text
from schemas.json_text import (
    JsonError,
    check_json_text,
    compact,
    elements,
    load_object_no_duplicates,
    load_strict,
    members,
    read_string,
)

GOOD = [
    b"null",
    b"true",
    b" false\r\n\t",
    b"0",
    b"-0",
    b"-1.5e+10",
    b"1E400",
    b"1e-999999",
    b"9" * 5000,
    b"0." + b"1" * 5000,
    b'""',
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\\ud83d\\ude00"',
    b'"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000"',
    b'"\x7f\xc2\x80\xf4\x8f\xbf\xbf"',
    b'"\xe2\x80\xa8"',
    b'{"a":1,"a":2}',
    b'{"":0}',
    b"[]",
    b"[ ]",
    b"{ }",
    b'[1, "a" ,{"b" : [null]}]',
    b'"[[[[{{{{"',
]
BAD = [
    b"",
    b" ",
    b"nul",
    b"True",
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"[NaN]",
    b"-",
    b"+1",
    b"01",
    b"-01",
    b"1.",
    b".5",
    b"1e",
    b"1e+",
    b"0x1",
    b"1_0",
    b"1 2",
    b"[] []",
    b"[1,]",
    b"[,1]",
    b"[1 2]",
    b"[",
    b"]",
    b"[1}",
    b'{"a"}',
    b'{"a":}',
    b'{"a":1,}',
    b"{a:1}",
    b"{1:1}",
    b"{'a':1}",
    b'"',
    b'"\\',
    b'"\\"',
    b'"a\nb"',
    b'"\x00"',
    b'"\x1f"',
    b'"\\x41"',
    b'"\\u12g4"',
    b'"\\u123"',
    b'"\\u 123"',
    b'"\\U0041"',
    b"\xef\xbb\xbf1",
    b"\xff",
    b'"\xed\xa0\x80"',
    b'"\xc0\xaf"',
    b'"\xf4\x90\x80\x80"',
    b"\xc2\xa01",
    b"\x0b1",
    b"1\x00",
    b"//c\n1",
    "٣".encode(),
    "[１]".encode(),
    b"\xff\xfe1\x00",
]

near_json = st.text(st.sampled_from('[]{},:"\\ \n01e.-tfnu'), max_size=30)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize("data", GOOD, ids=repr)
def test_json_text_is_taken(data: bytes) -> None:
    assert check_json_text(data) is None


@pytest.mark.parametrize("data", BAD, ids=repr)
def test_other_text_is_refused(data: bytes) -> None:
    assert check_json_text(data)


def test_messages_tell_what_is_wrong_and_no_content() -> None:
    assert "byte order mark" in (check_json_text(b"\xef\xbb\xbf1") or "")
    assert check_json_text(b'"ab\xff"') == "not valid UTF-8 at byte 3"
    assert "NaN" in (check_json_text(b"NaN") or "")
    assert "at character 10" in (check_json_text(b'{"secret" "secret"}') or "")
    assert "secret" not in (check_json_text(b'{"secret" "secret"}') or "")


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
def test_128_deep_is_the_most(opening: bytes, closing: bytes) -> None:
    levels = len(opening.strip(b'"a:'))
    fits = 128 // levels
    assert check_json_text(opening * fits + b"0" + closing * fits) is None
    assert (
        check_json_text(b"[" + opening * fits + b"0" + closing * fits + b"]")
        == "nested 129 deep, where 128 is the most"
    )


def test_a_backslash_at_the_end_of_a_string_hides_no_depth() -> None:
    # Read as an escaped quote, it left the string open, and what followed counted as text: any depth passed.
    for text in (b'"\\\\"', b'"\\\\\\\\"', b'"\\\\\\"[\\\\"'):
        assert check_json_text(text) is None
        assert check_json_text(b"[" + text + b"," + b"[" * 127 + b"]" * 127 + b"]") is None
        assert "nested 129 deep" in (check_json_text(b"[" + text + b"," + b"[" * 128 + b"]" * 128 + b"]") or "")


def test_brackets_in_strings_and_side_by_side_are_not_depth() -> None:
    assert check_json_text(b'["' + b"[{" * 1000 + b'"]') is None
    assert check_json_text(b'["\\"' + b"[{" * 1000 + b'\\\\"]') is None
    assert check_json_text(b"[" + b",".join([b"[]"] * 1000) + b"]") is None
    assert check_json_text(b"[" * 64 + b",".join([b"[]" * 1] * 500) + b"]" * 64) is None


@pytest.mark.parametrize(
    "data",
    [b"[" * 4_000_000, b'{"a":' * 800_000, b'"' + b'\\"' * 2_000_000, b"[" * 200 + b'"' + b'\\"' * 2_000_000],
    ids=["arrays", "objects", "open string", "open string after brackets"],
)
def test_hostile_text_is_refused_in_passing(data: bytes) -> None:
    assert check_json_text(data)
    with pytest.raises(JsonError):
        load_strict(data)


def test_the_depth_of_the_callers_stack_decides_nothing() -> None:
    # With the standard library alone, 128 levels in a caller 900 frames deep were taken for no JSON.
    def frames() -> int:
        frame, count = sys._getframe(), 0
        while frame.f_back is not None:
            frame, count = frame.f_back, count + 1
        return count

    def dive(levels: int, data: bytes) -> str | None:
        return check_json_text(data) if levels == 0 else dive(levels - 1, data)

    levels = sys.getrecursionlimit() - frames() - 60
    deep = b'[{"a":' * 64 + b"1e5" + b"}]" * 64
    assert dive(levels, deep) is None
    assert dive(levels, deep.replace(b"1e5", b"1e")) == "not JSON"
    with pytest.raises(RecursionError):
        dive(levels + 60, deep)


@given(near_json)
def test_both_ways_to_check_agree(text: str) -> None:
    try:
        json.loads(text, parse_constant=json_text._refuse_constant)
        fine = True
    except ValueError:
        fine = False
    assert (check_json_text(text.encode()) is None) is fine
    assert json_text._is_json_by_folding(text) is fine


@pytest.mark.parametrize("data", GOOD, ids=repr)
def test_folding_takes_json_text(data: bytes) -> None:
    assert json_text._is_json_by_folding(data.decode())


@pytest.mark.parametrize("data", [data for data in BAD if not data.startswith(b"\xef\xbb\xbf")], ids=repr)
def test_folding_refuses_other_text(data: bytes) -> None:
    assert not json_text._is_json_by_folding(data.decode(errors="replace").replace('"�', "�"))


@given(json_values, st.sampled_from([None, 1]), st.booleans())
@settings(max_examples=50)
def test_any_written_value_is_json_text_and_reads_back(value: object, indent: int | None, plain: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=plain)
    assert check_json_text(text.encode()) is None
    assert load_strict(text) == value
    assert load_strict(text.encode()) == value
    assert json.loads(compact(text)) == value
    assert compact(text) == json.dumps(value, ensure_ascii=plain, separators=(",", ":"))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"[1, -0, 9007199254740993]", [1, 0, 9007199254740993]),
        (b"1.0", 1.0),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"\\\\ud800"', "\\ud800"),
        (b'{"payload":"\\"\\\\ud800\\""}', {"payload": '"\\ud800"'}),
        (b"9" * 4300, int("9" * 4300)),
        (b"9" * 4301, math.inf),
        (b"-1e400", -math.inf),
    ],
)
def test_strict_reading_keeps_values(data: bytes, value: object) -> None:
    read = load_strict(data)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":1}',
        b'[{"b":{"a":1,"\\u0061":1}}]',
        b'"\\ud800"',
        b'{"\\ud800":1}',
        b'[{"a":["\\uDFFF"]}]',
        b'"\\ud83d\\ud83d\\ude00"',
        b"NaN",
        b"[-Infinity]",
        b"\xef\xbb\xbf{}",
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"{} {}",
        b"",
        b"[" * 100_000,
    ],
    ids=lambda data: repr(data[:20]),
)
def test_strict_reading_refuses(data: bytes) -> None:
    with pytest.raises(JsonError):
        load_strict(data)


def test_strict_reading_of_text_refuses_what_bytes_cannot_hold() -> None:
    for text in ('"\ud800"', "\ufeff{}", '{"a":1,"a":2}'):
        with pytest.raises(JsonError):
            load_strict(text)


def test_a_refusal_keeps_keys_private() -> None:
    with pytest.raises(JsonError) as refused:
        load_strict(b'{"secret":1,"secret":2}')
    assert "secret" not in str(refused.value)


def test_one_object_without_equal_keys() -> None:
    assert load_object_no_duplicates(b' {"a":1,"b":1.0,"c":"\\ud800"} ') == {"a": 1, "b": 1.0, "c": "\ud800"}
    assert isinstance(load_object_no_duplicates(b'{"b":1.0}')["b"], float)
    assert isinstance(load_object_no_duplicates(b'{"b":1e0}')["b"], float)
    for data in (
        b"null",
        b"[]",
        b"1",
        b'{"a":1,"a":1}',
        b"{}{}",
        b"\xef\xbb\xbf{}",
        b'{"a":"\xff"}',
        b"",
        b'{"a":NaN}',
    ):
        with pytest.raises(JsonError):
            load_object_no_duplicates(data)


@given(st.lists(json_values, max_size=5), st.sampled_from([None, 1]))
@settings(max_examples=30)
def test_elements_are_the_slices_of_an_array(values: list[object], indent: int | None) -> None:
    text = json.dumps(values, indent=indent)
    assert [json.loads(text[start:end]) for start, end in elements(text, 0)] == values
    assert all(text[start:end].strip() == text[start:end] for start, end in elements(text, 0))


@given(st.dictionaries(st.text(), json_values, max_size=5), st.sampled_from([None, 1]))
@settings(max_examples=30)
def test_members_are_the_slices_of_an_object(values: dict[str, object], indent: int | None) -> None:
    text = json.dumps(values, indent=indent)
    assert {key: json.loads(text[start:end]) for key, start, end in members(text, 0)} == values


def test_members_keep_equal_keys_and_digits() -> None:
    text = ' { "a" : 1.50 , "a":9007199254740993}'
    assert [(key, text[start:end]) for key, start, end in members(text, 1)] == [
        ("a", "1.50"),
        ("a", "9007199254740993"),
    ]
    assert read_string('["\\ud800x"]', 1) == "\ud800x"


def test_compact_keeps_every_string_as_it_is() -> None:
    assert compact(' { "a b" : [ 1.50 , "\\" , \\\\" ] }\r\n') == '{"a b":[1.50,"\\" , \\\\"]}'
