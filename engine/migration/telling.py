"""What a move tells while it goes on."""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[str, float], None]
"""Told what is being done, and which share of it is done already, 0 to 1."""


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
