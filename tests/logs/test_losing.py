"""What a local copy writes down as lost when the log turns out to be another one."""

from __future__ import annotations

import json
from pathlib import Path

from engine.environment import SystemEnvironment
from engine.logs.copying import Copying, Piece
from engine.logs.interface import LogEntry
from engine.logs.local_copy import LocalCopy
from engine.logs.lost import LostRecords
from schemas.log_record import LogRecord, encode


def history(name: bytes, begin: int, end: int) -> list[LogEntry]:
    """Records that count, of one history."""
    return [
        LogEntry(position, encode(LogRecord(position=position, command_id=name * 16, appended_at=1, kind="barrier")))
        for position in range(begin, end)
    ]


async def test_what_was_copied_of_the_new_history_before_the_old_one_was_compared_is_not_lost(tmp_path: Path) -> None:
    old, new = history(b"o", 0, 20), history(b"n", 12, 36)
    log = [*old[:12], *new]

    async def read(partition: int, offset: int) -> Piece:
        assert partition == 0
        found = log[offset : offset + 7]
        return Piece(found, offset + len(found))

    copy = LocalCopy(tmp_path / "copy", 1)
    lost = LostRecords(tmp_path / "lost")
    copying = Copying(copy, read, lost, SystemEnvironment(""))
    copy.write(0, old, 20)
    await copying.up_to(0, 36)
    assert copy.end(0) == 36
    assert lost.count(0) == 0
    await copying.keep(0, await read(0, 15), 15)
    (file,) = (tmp_path / "lost").glob("*.jsonl")
    # All from 12 to 35 were told as lost.
    assert [json.loads(line)["position"] for line in file.read_text().splitlines()] == list(range(12, 20))
    assert lost.count(0) == 8
    await copying.up_to(0, 36)
    assert copying.fetch(0, range(36)) == [entry.data for entry in log]
    await copying.close()
