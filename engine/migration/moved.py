"""What a move came to."""

from __future__ import annotations

from dataclasses import dataclass

from engine.migration.copying_all import CopiedAll


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move came to. `moved` is False where the store was there already.

    `records` are those that count; of what the target holds, `records_written` were written just now, in
    `copy_seconds`, and `records_checked` were read back in `check_seconds`.
    """

    moved: bool
    partitions: int
    records: int = 0
    records_written: int = 0
    bytes_written: int = 0
    copy_seconds: float = 0.0
    records_checked: int = 0
    check_seconds: float = 0.0
    keys: int = 0
    started_again: int = 0
    set_aside: str = ""


def moved_now(copied: CopiedAll, check_seconds: float, *, records_checked: int, keys: int, started_again: int) -> Moved:
    """What it came to when all was copied by this command."""
    return Moved(
        moved=True,
        partitions=len(copied.partitions),
        records=copied.records,
        records_written=sum(each.records_written for each in copied.partitions),
        bytes_written=sum(each.bytes_written for each in copied.partitions),
        copy_seconds=copied.seconds,
        records_checked=records_checked,
        check_seconds=check_seconds,
        keys=keys,
        started_again=started_again,
    )
