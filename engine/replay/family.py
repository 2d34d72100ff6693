"""The family of a run: its descendants by the links that made them, and the runs before and after it.

Walked with a list of what is left, never by recursion: a tree may be deeper than a stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from engine.reads import Reader
from engine.replay.history import History, portions
from projections import layout
from projections.rows import RunRow
from schemas.payloads import ChildRunLinkedPayload
from schemas.replays import RunTree, TreeRun
from schemas.values import CHILD_RUN_LINKED, ChildLink, RunMeta


@dataclass(frozen=True, slots=True)
class Member:
    """A run of a tree: its ID and row, how deep it stands below the top, and the link that made it."""

    run_id: str
    row: RunRow
    depth: int = 0
    link: ChildLink | None = None


async def read_tree(history: History) -> RunTree:
    """A run with its descendants, the chain that it continues and the runs that continue it. Raises `Refused`."""
    runs: list[TreeRun] = []
    for portion in portions(await members(history)):
        metas = await _metas(history, [each.run_id for each in portion])
        runs += [TreeRun(meta, each.depth, each.link) for meta, each in zip(metas, portion, strict=True)]
    before = await _metas(history, [run_id for run_id, _ in chain(history)])
    successors = await history.rows_at(layout.successors_prefix(history.row.owner, history.row.number))
    after = await _metas(history, [run_id.decode() for _, run_id in successors])
    return RunTree(tuple(runs), tuple(before), tuple(after))


async def members(history: History) -> list[Member]:
    """The run and all its descendants: each right before its own children, and those in the order of the log."""
    found: list[Member] = []
    left = [Member(history.run_id, history.row)]
    while left:
        member = left.pop()
        found.append(member)
        children: list[Member] = []
        for portion in portions(await history.positions(member.row, CHILD_RUN_LINKED)):
            children += history.look(partial(_linked, positions=portion, depth=member.depth + 1))
            await history.pause()
        left += reversed(children)
    return found


def chain(history: History) -> list[tuple[str, RunRow]]:
    """The runs that a run continues, nearest first."""
    return history.look(partial(_predecessors, row=history.row))


async def _metas(history: History, run_ids: Sequence[str]) -> list[RunMeta]:
    """Runs as they stand now."""
    found: list[RunMeta] = []
    for portion in portions(run_ids):
        found += history.look(partial(_as_they_stand, run_ids=portion))
        await history.pause()
    return found


def _as_they_stand(reader: Reader, run_ids: Sequence[str]) -> list[RunMeta]:
    return [reader.meta(run_id, row_of(reader, run_id)) for run_id in run_ids]


def _linked(reader: Reader, positions: Sequence[int], depth: int) -> list[Member]:
    """The runs that the link records at these positions made."""
    found: list[Member] = []
    for position in positions:
        payload = reader.opener.lifecycle(position)
        assert isinstance(payload, ChildRunLinkedPayload)
        child = payload.child_run_id
        link = ChildLink(child, payload.child_agent_id, payload.tool_name, payload.tool_call_id)
        found.append(Member(child, row_of(reader, child), depth, link))
    return found


def _predecessors(reader: Reader, row: RunRow) -> list[tuple[str, RunRow]]:
    found: list[tuple[str, RunRow]] = []
    while run_id := row.predecessor_run_id:
        row = row_of(reader, run_id)
        found.append((run_id, row))
    return found


def row_of(reader: Reader, run_id: str) -> RunRow:
    """The row of a run that another one's record names, so that it lives in the same partition."""
    row = reader.view.run(run_id)
    assert row is not None, f"run {run_id!r} is named by its family and has no row"
    return row
