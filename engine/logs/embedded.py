"""The embedded log: RocksDB on this machine's disk, one writer for all partitions, an fsync before every answer.

Basics
  Batches that wait, of whatever partitions, are written together and fsynced together (group commit). While an fsync
  runs, in a thread of its own that does not hold the GIL, the next ones gather. A batch is answered after an fsync that
  began when its write had returned.
  A read sees only what was answered for, or was found when the log was opened.

Caveats
  After a failed write or fsync nobody knows what the disk holds, and the kernel may have dropped what it could not
  write. So the log is closed and opened again, and is asked what it holds; until then it is unavailable.
  RocksDB takes no write after it has met a damaged table while it merged tables. From then on they are not merged.
  A Python thread that keeps the GIL busy delays every answer by up to the switch interval (`sys.setswitchinterval`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.environment import Environment
from engine.logs.files import LogFiles, LogLocked, position_max
from engine.logs.interface import (
    AppendRefused,
    LogClosed,
    LogCorrupt,
    LogEntry,
    LogError,
    LogUnavailable,
    OutcomeUnknown,
)
from engine.logs.rocks import WriteStalled
from engine.logs.wal import Acknowledged

__all__ = ["EmbeddedLog", "LogLocked"]

_log = logging.getLogger(__name__)

write_records_max: Final = 1000
write_bytes_max: Final = 8 * 1024 * 1024
partitions_max: Final = 65_535
stall_wait_seconds: Final = 0.01
reopen_wait_seconds_first: Final = 0.05
reopen_wait_seconds_max: Final = 5.0


class EmbeddedLog:
    """A `Log` in a folder that this object alone has open. Belongs to one event loop."""

    def __init__(self, path: Path, partitions: int, environment: Environment) -> None:
        """Open the log, or make it. Blocks while RocksDB recovers.

        Raises `LogLocked`, `LogCorrupt` (acknowledged records are damaged or lost), `LogUnavailable`, or `LogError`
        where the log has records of more partitions than asked for.
        """
        assert 1 <= partitions <= partitions_max
        self._path = path
        self._partitions = partitions
        self._environment = environment
        self._files: LogFiles | None = LogFiles(path, partitions)
        self._ends = self._files.ends_at_opening
        self._waiting: list[_Append] = []
        self._in_flight: set[int] = set()
        self._writer: asyncio.Task[None] | None = None
        self._reopener: asyncio.Task[None] | None = None
        self._closer: asyncio.Task[None] | None = None
        self._failure = ""
        self._merging = True
        self._sync_thread = ThreadPoolExecutor(1, "log-fsync")

    @property
    def partitions(self) -> int:
        """See `Log`."""
        return self._partitions

    @property
    def exclusive(self) -> bool:
        """True: the folder is locked."""
        return True

    async def append(self, partition: int, position: int, batch: Sequence[bytes], run_ids: Sequence[str] = ()) -> int:
        """See `Log`. A position above the end leaves a hole; one below it, or a second batch in flight, is refused."""
        del run_ids
        if self._closer is not None:
            raise LogClosed(f"the log {self._path} is closed", partition=partition, position=position)
        self._refuse_unless_legal(partition, position, batch)
        append = _Append(partition, position, batch, asyncio.get_running_loop().create_future())
        self._in_flight.add(partition)
        self._waiting.append(append)
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_waiting())
        await append.landed
        return position

    def _refuse_unless_legal(self, partition: int, position: int, batch: Sequence[bytes]) -> None:
        assert 0 <= partition < self._partitions
        why = ""
        if self._files is None:
            why = self._unavailable()
        elif partition in self._files.damaged_ends:
            why = str(self._files.damaged_ends[partition])
        elif partition in self._in_flight:
            why = "another batch of this partition is in flight"
        elif position < self._ends[partition]:
            why = f"the partition ends at {self._ends[partition]}"
        elif not batch or position + len(batch) > position_max:
            why = f"{len(batch)} records cannot be appended there"
        if why:
            raise AppendRefused(
                f"partition {partition} took no batch at {position}: {why}", partition=partition, position=position
            )

    async def read(self, partition: int, position: int, records_max: int = 1000) -> list[LogEntry]:
        """See `Log`. Returns at most about 4 MiB; blocks for as long as that takes."""
        return self._sound(partition).read(partition, position, self._ends[partition], records_max)

    def fetch(self, partition: int, positions: Sequence[int]) -> list[bytes]:
        """See `Log`. Also raises `LogUnavailable`."""
        return self._opened().fetch(partition, positions)

    def stored(self, partition: int, position: int, end: int, records_max: int) -> list[LogEntry]:
        """See `Log`. Returns at most about 4 MiB."""
        files = self._sound(partition)
        return files.read(partition, position, min(end, self._ends[partition]), records_max)

    async def start(self, partition: int) -> int:
        """See `Log`."""
        assert 0 <= partition < self._partitions
        return 0

    async def end(self, partition: int) -> int:
        """See `Log`."""
        self._sound(partition)
        return self._ends[partition]

    def lost(self, partition: int) -> int:
        """See `Log`. Damage stops the partition instead."""
        del partition
        return 0

    async def close(self) -> None:
        """See `Log`. What waits is still written."""
        if self._closer is None:
            self._closer = asyncio.create_task(self._close())
        await asyncio.shield(self._closer)

    async def _close(self) -> None:
        if self._writer is not None:
            await self._writer
        if self._reopener is not None:
            self._reopener.cancel()
            await asyncio.wait([self._reopener])
        if self._files is not None:
            files, self._files = self._files, None
            await asyncio.get_running_loop().run_in_executor(self._sync_thread, files.close)
        self._sync_thread.shutdown()

    def _opened(self) -> LogFiles:
        if self._files is None:
            raise LogUnavailable(self._unavailable())
        return self._files

    def _sound(self, partition: int) -> LogFiles:
        """The files, unless damage hides where the partition ends: then what it holds cannot be told."""
        files = self._opened()
        if partition in files.damaged_ends:
            raise files.damaged_ends[partition]
        return files

    def _unavailable(self) -> str:
        if self._closer is not None:
            return f"the log {self._path} is closed"
        return f"the log {self._path} is being opened again after: {self._failure}"

    # -- the writer

    async def _write_waiting(self) -> None:
        while self._waiting and (files := self._files):
            group, self._waiting = self._waiting, []
            tried: list[_Append] = []
            try:
                await self._store(files, group, tried)
            except Exception as error:  # noqa: BLE001 # any failure is fatal
                self._fail(files, group, tried, error)
                break
            for append in group:
                self._ends[append.partition] = append.position + len(append.batch)
                self._answer(append, None)
        self._writer = None

    async def _store(self, files: LogFiles, group: list[_Append], tried: list[_Append]) -> None:
        """Write a group and make it durable. `tried` grows by what may have been written."""
        written = None
        for chunk in _chunks(group):
            if written is not None:
                await self._environment.sleep(0)  # Each write holds the GIL; between two, others may run.
            tried += chunk
            self._environment.failpoint("log.before_write")
            batches = [(append.partition, append.position, append.batch) for append in chunk]
            written = await self._write(files, batches)
            self._environment.failpoint("log.after_write")
        assert written is not None
        await asyncio.get_running_loop().run_in_executor(self._sync_thread, files.sync)
        self._environment.failpoint("log.after_fsync")
        files.acknowledge(written)

    async def _write(self, files: LogFiles, batches: list[tuple[int, int, Sequence[bytes]]]) -> Acknowledged:
        stalled = False
        while True:
            try:
                return files.write(batches)
            except WriteStalled as error:
                if not stalled:
                    _log.warning("%s", error)
                stalled = True
            await self._environment.sleep(stall_wait_seconds)

    def _answer(self, append: _Append, error: LogError | None) -> None:
        self._in_flight.discard(append.partition)
        if append.landed.done():  # Its caller was cancelled.
            return
        if error is None:
            append.landed.set_result(None)
        else:
            append.landed.set_exception(error)

    # -- after a failure

    def _fail(self, files: LogFiles, group: list[_Append], tried: list[_Append], error: Exception) -> None:
        _log.error("the log %s failed and is closed: %s", self._path, error)
        self._files = None
        self._failure = str(error)
        if isinstance(error, LogCorrupt) and self._merging:
            # Found by RocksDB while it merged tables. Whoever reads there will know; the other partitions go on.
            _log.critical("a table of the log %s is damaged: tables are not merged any more", self._path)
            self._merging = False
        untried = group[len(tried) :] + self._waiting
        self._waiting = []
        for append in tried:
            self._answer(append, append.failed(OutcomeUnknown, error))
        for append in untried:
            self._answer(append, append.failed(AppendRefused, error))
        self._reopener = asyncio.create_task(self._reopen(files))

    async def _reopen(self, failed: LogFiles) -> None:
        # Shielded, for a `close` cancels this task, and the files must be released all the same.
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._sync_thread, failed.close))
        wait = reopen_wait_seconds_first
        loop = asyncio.get_running_loop()
        while (files := await loop.run_in_executor(self._sync_thread, self._open_again)) is None:
            await self._environment.sleep(wait)
            wait = min(2 * wait, reopen_wait_seconds_max)
        self._files, self._ends = files, files.ends_at_opening
        self._reopener = None
        _log.warning("the log %s is open again", self._path)

    def _open_again(self) -> LogFiles | None:
        try:
            return LogFiles(self._path, self._partitions, merging=self._merging)
        except Exception as error:  # noqa: BLE001 # the next attempt may succeed
            _log.error("the log %s could not be opened again: %s", self._path, error)
            self._failure = str(error)
            return None


@dataclass(frozen=True, slots=True, eq=False)
class _Append:
    partition: int
    position: int
    batch: Sequence[bytes]
    landed: asyncio.Future[None]

    def failed(self, kind: type[LogError], error: Exception) -> LogError:
        return kind(
            f"partition {self.partition}, batch at {self.position}: {error}",
            partition=self.partition,
            position=self.position,
        )


def _chunks(group: list[_Append]) -> Iterator[list[_Append]]:
    """Split a group into writes within the bounds; a batch that exceeds them alone is a write of its own."""
    chunk: list[_Append] = []
    records_left, bytes_left = write_records_max, write_bytes_max
    for append in group:
        size = sum(map(len, append.batch))
        if chunk and (len(append.batch) > records_left or size > bytes_left):
            yield chunk
            chunk, records_left, bytes_left = [], write_records_max, write_bytes_max
        chunk.append(append)
        records_left -= len(append.batch)
        bytes_left -= size
    yield chunk
