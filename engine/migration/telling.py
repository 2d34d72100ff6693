"""What a move tells while it goes on, and what it came to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Tell = Callable[[str, float], None]
"""Told what is being done, and which share of it is done already, 0 to 1."""


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


class Shares:
    """Turns how far each partition has come into the share of the whole."""

    def __init__(self, tell: Tell, what: str, ends: list[int]) -> None:
        self._tell = tell
        self._what = what
        self._before = [sum(ends[:partition]) for partition in range(len(ends))]
        self._all = max(1, sum(ends))
        self._count = len(ends)

    def of(self, partition: int) -> Callable[[int], None]:
        """What a partition tells how far it has come."""
        text = f"{self._what}, partition {partition} of {self._count}"
        return lambda reached: self._tell(text, min(1.0, (self._before[partition] + reached) / self._all))
