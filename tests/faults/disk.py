"""What a disk may hold after a loss of power: all that was synced, and of the rest whatever the kernel had written.

Basics
  Bytes of a file are safe once an fsync or fdatasync of it, which began after they were written, has returned. A name
  is safe after an fsync of its folder. Many file systems make a file's own names safe with the file; whether this one
  does is part of the loss.
  What is not safe may be there or not: nothing of it, all, the first part of each file's, the first part with the last
  write torn or zeros in its place, or, since pages are written in any order, each page as it was at a time of its own.
  A disk writes a sector whole or not at all.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.faults.journal import Change, Inode, Journal, Naming

MODES: Final = ("nothing", "all", "prefix", "torn", "pages", "mixed")
PAGE: Final = 4096
SECTOR: Final = 512


@dataclass(frozen=True)
class Loss:
    """A loss of power at a position of a journal, and what becomes of what was not safe. Made again from its seed."""

    position: int
    mode: str
    names_with_files: bool
    """Whether a file's fsync makes its names safe too, with the folders above."""
    seed: int

    def write(self, journal: Journal, folder: Path) -> None:
        """Write what the disk holds then into an empty folder."""
        _Image(journal, self).write(folder)


class _Image:
    def __init__(self, journal: Journal, loss: Loss) -> None:
        self._journal = journal
        self._loss = loss
        self._random = random.Random(loss.seed)
        # By inode, when the last fsync began that has returned: what ended before it is safe.
        self._safe: dict[Inode, int] = {}
        for sync in journal.syncs:
            if sync.end <= loss.position:
                self._safe[sync.inode] = max(self._safe.get(sync.inode, 0), sync.begin)

    def write(self, folder: Path) -> None:
        tree: dict[Inode, dict[str, Inode]] = {}
        for inode in self._journal.inodes:
            if inode.entries is not None:
                tree[inode] = dict(inode.base_entries)
        for naming in self._kept():
            if naming.removed is not None and tree[naming.removed[0]].get(naming.removed[1]) is naming.inode:
                del tree[naming.removed[0]][naming.removed[1]]
            if naming.added is not None:
                tree[naming.added[0]][naming.added[1]] = naming.inode
        self._write(self._journal.root, folder, tree)

    def _write(self, inode: Inode, path: Path, tree: dict[Inode, dict[str, Inode]]) -> None:
        if inode.entries is None:
            path.write_bytes(self._content(inode))
            path.chmod(0o600)
            return
        path.mkdir(exist_ok=True)
        for name, each in sorted(tree[inode].items()):
            self._write(each, path / name, tree)

    # -- names

    def _kept(self) -> list[Naming]:
        """The names' changes that are there, in order."""
        begun = [naming for naming in self._journal.namings if naming.begin <= self._loss.position]
        safe = self._safe_names(begun)
        open_ones = [naming for naming in begun if naming not in safe]
        match self._mode():
            case "nothing":
                chosen = []
            case "all":
                chosen = open_ones
            case "pages":
                chosen = self._with_former(begun, [naming for naming in open_ones if self._random.random() < 0.5])
            case _:
                chosen = open_ones[: self._random.randint(0, len(open_ones))]
        kept = safe | set(chosen)
        return [naming for naming in begun if naming in kept]

    def _safe_names(self, begun: list[Naming]) -> set[Naming]:
        safe: set[Naming] = set()
        made: dict[Inode, list[Naming]] = {}
        for naming in begun:
            made.setdefault(naming.inode, []).append(naming)
            folders = [place[0] for place in (naming.removed, naming.added) if place is not None]
            if any(naming.end < self._safe.get(folder, 0) for folder in folders):
                safe.add(naming)
        if self._loss.names_with_files:
            for inode, when in self._safe.items():
                self._make_safe(inode, when, made, safe)
        return set(self._with_former(begun, safe))

    def _make_safe(self, inode: Inode, when: int, made: dict[Inode, list[Naming]], safe: set[Naming]) -> None:
        for naming in made.get(inode, ()):
            if naming.end < when:
                safe.add(naming)
                if naming.added is not None:
                    self._make_safe(naming.added[0], when, made, safe)

    @staticmethod
    def _with_former(begun: list[Naming], chosen: Iterable[Naming]) -> list[Naming]:
        """With each change of a file's names the ones of the same file before it: no file system turns those round."""
        last: dict[Inode, int] = {}
        for naming in chosen:
            last[naming.inode] = max(last.get(naming.inode, 0), naming.begin)
        return [naming for naming in begun if naming.begin <= last.get(naming.inode, -1)]

    # -- bytes

    def _mode(self) -> str:
        return self._random.choice(MODES[:-1]) if self._loss.mode == "mixed" else self._loss.mode

    def _content(self, inode: Inode) -> bytes:
        data = bytearray(inode.base)
        when = self._safe.get(inode, 0)
        open_ones: list[Change] = []
        for change in inode.changes:
            if change.end < when:
                _apply(data, change)
            elif change.begin <= self._loss.position:
                open_ones.append(change)
        if not open_ones:
            return bytes(data)
        match self._mode():
            case "nothing":
                pass
            case "all":
                _apply_all(data, open_ones)
            case "prefix":
                _apply_all(data, open_ones[: self._random.randint(0, len(open_ones))])
            case "torn":
                count = self._random.randint(0, len(open_ones) - 1)
                _apply_all(data, open_ones[:count])
                _apply(data, self._torn(open_ones[count], len(data)))
            case _:
                data = self._pages(data, open_ones)
        return bytes(data)

    def _torn(self, change: Change, size: int) -> Change:
        """The first part of a write, with nothing or zeros for the rest. What was there before changes by sectors."""
        if change.data is None:
            return change
        cut = self._random.randint(0, len(change.data))
        if change.offset + cut - (change.offset + cut) % SECTOR < size:
            # The sector held something before, and is old or new as a whole.
            cut = max(0, cut - (change.offset + cut) % SECTOR)
        kept = change.data[:cut]
        if self._random.random() < 0.5 and change.offset + cut >= size:
            kept += bytes(len(change.data) - cut)
        return Change(change.begin, change.end, change.offset, kept)

    def _pages(self, data: bytearray, changes: list[Change]) -> bytearray:
        """Each page, and the file's length, as they were at a time of their own."""
        sized = bytearray(data)
        _apply_all(sized, changes[: self._random.randint(0, len(changes))])
        times: dict[int, int] = {}
        for number, change in enumerate(changes):
            if change.data is None:
                continue
            at, end = change.offset, change.offset + len(change.data)
            while at < end:
                page_end = min(end, at - at % PAGE + PAGE)
                if number < times.setdefault(at // PAGE, self._random.randint(0, len(changes))):
                    _apply(data, Change(0, 0, at, change.data[at - change.offset : page_end - change.offset]))
                at = page_end
        _apply(data, Change(0, 0, len(sized), None))
        return data


def _apply(data: bytearray, change: Change) -> None:
    if change.data is None:
        del data[change.offset :]
        data.extend(bytes(change.offset - len(data)))
        return
    if change.offset > len(data):
        data.extend(bytes(change.offset - len(data)))
    data[change.offset : change.offset + len(change.data)] = change.data


def _apply_all(data: bytearray, changes: list[Change]) -> None:
    for change in changes:
        _apply(data, change)
