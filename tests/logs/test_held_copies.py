"""What a local copy holds before it is written: readable at once, missing where it was never written, told as such."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from engine.logs.interface import LogEntry, LogError
from engine.logs.local_copy import LocalCopy, write_bytes_max, write_records_max

PARTITIONS: Final = 2


@pytest.fixture(name="copy")
def copy_in_folder(tmp_path: Path) -> Iterator[LocalCopy]:
    copy = LocalCopy(tmp_path / "copy", PARTITIONS)
    yield copy
    copy.close()


def entries(begin: int, end: int, data: bytes = b"record") -> list[LogEntry]:
    return [LogEntry(offset, data + str(offset).encode()) for offset in range(begin, end)]


def as_after_a_kill(tmp_path: Path) -> LocalCopy:
    """The copy as another process would find it: what is in the files now."""
    shutil.copytree(tmp_path / "copy", tmp_path / "killed")
    (tmp_path / "killed" / "LOCK").unlink()
    return LocalCopy(tmp_path / "killed", PARTITIONS)


@contextmanager
def no_writes() -> Iterator[None]:
    """Let no file of this process grow, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_is_held_is_read_at_once_beside_what_is_written(copy: LocalCopy) -> None:
    copy.write(0, entries(0, 2), 2)
    copy.hold(0, entries(2, 4), 4)
    assert copy.end(0) == 4
    assert copy.fetch(0, [3, 0, 2, 4]) == [b"record3", b"record0", b"record2", None]
    assert copy.fetch(1, [3]) == [None]
    assert [entry.offset for entry in copy.held(0, 1)] == [1, 2, 3]


def test_a_kill_before_the_write_shows_as_a_lower_end(copy: LocalCopy, tmp_path: Path) -> None:
    copy.write(0, entries(0, 2), 2)
    copy.hold(0, entries(2, 4), 4)
    killed = as_after_a_kill(tmp_path)
    assert killed.end(0) == 2
    assert killed.fetch(0, [1, 2]) == [b"record1", None]
    killed.close()


@pytest.mark.parametrize("how", ["flush", "write", "full", "too many"])
def test_what_is_held_is_written(copy: LocalCopy, tmp_path: Path, how: str) -> None:
    copy.hold(0, entries(0, 3), 3)
    if how == "flush":
        copy.flush()
    elif how == "write":
        copy.write(1, entries(0, 1), 1)
    elif how == "full":
        copy.hold(1, entries(0, 1, bytes(write_bytes_max)), 1)
    else:
        copy.hold(1, entries(0, write_records_max), write_records_max)
    killed = as_after_a_kill(tmp_path)
    assert killed.end(0) == 3
    assert killed.fetch(0, [0, 2]) == [b"record0", b"record2"]
    killed.close()


def test_closing_writes_what_is_held(tmp_path: Path) -> None:
    copy = LocalCopy(tmp_path / "copy", PARTITIONS)
    copy.hold(1, entries(0, 3), 3)
    copy.close()
    again = LocalCopy(tmp_path / "copy", PARTITIONS)
    assert (again.end(0), again.end(1)) == (0, 3)
    assert again.fetch(1, [2]) == [b"record2"]
    again.close()


def test_a_cut_takes_what_is_held_with_it(copy: LocalCopy) -> None:
    copy.write(0, entries(0, 2), 2)
    copy.hold(0, entries(2, 6), 6)
    copy.cut(0, 3)
    assert copy.end(0) == 3
    assert copy.fetch(0, [2, 3]) == [b"record2", None]
    copy.flush()
    assert copy.fetch(0, [2, 3]) == [b"record2", None]


def test_a_write_that_fails_leaves_the_ends_where_they_were_written(copy: LocalCopy) -> None:
    copy.write(0, entries(0, 2), 2)
    copy.hold(0, entries(2, 4), 4)
    copy.hold(1, entries(0, 1), 1)
    with no_writes(), pytest.raises(LogError):
        copy.flush()
    assert (copy.end(0), copy.end(1)) == (2, 0)
    copy.begin_anew()
    assert copy.fetch(0, [0, 2]) == [None, None]


def test_one_begun_anew_holds_nothing(copy: LocalCopy) -> None:
    copy.write(0, entries(0, 2), 2)
    copy.hold(0, entries(2, 4), 4)
    copy.begin_anew()
    copy.flush()
    assert copy.end(0) == 0
    assert copy.fetch(0, [0, 2]) == [None, None]
