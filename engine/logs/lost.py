"""What a log has lost: records that this machine had copied and that the log does not hold any more.

They are written down for the operator, one file a loss, one line a record, before the copy follows the log. A line has
the position, the IDs, and the record as it was; what is sealed in it stays sealed.
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from engine.durable import make_folder, sync_folder
from engine.logs.interface import LogEntry
from schemas.log_record import Kind, LogRecord, RecordUnreadable, decode

_log = logging.getLogger("runstore.lost")

named_in_log_max: Final = 20
_NO_COMMANDS: Final = (Kind.BARRIER.value,)


class LostRecords:
    """The files of losses in a folder, which is made with the first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counts: dict[int, int] = {}
        for path in sorted(folder.glob("p*.jsonl")) if folder.is_dir() else ():
            partition = int(path.name[1:5])
            self._counts[partition] = self._counts.get(partition, 0) + path.read_bytes().count(b"\n")

    def count(self, partition: int) -> int:
        """How many lost records of a partition are written down."""
        return self._counts.get(partition, 0)

    def write(self, partition: int, position: int, held: Iterable[LogEntry]) -> None:
        """Write down what was held from a position on, and say it loudly. Raises `OSError`."""
        path = self._path(partition, position)
        count = 0
        named: list[str] = []
        with path.with_name(path.name + ".new").open("w", encoding="utf-8") as file:
            for entry in held:
                record = _counted(entry)
                if record is None:
                    continue
                count += 1
                file.write(json.dumps(_line(record, entry.data)) + "\n")
                if len(named) < named_in_log_max and record.kind not in _NO_COMMANDS:
                    named.append(f"{record.position} ({record.kind} {record.run_id or record.session_id})")
            file.flush()
            os.fsync(file.fileno())
        path.with_name(path.name + ".new").replace(path)
        sync_folder(self._folder)
        self._counts[partition] = self.count(partition) + count
        _log.critical(
            "partition %d: the log no longer holds what it held from position %d on: %d acknowledged records are lost, "
            "and kept in %s for you: %s%s",
            partition,
            position,
            count,
            path,
            ", ".join(named),
            ", …" if count > len(named) else "",
        )

    def _path(self, partition: int, position: int) -> Path:
        make_folder(self._folder)
        number = 1
        while (path := self._folder / f"p{partition:04d}-from-{position:012d}-{number}.jsonl").exists():
            number += 1
        return path


def _counted(entry: LogEntry) -> LogRecord | None:
    """The record, unless it was void where it stood."""
    try:
        record = decode(entry.data)
    except RecordUnreadable:
        return None
    return record if record.position == entry.offset else None


def _line(record: LogRecord, data: bytes) -> dict[str, Any]:
    return {
        "position": record.position,
        "command_id": record.command_id.hex(),
        "kind": record.kind,
        "type": record.type,
        "session_id": record.session_id,
        "run_id": record.run_id,
        "event_key": record.event_key,
        "appended_at": record.appended_at,
        "record": base64.b64encode(data).decode("ascii"),
    }
