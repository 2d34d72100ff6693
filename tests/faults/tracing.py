"""Tracing a process with strace, which misses no file operation, and reading the trace into a journal.

Basics
  strace stops the process where an operation begins and where it ends, so the order of the lines proves what came
  before what.

Caveats
  A memory-mapped write would leave no trace, so a shared writable mapping of a file in the folder is refused, and so
  are calls that write in ways that are not known here (io_uring, copy_file_range and the like).
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.faults.journal import Change, Inode, Journal, Naming, Said, Sync, inodes_of, snapshot

_NAMES: Final = (
    *("open", "openat", "creat", "close", "dup", "dup2", "dup3", "fcntl", "lseek"),
    *("write", "pwrite64", "writev", "pwritev", "pwritev2", "truncate", "ftruncate", "fallocate"),
    *("fsync", "fdatasync", "sync", "syncfs", "sync_file_range"),
    *("rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat"),
    *("unlink", "unlinkat", "mkdir", "mkdirat", "rmdir"),
    *("mmap", "io_uring_setup", "io_submit", "copy_file_range", "sendfile", "splice"),
)
_REFUSED: Final = frozenset({"symlink", "symlinkat", "pwritev", "pwritev2", "truncate", "io_uring_setup", "io_submit"})
_HARMLESS: Final = frozenset({"sync", "syncfs", "sync_file_range"})  # Counted as if they had done nothing.
_COPIES: Final = frozenset({"copy_file_range", "sendfile", "splice"})

_WHOLE: Final = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+|\?)", re.DOTALL)
_BEGUN: Final = re.compile(r"(\d+) +(\w+)\((.*) <unfinished \.\.\.>$", re.DOTALL)
_ENDED: Final = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>.*\) += (-?\d+|0x[0-9a-f]+|\?)", re.DOTALL)


class NoTracer(Exception):
    """There is no strace that may trace here; the message says why."""


@functools.cache
def tracer() -> str:
    """Return the path of a strace that works, installed if need be and possible. Raises `NoTracer`."""
    if shutil.which("strace") is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        sys.stderr.write("strace is not installed; it is installed now with apt-get\n")
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", "strace"]):
            subprocess.run(["apt-get", "-qq", *arguments], check=False, capture_output=True, timeout=120)  # noqa: S607
    found = shutil.which("strace")
    if found is None:
        raise NoTracer("strace is not installed here, and could not be")
    tried = subprocess.run([found, "-f", "-o", os.devnull, "true"], check=False, capture_output=True, text=True)
    if tried.returncode != 0:
        raise NoTracer(f"strace may not trace here: {tried.stderr.strip()}")
    return found


def record(command: Sequence[str], root: Path, trace: Path, environment: dict[str, str], cwd: Path) -> Journal:
    """Run a command to its end and return what it did below `root`, whose present content counts as safe on disk."""
    options = [
        "-f",
        "-xx",
        "-s",
        str(1 << 26),
        "-e",
        f"trace={','.join(f'?{name}' for name in _NAMES)}",
        "-e",
        "signal=none",
    ]
    journal = Journal(top := snapshot(root), list(inodes_of(top)))
    done = subprocess.run(
        [tracer(), *options, "-o", str(trace), *command],
        check=False, cwd=cwd, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    if done.returncode != 0:
        raise AssertionError(f"the traced process failed: {done.stderr[-4000:]}")
    with trace.open(encoding="ascii", errors="replace") as lines:
        _Reader(journal, root).read(lines)
    return journal


@dataclass
class _Open:
    inode: Inode
    flags: str
    offset: int = 0


class _Reader:
    """Reads a trace line by line, and keeps what the process has open."""

    def __init__(self, journal: Journal, root: Path) -> None:
        self._journal = journal
        self._root = os.fsencode(root)
        self._open: dict[int, _Open] = {}
        self._unfinished: dict[str, tuple[int, list[str]]] = {}

    def read(self, lines: Iterator[str]) -> None:
        for line in lines:
            if (whole := _WHOLE.match(line)) is not None:
                _, name, args, returned = whole.groups()
                begin = self._begin(name, parts := args.split(", "))
                self._end(begin, name, parts, returned)
            elif (begun := _BEGUN.match(line.rstrip("\n"))) is not None:
                thread, name, args = begun.groups()
                begin = self._begin(name, parts := args.split(", "))
                self._unfinished[thread] = begin, parts
            elif (ended := _ENDED.match(line)) is not None:
                thread, name, returned = ended.groups()
                begin, parts = self._unfinished.pop(thread)
                self._end(begin, name, parts, returned)
        assert not self._unfinished, "a call never ended"

    def _begin(self, name: str, args: list[str]) -> int:
        self._journal.end += 1
        if name == "close":
            # The number may be given again before this call is seen to end.
            self._open.pop(int(args[0]), None)
        elif name == "write" and args[0] == "1":
            self._journal.said += [Said(self._journal.end, line) for line in _bytes(args[1]).splitlines()]
        return self._journal.end

    def _end(self, begin: int, name: str, args: list[str], returned: str) -> None:
        self._journal.end += 1
        result = -1 if returned == "?" else int(returned, 0)
        if result < 0 or name in _HARMLESS:
            return
        if name in _REFUSED:
            ours = name.startswith("io_") or any(self._is_ours(each) for each in args)
            assert not ours, f"{name} is not known here"
        elif name in _COPIES:
            assert not any(each.isdigit() and int(each) in self._open for each in args[:3]), f"{name} is not known here"
        else:
            getattr(self, f"_on_{name}")(begin, args, result)

    def _is_ours(self, argument: str) -> bool:
        return argument.startswith('"') and _bytes(argument).startswith(self._root + b"/")

    # -- names

    def _place(self, path: bytes, folder: Inode | None = None) -> tuple[Inode, str] | None:
        """The folder that a path lies in, and its last name; None for a path that is not below the root."""
        if folder is None:
            if not path.startswith(self._root + b"/"):
                return None
            folder, path = self._journal.root, path[len(self._root) + 1 :]
        *parents, last = [part for part in os.fsdecode(path).split("/") if part not in ("", ".")]
        for name in parents:
            assert folder.entries is not None
            folder = folder.entries[name]
        return folder, last

    def _at(self, folder: str, path: str) -> tuple[Inode, str] | None:
        raw = _bytes(path)
        if folder == "AT_FDCWD" or raw.startswith(b"/"):
            return self._place(raw)
        opened = self._open.get(int(folder))
        return None if opened is None else self._place(raw, opened.inode)

    def _name(
        self, begin: int, inode: Inode, removed: tuple[Inode, str] | None, added: tuple[Inode, str] | None
    ) -> None:
        for place in (removed, added):
            if place is not None:
                assert place[0].entries is not None
        if removed is not None:
            del removed[0].entries[removed[1]]  # type: ignore[union-attr]
        if added is not None:
            added[0].entries[added[1]] = inode  # type: ignore[index]
        self._journal.namings.append(Naming(begin, self._journal.end, inode, removed, added))

    def _new(self, begin: int, place: tuple[Inode, str], inode: Inode) -> Inode:
        self._journal.inodes.append(inode)
        self._name(begin, inode, None, place)
        return inode

    def _on_openat(self, begin: int, args: list[str], result: int) -> None:
        self._opened(begin, self._at(args[0], args[1]), args[1], args[2], result)

    def _on_open(self, begin: int, args: list[str], result: int) -> None:
        self._opened(begin, self._at("AT_FDCWD", args[0]), args[0], args[1], result)

    def _on_creat(self, begin: int, args: list[str], result: int) -> None:
        self._opened(begin, self._at("AT_FDCWD", args[0]), args[0], "O_WRONLY|O_CREAT|O_TRUNC", result)

    def _opened(self, begin: int, place: tuple[Inode, str] | None, path: str, flags: str, number: int) -> None:
        if place is None:
            if _bytes(path) == self._root:
                self._open[number] = _Open(self._journal.root, flags)
            return
        assert "O_TMPFILE" not in flags
        folder, name = place
        assert folder.entries is not None
        inode = folder.entries.get(name)
        if inode is None:
            inode = self._new(begin, place, Inode())
        elif "O_TRUNC" in flags:
            self._change(begin, inode, 0, None)
        self._open[number] = _Open(inode, flags)

    def _on_mkdir(self, begin: int, args: list[str], _: int) -> None:
        self._made(begin, self._at("AT_FDCWD", args[0]))

    def _on_mkdirat(self, begin: int, args: list[str], _: int) -> None:
        self._made(begin, self._at(args[0], args[1]))

    def _made(self, begin: int, place: tuple[Inode, str] | None) -> None:
        if place is not None:
            self._new(begin, place, Inode(entries={}))

    def _on_unlink(self, begin: int, args: list[str], _: int) -> None:
        self._removed(begin, self._at("AT_FDCWD", args[0]))

    _on_rmdir = _on_unlink

    def _on_unlinkat(self, begin: int, args: list[str], _: int) -> None:
        self._removed(begin, self._at(args[0], args[1]))

    def _removed(self, begin: int, place: tuple[Inode, str] | None) -> None:
        if place is not None:
            assert place[0].entries is not None
            self._name(begin, place[0].entries[place[1]], place, None)

    def _on_rename(self, begin: int, args: list[str], _: int) -> None:
        self._moved(begin, self._at("AT_FDCWD", args[0]), self._at("AT_FDCWD", args[1]), keep=False)

    def _on_renameat(self, begin: int, args: list[str], _: int) -> None:
        self._moved(begin, self._at(args[0], args[1]), self._at(args[2], args[3]), keep=False)

    _on_renameat2 = _on_renameat

    def _on_link(self, begin: int, args: list[str], _: int) -> None:
        self._moved(begin, self._at("AT_FDCWD", args[0]), self._at("AT_FDCWD", args[1]), keep=True)

    def _on_linkat(self, begin: int, args: list[str], _: int) -> None:
        self._moved(begin, self._at(args[0], args[1]), self._at(args[2], args[3]), keep=True)

    def _moved(
        self, begin: int, source: tuple[Inode, str] | None, target: tuple[Inode, str] | None, *, keep: bool
    ) -> None:
        assert (source is None) == (target is None), "a file came into the folder, or left it"
        if source is not None:
            assert source[0].entries is not None
            self._name(begin, source[0].entries[source[1]], None if keep else source, target)

    # -- bytes

    def _change(self, begin: int, inode: Inode, offset: int, data: bytes | None) -> None:
        inode.changes.append(Change(begin, self._journal.end, offset, data))
        inode.size = offset if data is None else max(inode.size, offset + len(data))

    def _on_write(self, begin: int, args: list[str], result: int) -> None:
        self._written(begin, args, _bytes(args[1]), result)

    def _on_writev(self, begin: int, args: list[str], result: int) -> None:
        self._written(begin, args, b"".join(map(_bytes, re.findall(r'iov_base=("[^"]*")', ", ".join(args)))), result)

    def _written(self, begin: int, args: list[str], data: bytes, result: int) -> None:
        opened = self._open.get(int(args[0]))
        if opened is None:
            return
        assert "O_APPEND" in opened.flags or "O_WRONLY" in opened.flags, "reads, which move the offset, are not traced"
        if "O_APPEND" in opened.flags:
            opened.offset = opened.inode.size
        assert len(data) >= result, "strace left out data"
        self._change(begin, opened.inode, opened.offset, data[:result])
        opened.offset += result

    def _on_pwrite64(self, begin: int, args: list[str], result: int) -> None:
        if (opened := self._open.get(int(args[0]))) is not None:
            data = _bytes(args[1])[:result]
            assert len(data) == result, "strace left out data"
            self._change(begin, opened.inode, int(args[3]), data)

    def _on_lseek(self, _: int, args: list[str], result: int) -> None:
        if (opened := self._open.get(int(args[0]))) is not None:
            opened.offset = result

    def _on_ftruncate(self, begin: int, args: list[str], _: int) -> None:
        if (opened := self._open.get(int(args[0]))) is not None:
            self._change(begin, opened.inode, int(args[1]), None)

    def _on_fallocate(self, begin: int, args: list[str], _: int) -> None:
        opened = self._open.get(int(args[0]))
        if opened is None or "FALLOC_FL_KEEP_SIZE" in args[1]:
            return
        assert args[1] == "0", f"fallocate({args[1]}) is not known here"
        self._change(begin, opened.inode, max(opened.inode.size, int(args[2]) + int(args[3])), None)

    # -- files that are open

    def _on_fsync(self, begin: int, args: list[str], _: int) -> None:
        if (opened := self._open.get(int(args[0]))) is not None:
            self._journal.syncs.append(Sync(begin, self._journal.end, opened.inode))

    _on_fdatasync = _on_fsync

    def _on_close(self, *_: object) -> None:
        pass

    def _on_dup(self, _: int, args: list[str], result: int) -> None:
        if (opened := self._open.get(int(args[0]))) is not None:
            self._open[result] = opened

    _on_dup2 = _on_dup3 = _on_dup

    def _on_fcntl(self, begin: int, args: list[str], result: int) -> None:
        if args[1].startswith("F_DUPFD"):
            self._on_dup(begin, args, result)

    def _on_mmap(self, _: int, args: list[str], __: int) -> None:
        shared = "MAP_SHARED" in args[3] and "PROT_WRITE" in args[2]
        assert not (shared and args[4].isdigit() and int(args[4]) in self._open), "a file is written through memory"


def _bytes(text: str) -> bytes:
    assert text.startswith('"'), text[:80]
    assert text.endswith('"'), "strace left out data"
    return bytes.fromhex(text[1:-1].replace("\\x", ""))
