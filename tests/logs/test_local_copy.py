"""The local copy: its end never promises more than it holds, and whatever is wrong with it, it is only a copy."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.logs.interface import LogEntry
from engine.logs.local_copy import LocalCopy, pieces, write_bytes_max, write_records_max

PARTITIONS = 3


def entries(*records: bytes, at: int = 0) -> list[LogEntry]:
    return [LogEntry(offset, data) for offset, data in enumerate(records, at)]


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[LocalCopy]:
    copy = LocalCopy(tmp_path / "copy", PARTITIONS)
    yield copy
    copy.close()


def filled(path: Path, count: int) -> None:
    """A closed copy of `count` records in each partition, written one by one."""
    copy = LocalCopy(path, PARTITIONS)
    for offset in range(count):
        for partition in range(PARTITIONS):
            copy.write(partition, entries(b"%d/%d" % (partition, offset), at=offset), offset + 1)
    copy.close()


def held(copy: LocalCopy, partition: int) -> list[LogEntry]:
    return list(copy.held(partition, 0))


def test_what_is_written_is_held_beyond_a_restart(tmp_path: Path) -> None:
    filled(tmp_path / "copy", 5)
    copy = LocalCopy(tmp_path / "copy", PARTITIONS)
    for partition in range(PARTITIONS):
        expected = [b"%d/%d" % (partition, offset) for offset in range(5)]
        assert copy.end(partition) == 5
        assert held(copy, partition) == entries(*expected)
        assert list(copy.held(partition, 3)) == entries(*expected)[3:]
        assert copy.fetch(partition, [4, 0, 4, 5]) == [expected[4], expected[0], expected[4], None]
    copy.close()


def test_a_write_without_an_end_promises_nothing(copy: LocalCopy) -> None:
    copy.write(0, entries(b"a", b"b"), 2)
    copy.write(0, entries(b"far", at=9))
    assert copy.end(0) == 2
    assert copy.fetch(0, [9]) == [b"far"]
    copy.write(0, [], 4)
    assert copy.end(0) == 4, "a log may have holes"


def test_a_cut_forgets_one_partition_from_there_on(copy: LocalCopy) -> None:
    for partition in range(PARTITIONS):
        copy.write(partition, entries(b"a", b"b", b"c"), 3)
    copy.cut(1, 1)
    assert (copy.end(0), copy.end(1), copy.end(2)) == (3, 1, 3)
    assert held(copy, 1) == entries(b"a")
    assert held(copy, 0) == held(copy, 2) == entries(b"a", b"b", b"c")
    copy.write(1, entries(b"other", at=1), 2)
    assert copy.fetch(1, [0, 1, 2]) == [b"a", b"other", None]
    copy.cut(1, 7)
    assert copy.end(1) == 2


def test_what_a_loss_of_power_takes_shows_in_the_end(tmp_path: Path) -> None:
    """However much of the unsynced write-ahead log is lost, what the end promises is there."""
    path = tmp_path / "whole"
    filled(path, 50)
    # What was in the log when it was closed is in a table by now: open, write, and copy the files of an open one.
    copy = LocalCopy(path, PARTITIONS)
    for offset in range(50, 100):
        for partition in range(PARTITIONS):
            copy.write(partition, entries(b"%d/%d" % (partition, offset), at=offset), offset + 1)
    shutil.copytree(path, tmp_path / "power")
    copy.close()
    (wal,) = [each for each in (tmp_path / "power").glob("*.log") if each.stat().st_size]
    data = wal.read_bytes()
    found = set()
    for kept in range(0, len(data), max(1, len(data) // 60)):
        shutil.rmtree(tmp_path / "cut", ignore_errors=True)
        shutil.copytree(tmp_path / "power", tmp_path / "cut")
        (tmp_path / "cut" / wal.name).write_bytes(data[:kept])
        cut = LocalCopy(tmp_path / "cut", PARTITIONS)
        for partition in range(PARTITIONS):
            end = cut.end(partition)
            found.add(end)
            assert 50 <= end <= 100
            assert held(cut, partition) == entries(*(b"%d/%d" % (partition, offset) for offset in range(end)))
        cut.close()
    assert len(found) > 20, "the cuts were made all over the log"


@pytest.mark.parametrize("damage", ["no CURRENT", "manifest", "no table", "a file", "every byte"])
def test_a_copy_that_cannot_be_opened_is_begun_anew(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "copy"
    filled(path, 20)
    if damage == "no CURRENT":
        (path / "CURRENT").unlink()
    elif damage == "manifest":
        (manifest,) = path.glob("MANIFEST-*")
        data = bytearray(manifest.read_bytes())
        data[len(data) // 2] ^= 0x40
        manifest.write_bytes(bytes(data))
    elif damage == "no table":
        (table,) = path.glob("*.sst")
        table.unlink()
    elif damage == "a file":
        shutil.rmtree(path)
        path.write_bytes(b"no folder")
    else:
        for file in path.iterdir():
            file.write_bytes(bytes(byte ^ 0x55 for byte in file.read_bytes()))
    copy = LocalCopy(path, PARTITIONS)
    assert [copy.end(partition) for partition in range(PARTITIONS)] == [0] * PARTITIONS
    copy.write(0, entries(b"a"), 1)
    assert copy.fetch(0, [0]) == [b"a"]
    copy.close()


def test_a_damaged_record_is_told_as_missing_and_held_again_once_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "copy"
    copy = LocalCopy(path, PARTITIONS)
    records = [random.Random(number).randbytes(100) for number in range(1000)]
    copy.write(0, entries(*records), len(records))
    copy.close()
    (table,) = path.glob("*.sst")
    data = bytearray(table.read_bytes())
    data[data.index(records[3])] ^= 1
    table.write_bytes(bytes(data))
    copy = LocalCopy(path, PARTITIONS)
    assert copy.fetch(0, [3]) == [None]
    assert copy.fetch(0, [3, 900]) == [None, records[900]]
    copy.write(0, entries(records[3], at=3))
    assert copy.fetch(0, [3]) == [records[3]]
    assert copy.end(0) == 1000
    copy.close()


def test_beginning_anew_forgets_everything(copy: LocalCopy) -> None:
    copy.write(1, entries(b"a"), 1)
    copy.begin_anew()
    assert copy.end(1) == 0
    assert held(copy, 1) == []
    copy.write(1, entries(b"b"), 1)
    assert copy.fetch(1, [0]) == [b"b"]


def test_pieces_are_bounded_and_lose_nothing() -> None:
    assert list(pieces([])) == []
    small = entries(*(b"x" for _ in range(2 * write_records_max + 1)))
    found = list(pieces(small))
    assert [len(each) for each in found] == [write_records_max, write_records_max, 1]
    assert [entry for each in found for entry in each] == small
    large = entries(b"a" * write_bytes_max, b"b", b"c" * (3 * write_bytes_max), b"d", b"e")
    found = list(pieces(large))
    assert [entry for each in found for entry in each] == large
    assert [[entry.data[:1] for entry in each] for each in found] == [[b"a"], [b"b"], [b"c"], [b"d", b"e"]]
