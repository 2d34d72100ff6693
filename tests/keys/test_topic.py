"""The form of the keys topic's records."""

from __future__ import annotations

import pytest

from engine.keys import topic
from engine.keys.topic import FormError, KeyGone, KeyKept, Other, Proposed, ValueKept, parse

KEY_ID = bytes(range(16))
WRAPPED = bytes(60)


def test_what_is_written_is_read() -> None:
    assert parse(*topic.key_kept("session:ä 1", KEY_ID, WRAPPED)) == KeyKept("session:ä 1", KEY_ID, WRAPPED)
    assert parse(*topic.key_kept("session:1", bytes(16), WRAPPED)) == KeyKept("session:1", bytes(16), WRAPPED)
    assert parse(*topic.key_gone("tree:1", KEY_ID)) == KeyGone("tree:1", KEY_ID)
    assert parse(*topic.value_kept("a name", 7, b"wrapped")) == ValueKept("a name", 7, b"wrapped")
    assert parse(*topic.proposed("a name", KEY_ID, b"wrapped")) == Proposed("a name", b"wrapped")
    assert parse(*topic.filler()) == Other()


def test_the_bytes_are_those_that_other_programs_were_told() -> None:
    assert topic.key_kept("session:1", KEY_ID, WRAPPED) == (b"key\0session:1\0" + KEY_ID, WRAPPED)
    assert topic.key_gone("session:1", KEY_ID) == (b"key\0session:1\0" + KEY_ID, None)
    assert topic.value_kept("n", 258, b"w") == (b"value\0n", b"\0\0\0\0\0\0\1\2w")
    assert topic.proposed("n", KEY_ID, b"w") == (b"agreed\0n\0" + KEY_ID, b"w")
    assert topic.filler() == (b"filler\0", b"")
    assert topic.value_associated("n", 1) == b"value\0n\0\0\0\0\0\0\0\0\1"
    assert topic.agreed_associated("n") == b"agreed\0n"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"key\0session:1\0" + KEY_ID, WRAPPED[1:]),
        (b"key\0session:1\0" + KEY_ID, b""),
        (b"key\0session:1" + KEY_ID, WRAPPED),
        (b"key\0\0" + KEY_ID, WRAPPED),
        (b"key\0" + KEY_ID, WRAPPED),
        (b"key\0\xff\0" + KEY_ID, WRAPPED),
        (b"value\0n", None),
        (b"value\0n", b"1234567"),
        (b"agreed\0n", b"w"),
    ],
)
def test_what_is_of_no_known_form_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(FormError) as caught:
        parse(key, value)
    assert not value or repr(value) not in str(caught.value)


def test_a_later_versions_kind_is_passed_over() -> None:
    assert parse(b"key2\0session:1\0" + KEY_ID, WRAPPED) == Other()
    assert parse(b"agreed\0n\0" + KEY_ID, None) == Other()


def test_names_without_end_are_not_written() -> None:
    for name in ("", "a\0b"):
        with pytest.raises(ValueError, match="name"):
            topic.value_kept(name, 1, b"")
    with pytest.raises(ValueError, match="60"):
        topic.key_kept("session:1", KEY_ID, WRAPPED + b"1")
