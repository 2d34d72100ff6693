"""A topic that was cut or written again is noticed, and a stranger's batch in it is skipped."""

from __future__ import annotations

import dataclasses
import logging
import os

import pytest
from confluent_kafka import TopicPartition

from clients.python_reader import LogCut
from clients.python_reader.rule import Rule
from engine.logs.interface import LogEntry
from tests.clients.scene import HOME, Scene, of, rewritten
from tests.clients.test_rule import Writer


def test_a_batch_that_follows_another_history_is_skipped_and_said(own: Scene, caplog: pytest.LogCaptureFixture) -> None:
    with own.reader() as reader:
        before = list(reader)
        bookmarks = reader.bookmarks()
    end = own.made.entries[HOME][-1].offset + 1
    foreign = Writer(end, os.urandom(32)).batch([2])
    genuine = Writer(end + 2, bookmarks[HOME].digest).batch([1])
    own.topics.produce("log", HOME, [(None, data) for data in [*foreign, *genuine]])
    with caplog.at_level(logging.ERROR, "python_reader"), own.reader() as reader:
        after = list(reader)
    assert [each.position for each in of(after, HOME)] == [*(each.position for each in of(before, HOME)), end + 2]
    assert f"partition {HOME}, position {end}: a batch that follows another history, skipped" in caplog.text


def test_records_deleted_from_the_beginning_are_noticed(own: Scene) -> None:
    with own.reader() as reader:
        list(reader)
        bookmarks = reader.bookmarks()
    partition = TopicPartition(f"{own.topics.prefix}.log", HOME, 3)
    own.topics.admin.delete_records([partition])[partition].result(20)
    with own.reader() as reader, pytest.raises(LogCut, match=f"partition {HOME}, position 0: the log begins at 3"):
        list(reader)
    with own.reader(bookmarks) as reader:
        assert list(reader) == [], "whoever has read them goes on"


def test_a_log_cut_at_its_end_is_noticed_by_whoever_had_read_on(own: Scene) -> None:
    with own.reader() as reader:
        list(reader)
        bookmarks = {HOME: reader.bookmarks()[HOME]}
    entries = own.made.entries[HOME]
    rewritten(own, entries[:-1])
    end, was = entries[-2].offset + 1, bookmarks[HOME].batch_end
    with own.reader(bookmarks) as reader, pytest.raises(LogCut, match=f"ends at {end}, and was read up to {was}"):
        list(reader)


def test_a_log_written_again_to_the_same_length_is_noticed(own: Scene) -> None:
    with own.reader() as reader:
        list(reader)
        bookmarks = {HOME: reader.bookmarks()[HOME]}
    *kept, last = own.made.entries[HOME]
    other = Writer(last.offset, os.urandom(32)).batch([1])
    rewritten(own, (*kept, LogEntry(last.offset, other[0])))
    with own.reader(bookmarks) as reader, pytest.raises(LogCut, match="something else stood here"):
        list(reader)


@pytest.mark.parametrize(
    ("cut", "written"),
    [(3, []), (1, [[1], [1]])],
    ids=["shorter", "longer"],
)
def test_a_log_written_again_below_a_reader_that_follows_is_noticed(
    own: Scene, caplog: pytest.LogCaptureFixture, cut: int, written: list[list[int]]
) -> None:
    with own.reader() as reader:
        list(reader)
        bookmarks = {HOME: reader.bookmarks()[HOME]}
    with own.reader(bookmarks, follow=True) as reader:
        records = iter(reader)
        entries = list(own.made.entries[HOME])
        end = entries[-1].offset + 1
        (more,) = Writer(end, bookmarks[HOME].digest).batch([1])
        own.topics.produce("log", HOME, [(None, more)])
        assert next(records).log.position == end
        entries.append(LogEntry(end, more))
        del entries[-cut:]
        writer = Writer(entries[-1].offset + 1, own.made.prev(HOME))
        for lengths in written:
            batch = writer.batch(lengths, appended_at=5000)
            entries += [LogEntry(writer.position + index, data) for index, data in enumerate(batch)]
            writer.landed(batch)
        rewritten(own, tuple(entries))
        with pytest.raises(LogCut, match=f"partition {HOME}, position {end + 1}: "):
            next(records)
    assert "another history" not in caplog.text, "what was read is gone, not what came after it"


def test_whoever_meets_another_history_reads_again_what_it_has_read(own: Scene) -> None:
    # A reader of a log that was written again in place, as by a broker whose disk was put back: the topic is the same
    # and reaches on, so only a digest tells.
    with own.reader() as reader:
        list(reader)
        known = reader.bookmarks()[HOME]
        rule = Rule(HOME, dataclasses.replace(known, digest=bytes(32)))
        rule.compared = True
        (following,) = Writer(known.batch_end, known.digest).batch([1])
        with pytest.raises(LogCut, match="something else stood here"):
            list(reader._take(rule, known.batch_end, following))
