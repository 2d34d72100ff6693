"""A partition as its counted commands, each with the bytes that the log holds: what a move carries over.

The position rule alone says what counts. Void records stay behind, and so leave holes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from projections.position_rule import PositionRule
from projections.rebuild import Source
from schemas.log_record import LogRecord

read_records_max: Final = 1000


@dataclass(frozen=True, slots=True)
class Command:
    """The records of one command, which are never parted: the first one's position, keys of the topic, and bytes."""

    position: int
    keys: tuple[bytes | None, ...]
    data: tuple[bytes, ...]

    @property
    def end(self) -> int:
        """The position after its last record."""
        return self.position + len(self.data)

    @property
    def bytes(self) -> int:
        """How long its records are."""
        return sum(map(len, self.data))


async def walk(source: Source, rule: PositionRule, partition: int, end: int) -> AsyncIterator[list[Command]]:
    """The counted commands from `rule.end` up to the offset `end`, some at a time.

    Raises what reading does, and `HistoryBroken`.
    """
    held: dict[int, bytes] = {}
    while rule.end < end:
        entries = await source.read(partition, rule.end, min(read_records_max, end - rule.end))
        if not entries:
            return
        held.update({entry.offset: entry.data for entry in entries})
        found = [_command(each.records, held) for each in rule.feed(entries)]
        # What has been read of a command that is not whole yet is needed again; all before it is not.
        whole = rule.applied().position
        held = {offset: data for offset, data in held.items() if offset >= whole}
        yield found


def _command(records: Sequence[LogRecord], held: dict[int, bytes]) -> Command:
    return Command(
        records[0].position,
        tuple(topic_key(record) for record in records),
        tuple(held[record.position] for record in records),
    )


def topic_key(record: LogRecord) -> bytes | None:
    """The key that a record has in a topic: its run's ID, if it has one."""
    return record.run_id.encode() or None
