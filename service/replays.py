"""The views that are read back from a run's records: what was said, what shaped it, its family, its tool calls."""

from __future__ import annotations

from typing import Final

from schemas.refusals import Code
from service import render_replays, replay_answers
from service.answers import JsonObject
from service.ports import StorePort
from service.query import Query, count_of, flag_of, payload_is_json
from service.routing import Parameter
from service.view import PAYLOAD, View, found


async def _transcript(store: StorePort, ids: tuple[str, ...], query: Query) -> JsonObject:
    payload_is_json(query)
    return render_replays.transcript(found(await store.replay.transcript(ids[0], query.get("through", ""))))


async def _model_input(store: StorePort, ids: tuple[str, ...], query: Query) -> JsonObject:
    embed, keep_turns = payload_is_json(query), count_of(query, "keep_turns")
    return render_replays.model_input(found(await store.replay.model_input(ids[0], keep_turns)), embed=embed)


async def _prompts(store: StorePort, ids: tuple[str, ...], query: Query) -> JsonObject:
    embed = payload_is_json(query)
    descendants = flag_of(query, "descendants", default=True)
    predecessors = flag_of(query, "predecessors", default=False)
    asked = store.replay.prompts(ids[0], descendants=descendants, predecessors=predecessors)
    return render_replays.prompts(found(await asked), embed=embed)


async def _tree(store: StorePort, ids: tuple[str, ...], query: Query) -> JsonObject:
    payload_is_json(query)
    return render_replays.tree(found(await store.replay.tree(ids[0])))


async def _tool_calls(store: StorePort, ids: tuple[str, ...], query: Query) -> JsonObject:
    embed = payload_is_json(query)
    return render_replays.tool_calls(found(await store.replay.tool_calls(ids[0])), embed=embed)


_THROUGH: Final = Parameter("through", {"type": "string"}, "A record ID of the run: nothing after it is shown.")
_KEEP_TURNS: Final = Parameter(
    "keep_turns",
    {"type": "integer", "minimum": 0, "default": 0},
    "How many of the newest turns to keep apart; 0: none.",
)
_DESCENDANTS: Final = Parameter(
    "descendants", {"type": "boolean", "default": True}, "Whether the prompts of child runs, and of theirs, count."
)
_PREDECESSORS: Final = Parameter(
    "predecessors", {"type": "boolean", "default": False}, "Whether the prompts of the runs that it continues count."
)
_OF_TRANSCRIPT: Final = (Code.RUN_NOT_FOUND, Code.TRANSCRIPT_NOT_FOUND, Code.TRANSCRIPT_INVALID)

REPLAY_VIEWS: Final = (
    View(
        "/v1/runs/{id}/transcript",
        "show_transcript",
        "Read the messages of a run in record order, and how they keep the rules for transcripts.",
        replay_answers.TranscriptAnswer,
        _transcript,
        (_THROUGH, PAYLOAD),
        _OF_TRANSCRIPT,
    ),
    View(
        "/v1/runs/{id}/model-input",
        "show_model_input",
        "Read what the next model call of a run would see.",
        replay_answers.ModelInputAnswer,
        _model_input,
        (_KEEP_TURNS, PAYLOAD),
        _OF_TRANSCRIPT,
    ),
    View(
        "/v1/runs/{id}/prompts",
        "show_prompts",
        "List the prompts that shaped a run, each version once.",
        replay_answers.PromptsAnswer,
        _prompts,
        (_DESCENDANTS, _PREDECESSORS, PAYLOAD),
        (Code.RUN_NOT_FOUND,),
    ),
    View(
        "/v1/runs/{id}/tree",
        "show_tree",
        "Show a run's descendants, and the runs before and after it.",
        replay_answers.TreeAnswer,
        _tree,
        (PAYLOAD,),
        (Code.RUN_NOT_FOUND,),
    ),
    View(
        "/v1/runs/{id}/tool-calls",
        "show_tool_calls",
        "List a run's tool calls, each with its result.",
        replay_answers.ToolCallsAnswer,
        _tool_calls,
        (PAYLOAD,),
        (Code.RUN_NOT_FOUND,),
    ),
)
"""Each may also refuse with `invalid_command` and `unavailable`."""
