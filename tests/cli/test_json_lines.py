"""JSON is printed in lines, token by token as it came."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bin.cli.json_lines import escaped, indented
from schemas.json_text import compact


@pytest.mark.parametrize(
    "text",
    [
        "1.10",
        "123456789012345678901234567890",
        '"\\u0000\\ud800 [,] {:} \\\\\\" x"',
        "[ ]",
        "{\n}",
        '[1e-7 , -0,{"a":1.50, "a":[[],{} ]}, null]',
    ],
)
def test_every_token_is_printed_as_it_came(text: str) -> None:
    assert compact(indented(text)) == compact(text)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(values)
def test_lines_are_those_of_the_standard_library(value: object) -> None:
    assert indented(json.dumps(value)) == json.dumps(value, indent=2)


@given(st.text(st.characters()))
def test_what_cannot_be_printed_is_escaped(text: str) -> None:
    assert escaped(json.dumps(text, ensure_ascii=False), ascii_only=True).isascii()
    for ascii_only in (True, False):
        printed = escaped(json.dumps(text, ensure_ascii=False), ascii_only=ascii_only)
        assert json.loads(printed.encode()) == text
