"""What is decided on consumers, on rows as they may have become since a caller looked."""

from __future__ import annotations

from typing import cast

from engine.decide.consumers import CommitConsumer, decide_consumer
from engine.decide.state import ConsumerState, Decided, State
from projections.layout import number_bytes
from projections.rows import ConsumerRow
from schemas.refusals import Refusal


def places(*positions: int) -> bytes:
    return b"".join(map(number_bytes, positions))


class Rows:
    """A state with one consumer in it."""

    def __init__(self, row: ConsumerRow | None) -> None:
        self._row = row

    def consumer(self, name: str) -> ConsumerRow | None:
        assert name == "c"
        return self._row


def commit(row: ConsumerRow | None, place: bytes, generation: str = "g") -> Decided | Refusal:
    found = decide_consumer(cast(State, Rows(row)), CommitConsumer("c", generation, place))
    assert isinstance(found, Decided | Refusal)
    return found


def test_of_two_places_the_further_position_counts_in_each_partition() -> None:
    row = ConsumerRow(generation="g", scope_kind="all", start_at="start", place=places(5, 300, 0))
    for place, furthest in (
        (places(7, 2, 0), places(7, 300, 0)),
        (places(4, 301, 0), places(5, 301, 0)),
        (places(256, 255, 1), places(256, 300, 1)),
    ):
        decided = commit(row, place)
        assert isinstance(decided, Decided)
        assert [draft.place for draft in decided.drafts] == [furthest]
        assert decided.answer == ConsumerState("c", row.moved_to(furthest))
    for place in (places(5, 300, 0), places(0, 0, 0), places(5, 2, 0)):
        assert commit(row, place) == Decided(ConsumerState("c", row))


def test_a_first_commit_counts_as_it_is() -> None:
    decided = commit(ConsumerRow(generation="g", scope_kind="all", start_at="start"), places(0, 0))
    assert isinstance(decided, Decided)
    assert [draft.place for draft in decided.drafts] == [places(0, 0)]


def test_a_consumer_that_was_made_again_since_takes_no_commit_of_the_former() -> None:
    row = ConsumerRow(generation="other", scope_kind="all", start_at="start")
    found = commit(row, places(1))
    assert isinstance(found, Refusal)
    assert found.code == "invalid_cursor"
    for gone in (None, ConsumerRow(deleted=True)):
        found = commit(gone, places(1))
        assert isinstance(found, Refusal)
        assert found.code == "consumer_not_found"
