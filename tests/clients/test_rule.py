"""The reader's position rule is the store's: the same records count, on whatever a topic holds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.python_reader.errors import HistoryBroken, LogCut
from clients.python_reader.rule import Bookmark, Rule
from engine.keys import Sealer, pack
from projections import position_rule
from projections.position_rule import PositionRule
from schemas.log_record import GENESIS, Kind, LogRecord, SealedContent, associated_data, encode, encode_content


@dataclass(frozen=True)
class Entry:
    """An encoded record where the log holds it."""

    offset: int
    data: bytes


class Writer:
    """Makes batches as a writer does: positions from where it has applied, `prev` over the batch before."""

    def __init__(self, position: int = 0, prev: bytes = GENESIS) -> None:
        self.position = position
        self.prev = prev
        self.commands = 0

    def batch(self, lengths: Sequence[int], appended_at: int = 1000) -> list[bytes]:
        """One batch of commands with these numbers of records; `landed` says whether it counts."""
        data: list[bytes] = []
        for length in lengths:
            self.commands += 1
            data += [
                encode(
                    LogRecord(
                        position=self.position + len(data) + index,
                        prev=b"" if data or index else self.prev,
                        last=index == length - 1,
                        command_id=self.commands.to_bytes(16, "big"),
                        appended_at=appended_at + self.commands,
                        kind=Kind.BARRIER.value,
                    )
                )
                for index in range(length)
            ]
        return data

    def sealed(self, sealer: Sealer, kind: str, session_id: str, key_id: bytes) -> bytes:
        """One batch of one record, which counts; a record of a run has `{}` as its payload."""
        self.commands += 1
        record = LogRecord(
            position=self.position,
            prev=self.prev,
            command_id=self.commands.to_bytes(16, "big"),
            appended_at=1000 + self.commands,
            kind=kind,
            session_id=session_id,
            key_id=key_id if kind == "record" else b"",
        )
        if record.key_id:
            value = sealer.seal(key_id, associated_data(record), pack(encode_content(SealedContent(payload=b"{}"))))
            record = msgspec.structs.replace(record, sealed=value)
        data = encode(record)
        self.landed([data])
        return data

    def landed(self, data: Sequence[bytes]) -> None:
        """Take a batch as counted."""
        self.position += len(data)
        self.prev = hashlib.sha256(b"".join(data)).digest()


def counted(rule: Rule, entries: Sequence[Entry]) -> list[int]:
    return [record.position for entry in entries for record in rule.take(entry.offset, entry.data)]


def counted_by_store(entries: Sequence[Entry]) -> list[int]:
    rule = PositionRule(0, voids_legal=True)
    return [record.position for command in rule.feed(entries) for record in command.records]


LENGTHS = st.lists(st.integers(1, 3), min_size=1, max_size=3)
EVENTS = st.lists(st.tuples(st.sampled_from(["ours", "twice", "late", "foreign", "hole"]), LENGTHS), max_size=12)


def history(events: Sequence[tuple[str, Sequence[int]]]) -> list[Entry]:
    """A partition on which batches land, land twice, land late, follow another history, or after a hole."""
    writer, entries, end = Writer(), list[Entry](), 0
    for what, lengths in events:
        if what == "hole":
            end += 2
        writer.position = end
        if what == "foreign":
            data = Writer(end, hashlib.sha256(b"another history").digest()).batch(lengths)
        elif what == "late":
            data = Writer(max(end - 1, 0) if end else 5, writer.prev).batch(lengths)
        else:
            data = writer.batch(lengths)
            writer.landed(data)
        for _ in range(2 if what == "twice" else 1):
            entries += [Entry(end + index, item) for index, item in enumerate(data)]
            end += len(data)
    return entries


@given(EVENTS)
def test_the_same_records_count_for_the_reader_and_for_the_store(events: list[tuple[str, list[int]]]) -> None:
    entries = history(events)
    rule = Rule(0)
    assert counted(rule, entries) == counted_by_store(entries)
    rule.at_end()


@given(EVENTS, st.data())
def test_whoever_goes_on_from_a_bookmark_reads_the_rest(events: list[tuple[str, list[int]]], data: Any) -> None:
    entries = history(events)
    cut = data.draw(st.integers(0, len(entries)))
    first = Rule(0)
    begun = counted(first, entries[:cut])
    rest = Rule(0, first.bookmark)
    assert begun + counted(rest, [entry for entry in entries if entry.offset >= rest.begin]) == counted_by_store(
        entries
    )


@given(st.lists(st.sampled_from(["ours", "broken", "swapped", "missing"]), min_size=2, max_size=6), st.randoms())
def test_what_no_writer_can_have_written_stops_the_reader_where_it_stops_the_store(
    kinds: list[str], random: Any
) -> None:
    entries = history([("ours", [2, 1])] * len(kinds))
    for kind in kinds:
        at = random.randrange(len(entries) - 1)
        if kind == "broken":
            entries[at] = Entry(entries[at].offset, b"\x00" + entries[at].data)
        elif kind == "swapped":
            entries[at] = Entry(entries[at].offset, entries[at + 1].data)
        elif kind == "missing":
            del entries[at]
    try:
        wanted: object = counted_by_store(entries)
    except position_rule.HistoryBroken as broken:
        wanted = broken.position
    try:
        found: object = counted(Rule(0), entries)
    except HistoryBroken as broken:
        found = broken.position
    assert found == wanted


def test_a_log_that_was_cut_or_written_again_is_noticed_from_a_bookmark() -> None:
    entries = history([("ours", [1, 2]), ("ours", [2])])
    rule = Rule(0)
    counted(rule, entries)
    assert rule.bookmark == Bookmark(3, 5, hashlib.sha256(entries[3].data + entries[4].data).digest())

    shorter = Rule(0, rule.bookmark)
    counted(shorter, entries[3:4])
    with pytest.raises(LogCut, match="position 4: the log ends here, and was read up to 5"):
        shorter.at_end()

    rewritten = Writer(3, hashlib.sha256(b"other").digest()).batch([2])
    with pytest.raises(LogCut, match="position 4"):
        counted(Rule(0, rule.bookmark), [Entry(3, rewritten[0]), Entry(4, rewritten[1])])


def test_a_log_that_was_cut_at_its_end_and_written_on_by_another_is_noticed_while_reading() -> None:
    writer = Writer()
    first = writer.batch([1])
    writer.landed(first)
    rule = Rule(0)
    counted(rule, [Entry(0, first[0]), *(Entry(1, item) for item in writer.batch([1]))])
    rule.at_end()
    # The log was cut to one record, and a batch of two written: its second record stands where the reader goes on.
    longer = writer.batch([1, 1])
    with pytest.raises(LogCut, match="position 2: the log ended here before"):
        rule.take(2, longer[1])


def test_a_log_that_ends_inside_a_command_is_broken() -> None:
    rule = Rule(0)
    counted(rule, history([("ours", [2])])[:1])
    with pytest.raises(HistoryBroken, match="the middle of a command"):
        rule.at_end()
