"""The prompts that shaped a run, read from `prompt_rendered` and link records alone."""

from __future__ import annotations

from engine.replay.family import chain, members
from engine.replay.history import History, portions
from schemas.message_forms import FormError
from schemas.replays import Prompts, PromptUse, Unreadable
from schemas.view_records import PROMPT_RENDERED, read_prompt_rendered


async def read_prompts(history: History, *, with_descendants: bool, with_predecessors: bool) -> Prompts:
    """Each prompt and version once, where the log first has it. Raises `Refused`.

    Over the run, its descendants where they are asked for, and the runs of the chain that it continues likewise.
    """
    rows = [each.row for each in await members(history)] if with_descendants else [history.row]
    if with_predecessors:
        rows += [row for _, row in chain(history)]
    positions: list[int] = []
    for row in rows:
        positions += await history.positions(row, PROMPT_RENDERED)
    first: dict[tuple[str, str], PromptUse] = {}
    unreadable: list[Unreadable] = []
    for portion in portions(sorted(positions)):
        for record in await history.records(portion):
            try:
                prompt = read_prompt_rendered(record.content.payload)
            except FormError as error:
                unreadable.append(Unreadable(record, str(error)))
                continue
            use = PromptUse(prompt.prompt_id, prompt.version, prompt.scope, record.content.run_id, record.id)
            first.setdefault((prompt.prompt_id, prompt.version), use)
    return Prompts(tuple(first.values()), tuple(unreadable))
