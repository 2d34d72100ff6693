"""A projection on disk: one RocksDB a partition, in one column family.

Each commit is one `WriteBatch` with the applied position in it, so a projection never holds half a
command. Its write-ahead log is kept but never synced: what a crash of the machine takes is read
again from the log. Damage that RocksDB notices, at opening or later, is `ProjectionDamaged`, and a disk that takes
nothing more `ProjectionUnavailable`; the partition does what that asks for.

Caveats of rocksdict: it raises bare `Exception`, translated here; options count only when passed at
every opening; a `WriteBatch` is used once; an open iterator keeps the folder locked.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from rocksdict import BlockBasedOptions, Options, Rdict, WriteBatch

from projections import layout
from projections.errors import ProjectionDamaged, ProjectionUnavailable
from projections.rows import Applied, RunRow, SessionRow, decode_run, decode_session, encode_row
from projections.view import Overlay, read_applied

T = TypeVar("T")
D = TypeVar("D")

_WRITE_BUFFER_BYTES: Final = 8 * 1024 * 1024
_CACHED_ROWS_MAX: Final = 20_000
_CHECKED_AT_OPEN_BYTES_MAX: Final = 32 * 1024 * 1024


def options() -> Options:
    """The options of a projection's database; passed again at every opening."""
    chosen = Options(raw_mode=True)
    chosen.create_if_missing(True)
    chosen.set_paranoid_checks(True)
    chosen.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    # A write that RocksDB holds up holds the GIL, and with it the whole process: let compaction fall behind instead.
    chosen.set_max_write_buffer_number(8)
    chosen.set_level_zero_slowdown_writes_trigger(200)
    chosen.set_level_zero_stop_writes_trigger(400)
    chosen.set_soft_pending_compaction_bytes_limit(0)
    chosen.set_hard_pending_compaction_bytes_limit(0)
    chosen.set_max_total_wal_size(2 * _WRITE_BUFFER_BYTES)
    chosen.set_keep_log_file_num(2)
    chosen.set_max_log_file_size(256 * 1024)
    chosen.set_stats_dump_period_sec(0)
    chosen.set_max_open_files(64)
    table = BlockBasedOptions()
    table.set_bloom_filter(10, False)
    chosen.set_block_based_table_factory(table)
    return chosen


class RocksView:
    """A projection on disk; see `projections.view.View` and `Changes`. Not for use by two threads at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        # Options of a column family count only when they are passed for it by name, at every opening.
        self._db = self._guard(lambda: Rdict(str(path), options(), column_families={"default": options()}))
        self._sessions: dict[str, SessionRow] = {}
        self._runs: dict[str, RunRow] = {}

    def get(self, key: bytes) -> bytes | None:
        """See `View`."""
        return self._guard(lambda: self._db.get(key))

    def scan(self, begin: bytes, end: bytes, limit: int, *, backwards: bool = False) -> list[tuple[bytes, bytes]]:
        """See `View`."""
        return self._guard(lambda: _scan(self._db, begin, end, limit, backwards=backwards))

    def session(self, session_id: str) -> SessionRow | None:
        """See `View`."""
        row = self._sessions.get(session_id)
        if row is None:
            data = self.get(layout.session_key(session_id))
            if data is None:
                return None
            row = self._decoded(decode_session, data)
            _remember(self._sessions, session_id, row)
        return row

    def run(self, run_id: str) -> RunRow | None:
        """See `View`."""
        row = self._runs.get(run_id)
        if row is None:
            data = self.get(layout.run_key(run_id))
            if data is None:
                return None
            row = self._decoded(decode_run, data)
            _remember(self._runs, run_id, row)
        return row

    def applied(self) -> Applied:
        """See `View`."""
        return self._decoded(read_applied, self.get(layout.APPLIED))

    def commit(self, overlay: Overlay, applied: Applied) -> None:
        """See `Changes`."""
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in overlay.rows():
            if value is None:
                delete(key)
            else:
                put(key, value)
        for begin, end in overlay.ranges:
            batch.delete_range(begin, end)
        put(layout.APPLIED, encode_row(applied))
        self._guard(lambda: self._db.write(batch))
        for session_id, session in overlay.sessions.items():
            _remember(self._sessions, session_id, session)
        for run_id, run in overlay.runs.items():
            _remember(self._runs, run_id, run)

    def check(self) -> None:
        """Read every block of a small projection, so that damage is noticed at opening. Raises `ProjectionDamaged`.

        A larger one would make opening slow; there, damage is noticed by the read that meets it.
        """
        size = sum(file.stat().st_size for file in self.path.glob("*.sst"))
        if size <= _CHECKED_AT_OPEN_BYTES_MAX:
            self._guard(lambda: _read_all(self._db))

    def flush(self) -> None:
        """Write what is in memory to files."""
        self._guard(lambda: self._db.flush(True))

    def close(self) -> None:
        """Release the folder. Safe to repeat."""
        self._guard(self._db.close)

    def _guard(self, action: Callable[[], T]) -> T:
        """Turn what rocksdict raises into what it means; the one place where that is told by its text."""
        try:
            return action()
        except Exception as error:
            # rocksdict raises bare Exception; anything more exact is a fault of ours.
            if type(error) is not Exception:
                raise
            status = str(error)
            damaged = status.startswith(("Corruption", "IO error: No such file", "Invalid argument"))
            kind = ProjectionDamaged if damaged else ProjectionUnavailable
            raise kind(f"{self.path}: {status}") from error

    def _decoded(self, decoder: Callable[[D], T], data: D) -> T:
        try:
            return decoder(data)
        except ValueError as error:
            raise ProjectionDamaged(f"{self.path}: a row cannot be read") from error


def destroy(path: Path) -> None:
    """Remove a projection's folder, whatever is in it."""
    if path.exists():
        shutil.rmtree(path)


def _remember(rows: dict[str, T], key: str, row: T) -> None:
    """Keep a row in a bounded cache; the oldest ones go first."""
    if len(rows) >= _CACHED_ROWS_MAX and key not in rows:
        del rows[next(iter(rows))]
    rows[key] = row


def _scan(db: Rdict, begin: bytes, end: bytes, limit: int, *, backwards: bool) -> list[tuple[bytes, bytes]]:
    iterator = db.iter()
    found: list[tuple[bytes, bytes]] = []
    if backwards:
        iterator.seek_for_prev(end)
        if iterator.valid() and iterator.key() == end:
            iterator.prev()
        step = iterator.prev
    else:
        iterator.seek(begin)
        step = iterator.next
    while len(found) < limit and iterator.valid():
        key = iterator.key()
        if not begin <= key < end:
            break
        found.append((key, iterator.value()))
        step()
    iterator.status()
    return found


def _read_all(db: Rdict) -> None:
    iterator = db.iter()
    iterator.seek_to_first()
    while iterator.valid():
        iterator.next()
    iterator.status()
