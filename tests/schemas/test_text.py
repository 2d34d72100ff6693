"""Names and labels are what the rules say, to the byte."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.text import (
    check_event_key,
    check_id,
    check_labels,
    check_reason,
    check_turn_id,
    check_type,
    utf8_size,
)

NAMES = [check_event_key, check_type, check_turn_id]


def id_problem(value: str) -> str | None:
    return check_id(value, "run_id")


def test_an_id_is_512_bytes_at_most_counted_in_utf8() -> None:
    assert id_problem("a" * 512) is None
    assert id_problem("é" * 256) is None
    assert id_problem("😀" * 128) is None
    for value in ("a" * 513, "é" * 256 + "a", "😀" * 128 + "a", "é" * 512):
        problem = id_problem(value)
        assert problem is not None
        assert "run_id" in problem
        assert "512 bytes" in problem
        assert f"it has {len(value.encode())} bytes" in problem


def test_an_id_is_not_empty() -> None:
    assert id_problem("") == "run_id must be 1 to 512 bytes of UTF-8 without control characters: it is empty"


@pytest.mark.parametrize("value", [".", ".."])
def test_an_id_is_no_path_segment_of_dots_but_other_names_may_be(value: str) -> None:
    problem = id_problem(value)
    assert problem is not None
    assert "512" in problem
    assert check_turn_id(value) is not None
    assert check_event_key(value) is None
    assert check_type(value) is None
    assert check_reason(value) is None
    assert id_problem("...") is None
    assert id_problem("a/../b") is None


def test_exactly_the_category_cc_is_refused() -> None:
    for code in [*range(0x300), 0x200B, 0x2028, 0xFFFE, 0xFFFF, 0x10FFFF]:
        value = f"a{chr(code)}b"
        assert (id_problem(value) is not None) is (unicodedata.category(chr(code)) == "Cc"), hex(code)
    assert "control character" in (id_problem("a\nb") or "")
    assert id_problem("a\n") is not None


@pytest.mark.parametrize("value", ["\ud800", "a\udfff", "\udc00\ud800"])
def test_a_lone_surrogate_is_refused(value: str) -> None:
    assert "lone surrogate" in (id_problem(value) or "")
    assert check_reason(value) is not None


def test_a_turn_id_may_be_empty() -> None:
    assert check_turn_id("") is None
    assert check_turn_id("a" * 513) is not None


def test_a_type_has_no_comma_and_is_not_reserved() -> None:
    assert check_type("tool_call_scheduled") is None
    assert "commas" in (check_type("a,b") or "")
    assert check_event_key("a,b") is None
    assert id_problem("a,b") is None
    for reserved in ("run_stream_end", "session_purged"):
        assert reserved in (check_type(reserved) or "")
        assert check_event_key(reserved) is None
    assert check_type("") is not None


def test_a_reason_follows_types_but_may_be_longer_and_reserved_names_are_not_its_matter() -> None:
    assert check_reason("r" * 1024) is None
    assert "1024 bytes" in (check_reason("r" * 1025) or "")
    assert check_reason("session_purged") is None
    assert check_reason("a,b") is not None
    assert check_reason("a\tb") is not None
    assert check_reason("") is not None


def test_labels_are_64_at_most() -> None:
    assert check_labels({}) is None
    assert check_labels({str(n): "v" for n in range(64)}) is None
    problem = check_labels({str(n): "v" for n in range(65)})
    assert problem == "labels must be at most 64, not 65"


def test_a_label_is_1024_bytes_at_most_key_and_value_together() -> None:
    assert check_labels({"k" * 512: "v" * 512}) is None
    assert "1024 bytes together, not 1025" in (check_labels({"k" * 512: "v" * 513}) or "")
    assert check_labels({"k": "é" * 511}) is None
    assert check_labels({"k": "é" * 512}) is not None
    assert "512" in (check_labels({"k" * 513: ""}) or "")


def test_a_label_key_is_a_name_and_a_value_any_text() -> None:
    assert check_labels({".": "", "..": "\x00\n,\x7f", "k,k": "\u2028"}) is None
    assert check_labels({"": "v"}) is not None
    assert check_labels({"a\nb": "v"}) is not None
    assert check_labels({"\ud800": "v"}) is not None
    assert "lone surrogates" in (check_labels({"k": "\ud800"}) or "")


@pytest.mark.parametrize(
    "labels", [{"secret\n": "v"}, {"secret" * 100: "v"}, {"k": "secret" * 200}, {"secret": "\ud800"}]
)
def test_messages_about_labels_keep_them_private(labels: dict[str, str]) -> None:
    problem = check_labels(labels, "run.labels")
    assert problem is not None
    assert "secret" not in problem
    assert "run.labels" in problem


@given(st.text(st.characters(), max_size=700))
def test_an_id_is_fine_exactly_when_the_words_of_the_rule_say_so(value: str) -> None:
    categories = {unicodedata.category(character) for character in value}
    fine = (
        categories.isdisjoint({"Cc", "Cs"})
        and 1 <= len(value.encode(errors="replace")) <= 512
        and value not in {".", ".."}
    )
    assert (id_problem(value) is None) is fine


@given(st.text())
def test_utf8_size_is_the_encoded_length(value: str) -> None:
    assert utf8_size(value) == len(value.encode())
