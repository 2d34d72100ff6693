"""Reading a long run back beside a short one: what a view costs must not grow with the records that it does not need.

Both runs hold the same 20 prompts, 20 transcript records and 20 tool calls, evenly spread; the rest is other records.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.measuring import Measured, measure_tasks
from bench.ours import CANCELED, STARTED, loop_factory
from bench.workers import Handler
from bench.workload import AGENT, EPOCH_MS, TERMINAL_KEY, Content
from engine.environment import SystemEnvironment
from engine.opening import StoreSettings, open_store
from engine.store import Store
from schemas.commands import AppendRecord, CreateSession, StartRootRun
from schemas.refusals import Refusal
from schemas.values import NewRecord, RunStart

SHORT_RECORDS: Final = 100
VIEWS: Final = ("load_run", "run_detail", "prompts", "transcript", "model_input", "tree", "tool_calls")
NEEDED: Final = 20
"""Records of each type that a view needs."""

_BATCH_RECORDS: Final = 1000
_SESSION: Final = "sess-read"


@dataclass(frozen=True, slots=True)
class Write:
    """Write the two runs, the long one with so many records."""

    records: int


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Read a view of a run, one read after the other."""

    view: str
    long: bool
    seconds: float


def make_handler(folder: Path) -> Handler:
    """Return what writes the runs (`Write`, first) and measures on them; None closes the store."""
    runner = asyncio.Runner(loop_factory=loop_factory())
    store = runner.run(open_store(StoreSettings(folder / "store"), SystemEnvironment()))

    def handle(request: Write | ReadBack | None) -> Measured | None:
        match request:
            case Write(records):
                return runner.run(_write(store, records))
            case ReadBack(view, long, seconds):
                return runner.run(_read(store, view, "long" if long else "short", seconds))
            case None:
                runner.run(store.close())
                runner.close()
                return None

    return handle


async def _write(store: Store, records: int) -> Measured:
    begun = time.perf_counter()
    _done(await store.execute(CreateSession(_SESSION, EPOCH_MS)))
    for run_id, length in (("short", SHORT_RECORDS), ("long", records)):
        run = RunStart(AGENT, run_id, EPOCH_MS, _SESSION)
        started = _record(run_id, Content("run_started", STARTED), f"{run_id}/start")
        canceled = _record(run_id, Content("run_completed", CANCELED), TERMINAL_KEY)
        _done(await store.execute(StartRootRun(run, started, canceled)))
        for batch in _batches(run_id, length):
            for answer in await store.execute_in_order(batch):
                _done(answer)
    seconds = time.perf_counter() - begun
    return Measured(SHORT_RECORDS + records, seconds, 0.0, 0.0)


async def _read(store: Store, view: str, run_id: str, seconds: float) -> Measured:
    replay = store.replay
    views: dict[str, Callable[[str], Awaitable[object]]] = {
        "load_run": store.load_run,
        "run_detail": store.run_detail,
        "prompts": replay.prompts,
        "transcript": replay.transcript,
        "model_input": lambda run_id: replay.model_input(run_id, 3),
        "tree": replay.tree,
        "tool_calls": replay.tool_calls,
    }

    async def read() -> None:
        _done(await views[view](run_id))

    return await measure_tasks(seconds, [read])


def _batches(run_id: str, length: int) -> Iterator[list[AppendRecord]]:
    """A run's ordinary records, those that views need evenly among them; its start is a record too."""
    spread = (length - 1) // (3 * NEEDED)
    batch: list[AppendRecord] = []
    for number in range(1, length):
        turn, rest = divmod(number, spread) if spread else (number, 0)
        content = _needed(turn) if rest == 0 and turn <= 3 * NEEDED else Content("usage", '{"Model":"m"}')
        batch.append(AppendRecord(_record(run_id, content, f"{run_id}/{number}")))
        if len(batch) == _BATCH_RECORDS:
            yield batch
            batch = []
    yield batch


def _needed(number: int) -> Content:
    match number % 3:
        case 0:
            return Content("prompt_rendered", f'{{"PromptID":"p{number}","Version":"v1","Scope":null}}')
        case 1:
            message = '{"role":"user","parts":[{"kind":"text","text":"What is the weather?"}],"meta":null}'
            return Content("transcript_messages_appended", f"[{message}]")
        case _:
            return Content("tool_call_scheduled", f'{{"ToolCallID":"call-{number}","ToolName":"t"}}')


def _record(run_id: str, content: Content, event_key: str) -> NewRecord:
    return NewRecord(
        event_key=event_key,
        run_id=run_id,
        agent_id=AGENT,
        session_id=_SESSION,
        turn_id="turn-1",
        type=content.type,
        timestamp=EPOCH_MS,
        payload=content.payload.encode(),
    )


def _done(answer: object) -> None:
    if isinstance(answer, Refusal):
        raise RuntimeError(f"refused: {answer.detail}")  # noqa: TRY004 # no type is wrong
