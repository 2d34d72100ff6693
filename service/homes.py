"""Which commands of a batch belong together: those of one session, or of one tree of sessionless runs.

What the commands name is enough for sessions. A sessionless run names its parent only when it starts, so where it
matters the store is asked for the rest of its tree; what it tells never changes, so it cannot be out of date.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from schemas.refusals import Refusal
from schemas.text import check_id
from service.arguments import CommandArguments
from service.methods import Method
from service.ports import StorePort
from service.wire import Wire

Named = tuple[Literal["session", "run", "unsettled"], str]

_UNSETTLED: Final[Named] = ("unsettled", "")
_RUN_NAMES: Final = ("run_id", "parent_run_id", "predecessor_run_id")


@dataclass(frozen=True, slots=True)
class Planned:
    """A command of a batch that can be attempted: its place in the batch, its method, what it asks, the IDs in it."""

    index: int
    method: Method
    arguments: Wire
    ids: Mapping[str, str] = field(default_factory=dict)


async def by_home(store: StorePort, items: Sequence[Planned]) -> list[list[Planned]]:
    """The items in groups that do not depend on each other, each group in the order given."""
    named = [_named(item) for item in items]
    homes = _Homes()
    for names in named:
        homes.join(names)
    if any(isinstance(item.arguments, CommandArguments) for item in items):
        await _learn(store, homes)
    groups: dict[Named | int, list[Planned]] = defaultdict(list)
    for item, names in zip(items, named, strict=True):
        groups[homes.of(names[0]) if names else item.index].append(item)
    return list(groups.values())


def _named(item: Planned) -> list[Named]:
    """The session and the runs that a command names. All of them live in one home, or it is refused."""
    names: list[Named] = []
    arguments = item.arguments
    for place in (arguments, getattr(arguments, "run", None), getattr(arguments, "record", None)):
        session_id = getattr(place, "session_id", None)
        if session_id:
            names.append(("session", session_id))
        for name in _RUN_NAMES:
            run_id = getattr(place, name, None)
            if run_id:
                names.append(("run", run_id))
    return names


async def _learn(store: StorePort, homes: _Homes) -> None:
    """Ask the store for the sessions and parents that the batch does not tell, where several homes are left."""
    asked: set[str] = set()
    asking = homes.runs_without_session()
    while asking:
        asked |= asking
        order = sorted(asking)
        found = await asyncio.gather(*(store.load_run(run_id) for run_id in order))
        asking = set()
        for run_id, run in zip(order, found, strict=True):
            if isinstance(run, Refusal):
                if run.temporary:
                    homes.join([("run", run_id), _UNSETTLED])
            elif run.session_id:
                homes.join([("run", run_id), ("session", run.session_id)])
            elif run.parent_run_id:
                homes.join([("run", run_id), ("run", run.parent_run_id)])
                asking.add(run.parent_run_id)
        asking -= asked


class _Homes:
    """Sets of names that belong together."""

    def __init__(self) -> None:
        self._above: dict[Named, Named] = {}

    def join(self, names: Iterable[Named]) -> None:
        """These names belong together."""
        first: Named | None = None
        for name in names:
            if first is None:
                first = self.of(name)
            else:
                self._above[self.of(name)] = first

    def of(self, name: Named) -> Named:
        """The one name that stands for all that belong together with this one."""
        above = self._above.setdefault(name, name)
        while above != name:
            self._above[name] = self._above[above]
            name, above = above, self._above[above]
        return name

    def runs_without_session(self) -> set[str]:
        """The runs whose home is not known by a session, if there is any other home to tell them from."""
        tops = {name: self.of(name) for name in list(self._above)}
        if len(set(tops.values())) <= 1:
            return set()
        known = {top for (kind, _), top in tops.items() if kind == "session"}
        return {
            value
            for (kind, value), top in tops.items()
            if kind == "run" and top not in known and check_id(value, "run_id") is None
        }
