"""What was asked, what was answered, and what a campaign found wrong."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tests.contract.builders import Command
from tests.kafka.faults.stores import Said

PARTS: Final = ("parent_linked", "started", "record")
"""The records that a command may write, in the order in which it writes them."""

examples_max: Final = 5


@dataclass(slots=True, eq=False)
class Entry:
    """A command, whoever repeated it wherever, and every answer to it. `rival`: of the two, one alone may be done."""

    command: Command
    rival: Entry | None = None
    asked_at: float = math.inf
    attempts: int = 0
    abandoned: bool = False
    answers: list[Said] = field(default_factory=list)
    refusals: list[Said] = field(default_factory=list)

    @property
    def records(self) -> list[tuple[str, str]]:
        """Run ID and event key of each record that it writes, in order."""
        args = self.command.args
        return [(args[name]["run_id"], args[name]["event_key"]) for name in PARTS if name in args]

    @property
    def acknowledged_at(self) -> float:
        """When it was first answered."""
        return min((said.answered_at for said in self.answers), default=math.inf)


def record_ids(command: Command, said: Said) -> list[str]:
    """The IDs that an answer gives to the command's records, in the order in which they are written."""
    assert said.answer is not None
    if "id" in said.answer:
        return [str(said.answer["id"])]
    return [str(said.answer[name]["id"]) for name in PARTS if name in command.args and name in said.answer]


def inserted(said: Said) -> bool:
    """Whether an answer says that it was this asking that wrote the command's records."""
    assert said.answer is not None
    first: dict[str, object] = next(
        (said.answer[name] for name in ("started", "record") if name in said.answer), said.answer
    )
    return first.get("inserted") is True


@dataclass
class Problems:
    """What was wrong, counted by kind, with a few examples of each."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, kind: str, what: str) -> None:
        """Note one."""
        self.counts[kind] += 1
        if self.counts[kind] <= examples_max:
            self.examples.append(f"{kind}: {what[:600]}")

    def expect(self, holds: bool, kind: str, what: str) -> None:
        """Note one unless it holds."""
        if not holds:
            self.add(kind, what)

    def __str__(self) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()))


@dataclass
class Ledger:
    """All commands of a campaign."""

    entries: list[Entry] = field(default_factory=list)
    problems: Problems = field(default_factory=Problems)
    reads: int = 0

    def enter(self, command: Command) -> Entry:
        """A new command."""
        entry = Entry(command)
        self.entries.append(entry)
        return entry

    def enter_rivals(self, one: Command, other: Command) -> tuple[Entry, Entry]:
        """Two commands of which only one can be done."""
        first, second = self.enter(one), self.enter(other)
        first.rival, second.rival = second, first
        return first, second
