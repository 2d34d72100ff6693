"""What a process did to the files below a folder: every operation, in order, with its data.

Basics
  An operation begins when the kernel is about to do it and ends when it is done. Positions in a journal count these
  beginnings and ends.
  Files are inodes, as the kernel has them: a name may come to mean another file, and a file may lose its name.
  What the process writes to its standard output is part of the journal, so that an answer has a position too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(eq=False)
class Inode:
    """A file or a folder, whatever names it has. `entries` are a folder's names as the process sees them in the end."""

    base: bytes = b""
    base_entries: dict[str, Inode] = field(default_factory=dict)
    entries: dict[str, Inode] | None = None
    size: int = 0
    changes: list[Change] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Change:
    """Bytes written at an offset, or, where `data` is None, the file's length set to the offset."""

    begin: int
    end: int
    offset: int
    data: bytes | None


@dataclass(frozen=True, eq=False)
class Naming:
    """A name that a file got, or lost, or both in one step (a rename)."""

    begin: int
    end: int
    inode: Inode
    removed: tuple[Inode, str] | None
    added: tuple[Inode, str] | None


@dataclass(frozen=True, eq=False)
class Sync:
    """An fsync or fdatasync that returned without an error."""

    begin: int
    end: int
    inode: Inode


@dataclass(frozen=True)
class Said:
    """A line that the process wrote to its standard output."""

    begin: int
    line: bytes


@dataclass
class Journal:
    """What a process did below a folder."""

    root: Inode
    inodes: list[Inode]
    namings: list[Naming] = field(default_factory=list)
    syncs: list[Sync] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    end: int = 0


def snapshot(path: Path) -> Inode:
    """What is there now, as if it were all safe on disk."""
    if path.is_dir():
        entries = {each.name: snapshot(each) for each in sorted(path.iterdir())}
        return Inode(base_entries=entries, entries=dict(entries))
    data = path.read_bytes()
    return Inode(data, size=len(data))


def inodes_of(inode: Inode) -> Iterator[Inode]:
    """A folder and all below it."""
    yield inode
    for each in (inode.entries or {}).values():
        yield from inodes_of(each)
