"""The views that are read from a run's records, each a value or a refusal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from engine.cursors import Cursors
from engine.environment import Environment
from engine.partition import PartitionUnavailable
from engine.replay.exports import Export, run_export, session_export, tree_export
from engine.replay.family import read_tree
from engine.replay.history import History, history_of, session_history_of
from engine.replay.provenance import read_prompts
from engine.replay.tool_calls import read_tool_calls
from engine.replay.transcripts import read_model_input, read_transcript
from engine.router import Router
from schemas.refusals import Refusal, Refused, invalid
from schemas.replays import ModelInput, Prompts, RunTree, ToolCalls, Transcript
from schemas.text import check_id

T = TypeVar("T")


class Replay:
    """Reading runs back, over the partitions of one store. Writes nothing, and keeps nothing."""

    def __init__(
        self,
        router: Router,
        cursors: Cursors,
        environment: Environment,
        bounded: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        """`bounded` lets what is inside take no longer than a caller waits for the proof that a state is not old."""
        self._router = router
        self._cursors = cursors
        self._environment = environment
        self._bounded = bounded

    async def transcript(self, run_id: str, through: str = "") -> Transcript | Refusal:
        """The messages of a run in record order, all or through one of its records, and how they keep the rules."""
        return await self._read(run_id, lambda history: read_transcript(history, through))

    async def model_input(self, run_id: str, keep_turns: int = 0) -> ModelInput | Refusal:
        """What the next model call of a run would see, the newest turns apart where `keep_turns` is not 0."""
        return await self._read(run_id, lambda history: read_model_input(history, keep_turns))

    async def prompts(self, run_id: str, *, descendants: bool = True, predecessors: bool = False) -> Prompts | Refusal:
        """The prompts that shaped a run, its descendants', and those of the chain that it continues."""
        return await self._read(
            run_id,
            lambda history: read_prompts(history, with_descendants=descendants, with_predecessors=predecessors),
        )

    async def tree(self, run_id: str) -> RunTree | Refusal:
        """A run with its descendants, the chain that it continues and the runs that continue it."""
        return await self._read(run_id, read_tree)

    async def tool_calls(self, run_id: str) -> ToolCalls | Refusal:
        """The tool calls of a run, each with its result."""
        return await self._read(run_id, read_tool_calls)

    async def export_run(self, run_id: str) -> Export | Refusal:
        """A run with its descendants, to read elsewhere."""
        return await self._read(run_id, run_export)

    async def export_tree(self, root_run_id: str) -> Export | Refusal:
        """A sessionless tree, to import elsewhere."""
        return await self._read(root_run_id, tree_export)

    async def export_session(self, session_id: str) -> Export | Refusal:
        """A session with all its runs, to import elsewhere."""
        if (problem := check_id(session_id, "session_id")) is not None:
            return invalid(problem)
        home = self._router.home_of(session_id)
        try:
            async with self._bounded():
                row, prefix = await session_history_of(home, self._cursors, session_id, self._pause)
            return await session_export(session_id, row, prefix)
        except PartitionUnavailable as error:
            return error.refusal
        except Refused as refused:
            return refused.refusal

    async def _read(self, run_id: str, read: Callable[[History], Awaitable[T]]) -> T | Refusal:
        if (problem := check_id(run_id, "run_id")) is not None:
            return invalid(problem)
        try:
            async with self._bounded():
                home = await self._router.run_home(run_id)
                history = await history_of(home, self._cursors, run_id, self._pause)
            return await read(history)
        except PartitionUnavailable as error:
            return error.refusal
        except Refused as refused:
            return refused.refusal

    async def _pause(self) -> None:
        await self._environment.sleep(0)
