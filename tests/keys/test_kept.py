"""The fold of the keys topic."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from engine.kafka.batches import KafkaRecord
from engine.keys import topic
from engine.keys.kept import Kept, tombstone_grain_ms

A, B = bytes(16), b"\1" * 16
OLD, NEW = b"o" * 60, b"n" * 60
SEGMENT_MS = 10_000

Pair = tuple[bytes, bytes | None]


def records(pairs: Sequence[Pair], time_ms: int = 0) -> list[KafkaRecord]:
    return [KafkaRecord(offset, key, value, time_ms) for offset, (key, value) in enumerate(pairs)]


def folded(*pairs: Pair) -> Kept:
    kept = Kept(SEGMENT_MS)
    kept.fold(records(pairs))
    return kept


def compacted(pairs: Sequence[Pair]) -> list[Pair]:
    """What Kafka leaves: of each record key the last, in the order of the topic."""
    last = {key: offset for offset, (key, _) in enumerate(pairs)}
    return [pair for offset, pair in enumerate(pairs) if last[pair[0]] == offset]


def test_keys_are_found_by_id_and_owner() -> None:
    kept = folded(topic.key_kept("s", A, OLD), topic.key_kept("s", B, NEW))
    assert (kept.key(A), kept.key(B), kept.keys_of("s")) == (("s", OLD), ("s", NEW), (A, B))
    assert kept.key(b"\2" * 16) is None
    assert kept.keys_of("t") == ()


def test_a_deleted_key_never_comes_back_and_its_tombstone_is_written_again_once() -> None:
    put, gone = topic.key_kept("s", A, OLD), topic.key_gone("s", A)
    kept = folded(put)
    effects = kept.fold(records([gone]))
    assert effects.deleted == [A]
    assert kept.repairs() == []
    assert kept.fold(records([put])).deleted == []
    assert (kept.key(A), kept.keys_of("s"), kept.repairs()) == (None, (), [gone])
    kept.fold(records([put]))
    assert kept.repairs() == [gone]
    kept.fold(records([gone]))
    assert kept.repairs() == []


def test_a_tombstone_sticks_to_a_key_that_was_never_read() -> None:
    kept = folded(topic.key_gone("s", A), topic.key_kept("s", A, OLD))
    assert kept.key(A) is None
    assert kept.is_dead(A)


def test_deleting_one_key_leaves_the_owners_others() -> None:
    kept = folded(topic.key_kept("s", A, OLD), topic.key_kept("s", B, NEW), topic.key_gone("s", A))
    assert (kept.key(A), kept.key(B), kept.keys_of("s")) == (None, ("s", NEW), (B,))


def test_the_first_copy_of_a_key_is_the_key() -> None:
    kept = folded(topic.key_kept("s", A, OLD), topic.key_kept("t", A, NEW))
    assert (kept.key(A), kept.keys_of("s"), kept.keys_of("t")) == (("s", OLD), (A,), ())


def test_an_older_value_is_void_and_the_newer_one_is_written_again() -> None:
    newer = topic.value_kept("n", 2, b"new")
    kept = folded(newer, topic.value_kept("n", 1, b"old"))
    assert kept.value("n") == (2, b"new")
    assert kept.repairs() == [newer]
    kept.fold(records([newer]))
    assert kept.repairs() == []
    kept.fold(records([topic.value_kept("n", 2, b"other")]))
    assert kept.value("n") == (2, b"other")


def test_the_first_that_was_proposed_is_agreed_on() -> None:
    kept = folded(topic.proposed("n", B, b"first"), topic.proposed("n", A, b"second"))
    assert kept.agreed("n") == b"first"


def test_what_is_unreadable_is_told_and_passed_over() -> None:
    kept = Kept(SEGMENT_MS)
    effects = kept.fold(records([(b"value\0n", None), topic.key_kept("s", A, OLD)]))
    assert len(effects.unreadable) == 1
    assert "offset 0" in effects.unreadable[0]
    assert kept.key(A) == ("s", OLD)


@pytest.mark.parametrize("seed", range(200))
def test_compaction_changes_nothing_once_all_repairs_are_written(seed: int) -> None:
    rng = random.Random(seed)
    ids = [bytes([number]) * 16 for number in range(6)]
    owners = {key_id: f"s{number % 3}" for number, key_id in enumerate(ids)}
    written: list[Pair] = []
    kept = Kept(SEGMENT_MS)
    for step in range(60):
        key_id, name = rng.choice(ids), rng.choice("ab")
        pairs: list[Pair] = [
            topic.key_kept(owners[key_id], key_id, key_id + bytes(44)),
            topic.key_gone(owners[key_id], key_id),
            topic.value_kept(name, rng.randrange(5), bytes([step])),
            topic.proposed(name, rng.randbytes(16), bytes([step])),
        ]
        written.append(rng.choices(pairs, (5, 1, 2, 1))[0])
        kept.fold(records(written[-1:]))
    assert seed or kept.repairs()
    for repair in kept.repairs():
        written.append(repair)
        kept.fold(records([repair]))
    assert kept.repairs() == []
    again = folded(*compacted(written))
    for key_id in ids:
        assert again.key(key_id) == kept.key(key_id)
    for owner in owners.values():
        # Their order is that of the last copies.
        assert sorted(again.keys_of(owner)) == sorted(kept.keys_of(owner))
    for name in "ab":
        assert (again.value(name), again.agreed(name)) == (kept.value(name), kept.agreed(name))


def wait_ms(kept: Kept) -> int | None:
    return kept.filler_wait_ms


def test_a_filler_is_needed_when_no_record_is_late_enough_to_end_a_tombstones_segment() -> None:
    kept = Kept(SEGMENT_MS)
    due = SEGMENT_MS + tombstone_grain_ms + 1
    kept.fold(records([topic.key_kept("s", A, OLD)], 1_000))
    assert wait_ms(kept) is None
    kept.fold(records([topic.key_gone("s", A)], 2_000))
    assert wait_ms(kept) == due
    # Near to the first, so it is waited for with it.
    kept.fold(records([topic.key_gone("s", A)], 2_000 + tombstone_grain_ms - 1))
    kept.fold(records([topic.key_gone("s", B)], 5_000))
    assert wait_ms(kept) == due - 3_000
    kept.fold(records([topic.filler()], 2_000 + due - 1))
    assert wait_ms(kept) == 1
    kept.fold(records([topic.filler()], 2_000 + due))
    assert wait_ms(kept) == 3_000
    kept.fold(records([topic.key_kept("s", b"\2" * 16, NEW)], 5_000 + due))
    assert wait_ms(kept) is None
