"""The pure parts of a move: pieces, marks, fillers, and how far it has come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.logs.interface import LogEntry
from engine.migration.errors import MigrationRefused
from engine.migration.fillers import filler
from engine.migration.marks import Mark, Moving, read_mark, why_not_to_be_opened
from engine.migration.pieces import Gathering, Piece, piece_bytes_max, piece_records_max
from engine.migration.telling import Shares
from projections.position_rule import PositionRule
from tests.migration.histories import History

LARGE = 400_000
MINE, OTHER = "11" * 16, "22" * 16


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 900), st.sampled_from([1, 600, LARGE])), max_size=30))
def test_pieces_hold_every_command_whole_in_order_and_within_bounds(commands: list[tuple[int, int, int]]) -> None:
    gathering, pieces, position = Gathering(), list[Piece](), 0
    written: list[tuple[int, int]] = []
    for hole, records, size in commands:
        position += hole
        count = min(records, 4) if size == LARGE else records
        pieces += gathering.add(position, [(None, bytes(size))] * count)
        written.append((position, position + count))
        position += count
    pieces += gathering.rest()
    assert gathering.rest() == []
    for begin, end in written:
        assert sum(piece.position <= begin and end <= piece.end for piece in pieces) == 1
    assert sum(len(piece.records) for piece in pieces) == sum(end - begin for begin, end in written)
    assert [piece.position for piece in pieces] == sorted({piece.position for piece in pieces})
    for piece in pieces:
        inside = [one for one in written if piece.position <= one[0] < piece.end]
        assert piece.bytes == sum(len(data) for _, data in piece.records)
        assert len(inside) == 1 or (piece.bytes <= piece_bytes_max and len(piece.records) <= piece_records_max)


@pytest.mark.parametrize("position", [0, 5])
def test_a_filler_counts_nowhere_and_hides_nothing(position: int) -> None:
    history = History()
    history.batch(*[1] * position)
    follows = history.end + 1
    rule = PositionRule(0, voids_legal=True)
    rule.feed([*history.entries, LogEntry(history.end, filler(MINE))])
    assert (rule.end, rule.void_records, rule.applied().batch_end) == (follows, 1, position or -1)
    assert filler(MINE) == filler(MINE) != filler(OTHER)


@pytest.mark.parametrize("moving", Moving)
def test_a_mark_keeps_its_own_store_shut_and_no_other(moving: Moving) -> None:
    value = Mark(moving, MINE, made_log=True, ticket="t").encode()
    assert read_mark(value) == Mark(moving, MINE, made_log=True, ticket="t")
    assert why_not_to_be_opened(value, bytes.fromhex(MINE))
    assert why_not_to_be_opened(value, None)
    assert not why_not_to_be_opened(value, bytes.fromhex(OTHER))
    assert not why_not_to_be_opened(b"", bytes.fromhex(MINE))
    assert not why_not_to_be_opened(None, None)


@pytest.mark.parametrize("value", [b"x", b"[]", b"{}", b'{"moving": "sideways", "store_id": "", "ticket": ""}'])
def test_a_mark_that_cannot_be_read_is_no_mark_that_is_absent(value: bytes) -> None:
    with pytest.raises(MigrationRefused, match="cannot be read"):
        read_mark(value)
    assert why_not_to_be_opened(value, bytes.fromhex(MINE))


def test_how_far_it_has_come_goes_from_partition_to_partition() -> None:
    told: list[tuple[str, float]] = []
    shares = Shares(lambda what, share: told.append((what, share)), "copying", [10, 0, 30])
    shares.of(0)(5)
    shares.of(1)(0)
    shares.of(2)(30)
    assert told == [
        ("copying, partition 0 of 3", 0.125),
        ("copying, partition 1 of 3", 0.25),
        ("copying, partition 2 of 3", 1.0),
    ]
