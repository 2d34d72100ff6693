"""The position rule: what counts, what is void, and what no writer can have written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pytest

from projections.position_rule import HistoryBroken, PositionRule
from schemas.log_record import GENESIS, Kind, LogRecord, encode


@dataclass(frozen=True)
class Entry:
    offset: int
    data: bytes


class Writer:
    """Makes batches as a writer does: positions from where it has applied, `prev` over the batch before."""

    def __init__(self) -> None:
        self.position = 0
        self.prev = GENESIS
        self.commands = 0

    def batch(self, *lengths: int) -> list[bytes]:
        """One batch of commands with these numbers of records; the writer takes it as landed."""
        data: list[bytes] = []
        for length in lengths:
            self.commands += 1
            for index in range(length):
                record = LogRecord(
                    position=self.position + len(data),
                    prev=b"" if data else self.prev,
                    last=index == length - 1,
                    command_id=self.commands.to_bytes(16, "big"),
                    appended_at=1000 + self.commands,
                    kind=Kind.BARRIER.value,
                )
                data.append(encode(record))
        self.position += len(data)
        self.prev = hashlib.sha256(b"".join(data)).digest()
        return data


class Log:
    """Stores each batch at its end, wherever it was decided for."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def land(self, data: Sequence[bytes]) -> None:
        self.entries += [Entry(offset, item) for offset, item in enumerate(data, start=len(self.entries))]


def counted(rule: PositionRule, entries: Sequence[Entry]) -> list[list[int]]:
    return [[record.position for record in command.records] for command in rule.feed(entries)]


def test_batches_that_land_where_they_were_decided_for_count() -> None:
    writer, log, rule = Writer(), Log(), PositionRule(0, voids_legal=False)
    log.land(writer.batch(2, 1))
    log.land(writer.batch(3))
    assert counted(rule, log.entries) == [[0, 1], [2], [3, 4, 5]]
    assert (rule.end, rule.applied().position, rule.prev()) == (6, 6, writer.prev)
    assert rule.appended_at == 1003


def test_a_batch_that_lands_elsewhere_is_void_and_so_is_a_duplicate() -> None:
    writer, log, rule = Writer(), Log(), PositionRule(0, voids_legal=True)
    first = writer.batch(2)
    log.land(first)
    log.land(first)
    zombie = Writer()
    zombie.position, zombie.prev = 2, writer.prev
    log.land(zombie.batch(1))
    assert counted(rule, log.entries) == [[0, 1]]
    assert rule.void_records == 3
    assert rule.end == rule.applied().position == 5
    writer.position = 5
    log.land(writer.batch(1))
    assert counted(rule, log.entries[5:]) == [[5]]


def test_a_batch_at_the_right_offset_with_another_history_is_void_to_its_end(caplog: pytest.LogCaptureFixture) -> None:
    writer, log, rule = Writer(), Log(), PositionRule(0, voids_legal=True)
    log.land(writer.batch(1))
    stranger = Writer()
    stranger.position, stranger.prev = 1, hashlib.sha256(b"another history").digest()
    log.land(stranger.batch(2, 2))
    assert counted(rule, log.entries) == [[0]]
    assert (rule.void_records, rule.rewrites_seen) == (4, 1)
    assert "rewritten" in caplog.text
    writer.position = 5
    log.land(writer.batch(1))
    assert counted(rule, log.entries[5:]) == [[5]]


def test_in_a_log_that_one_process_writes_a_void_record_is_damage() -> None:
    writer, log, rule = Writer(), Log(), PositionRule(3, voids_legal=False)
    first = writer.batch(1)
    log.land(first)
    log.land(first)
    with pytest.raises(HistoryBroken, match="partition 3, position 1"):
        rule.feed(log.entries)


def test_a_command_is_given_back_whole_however_the_reads_are_cut() -> None:
    writer, log = Writer(), Log()
    for lengths in ((3, 1), (2,), (1, 4)):
        log.land(writer.batch(*lengths))
    whole = counted(PositionRule(0, voids_legal=False), log.entries)
    for cut in range(len(log.entries) + 1):
        rule = PositionRule(0, voids_legal=False)
        assert counted(rule, log.entries[:cut]) + counted(rule, log.entries[cut:]) == whole


def test_a_reader_continues_from_wherever_it_had_applied() -> None:
    writer, log = Writer(), Log()
    for lengths in ((3, 1), (2,), (1, 4)):
        log.land(writer.batch(*lengths))
    end = PositionRule(0, voids_legal=False)
    end.feed(log.entries)
    for cut in range(len(log.entries) + 1):
        rule = PositionRule(0, voids_legal=False)
        rule.feed(log.entries[:cut])
        applied = rule.applied()
        batch = log.entries[max(applied.batch_start, 0) : max(applied.batch_end, 0)]
        resumed = PositionRule.resumed(0, applied, batch, voids_legal=False)
        assert resumed is not None, cut
        resumed.feed(log.entries[resumed.end :])
        assert resumed.applied() == end.applied()
        assert resumed.prev() == end.prev()


def test_a_reader_does_not_continue_on_a_log_that_was_cut_or_written_again() -> None:
    writer, log = Writer(), Log()
    log.land(writer.batch(1, 2))
    rule = PositionRule(0, voids_legal=False)
    rule.feed(log.entries)
    applied = rule.applied()
    assert PositionRule.resumed(0, applied, log.entries[:2], voids_legal=False) is None
    other = Writer()
    other.prev = hashlib.sha256(b"other").digest()
    rewritten = [Entry(offset, data) for offset, data in enumerate(other.batch(1, 2))]
    assert PositionRule.resumed(0, applied, rewritten, voids_legal=False) is None


def test_a_missing_or_damaged_record_stops_reading_and_is_named() -> None:
    writer, log = Writer(), Log()
    log.land(writer.batch(1, 2))
    without_second = [log.entries[0], log.entries[2]]
    with pytest.raises(HistoryBroken, match="position 2"):
        PositionRule(0, voids_legal=True).feed(without_second)
    damaged = [log.entries[0], Entry(1, b"\x00" + log.entries[1].data)]
    with pytest.raises(HistoryBroken, match="position 1"):
        PositionRule(0, voids_legal=True).feed(damaged)


def test_a_batch_that_starts_inside_a_command_stops_reading() -> None:
    writer, log = Writer(), Log()
    log.land(writer.batch(2))
    cut = log.entries[:1]
    writer.position = 1
    cut.append(Entry(1, writer.batch(1)[0]))
    with pytest.raises(HistoryBroken, match="before the last command"):
        PositionRule(0, voids_legal=True).feed(cut)


def test_a_changed_record_is_noticed_by_the_batch_after_it() -> None:
    writer, log = Writer(), Log()
    first = writer.batch(1)
    log.land(first)
    log.land(writer.batch(1))
    rule = PositionRule(0, voids_legal=False)
    changed = encode(msgspec.structs.replace(rule.feed(log.entries[:1])[0].records[0], turn_id="x"))
    with pytest.raises(HistoryBroken, match="rewritten"):
        PositionRule(0, voids_legal=False).feed([Entry(0, changed), log.entries[1]])


def test_a_batch_written_here_counts_without_being_read_back() -> None:
    writer, log = Writer(), Log()
    reader, here = PositionRule(0, voids_legal=False), PositionRule(0, voids_legal=False)
    for lengths in ((1, 2), (3,)):
        data = writer.batch(*lengths)
        start = len(log.entries)
        log.land(data)
        records = [record for command in reader.feed(log.entries[start:]) for record in command.records]
        here.landed(records, data)
        assert here.applied() == reader.applied()
        assert here.prev() == reader.prev()


def test_a_reader_that_stopped_inside_a_void_batch_goes_on_as_one_that_did_not() -> None:
    # The second record of the void batch was taken for a record whose batch is missing.
    writer, log = Writer(), Log()
    log.land(writer.batch(1))
    stranger = Writer()
    stranger.position, stranger.prev = 1, hashlib.sha256(b"another history").digest()
    log.land(stranger.batch(2))
    writer.position = 3
    log.land(writer.batch(1))
    whole = PositionRule(0, voids_legal=True)
    whole.feed(log.entries)
    for cut in range(1, 5):
        rule = PositionRule(0, voids_legal=True)
        rule.feed(log.entries[:cut])
        applied = rule.applied()
        batch = log.entries[max(applied.batch_start, 0) : max(applied.batch_end, 0)]
        resumed = PositionRule.resumed(0, applied, batch, voids_legal=True)
        assert resumed is not None
        resumed.feed(log.entries[resumed.end :])
        assert resumed.applied() == whole.applied(), cut
