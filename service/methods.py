"""The methods of the store: how each reads its arguments, asks the store and writes its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from schemas.refusals import Code, Refusal, Refused, invalid
from service import answers, arguments, render
from service.answers import JsonObject
from service.arguments import CommandArguments
from service.ports import StorePort
from service.wire import Wire, read, shown_chars_max

T = TypeVar("T")
Perform = Callable[[StorePort, Any], Awaitable[JsonObject | Refusal]]


@dataclass(frozen=True, slots=True)
class Method:
    """One method: `arguments` is what it reads, `answer` the shape it writes, `codes` how it can refuse."""

    name: str
    summary: str
    arguments: type[Wire]
    answer: type
    perform: Perform
    codes: tuple[Code, ...]


async def call(store: StorePort, method: str, args: dict[str, Any]) -> dict[str, Any]:
    """Call a method with the JSON object of its arguments; its JSON object is answered, or `Refused` raised.

    A method of product memory is called by its path, as in `memory/load_run`.
    """
    known = METHODS.get(method) or MEMORY_METHODS.get(method)
    found = unknown_method(method) if known is None else await invoke(store, known, args)
    if isinstance(found, Refusal):
        raise Refused(found)
    return dict(found)


async def invoke(store: StorePort, method: Method, args: object) -> JsonObject | Refusal:
    """The same, with a refusal as a value."""
    parsed = read(method.arguments, args)
    if isinstance(parsed, Refusal):
        return parsed
    return await method.perform(store, parsed)


def unknown_method(name: str) -> Refusal:
    """The refusal of a method that the store does not have."""
    shown = name if len(name) <= shown_chars_max and name.isprintable() else "of that name"
    return invalid(f"the store has no method {shown}")


async def _command(store: StorePort, args: CommandArguments) -> JsonObject | Refusal:
    done = await store.execute(args.command())
    return done if isinstance(done, Refusal) else render.answer(done)


async def _load_session(store: StorePort, args: arguments.OneSession) -> JsonObject | Refusal:
    found = await store.load_session(args.session_id)
    return found if isinstance(found, Refusal) else render.one_session(found)


async def _load_session_status(store: StorePort, args: arguments.OneSessionOrNone) -> JsonObject | Refusal:
    found = await store.load_session_status(args.session_id or "")
    return found if isinstance(found, Refusal) else {"status": found.value}


async def _list_runs_by_session(store: StorePort, args: arguments.ListRunsBySession) -> JsonObject | Refusal:
    found = await store.list_runs_by_session(args.session_id, args.statuses or ())
    return found if isinstance(found, Refusal) else {"runs": [render.run(each) for each in found]}


async def _list_run_records(store: StorePort, args: arguments.ListRunRecords) -> JsonObject | Refusal:
    found = await store.list_run_records(args.run_id, args.cursor or "", args.limit)
    return found if isinstance(found, Refusal) else render.page(found)


async def _list_session_records(store: StorePort, args: arguments.ListSessionRecords) -> JsonObject | Refusal:
    found = await store.list_session_records(args.session_id, args.cursor or "", args.limit)
    return found if isinstance(found, Refusal) else render.page(found)


async def _load_run(store: StorePort, args: arguments.OneRun) -> JsonObject | Refusal:
    found = await store.load_run(args.run_id)
    return found if isinstance(found, Refusal) else {"run": render.run(found)}


async def _load_checkpoint(store: StorePort, args: arguments.OneRun) -> JsonObject | Refusal:
    found = await store.load_checkpoint(args.run_id)
    return found if isinstance(found, Refusal) else render.checkpoint(found)


async def _load_memory(store: StorePort, args: arguments.OneMemory) -> JsonObject | Refusal:
    found = await store.memories.load(args.agent_id, args.run_id)
    return found if isinstance(found, Refusal) else render.snapshot(found)


_SESSION: Final = (Code.SESSION_NOT_FOUND, Code.SESSION_PURGED)
_START: Final = (Code.RUN_CONFLICT, Code.RECORD_CONFLICT)
_CONTINUED: Final = (*_SESSION, *_START, Code.RUN_NOT_FOUND, Code.CONTINUATION_MISMATCH)
_CHILD: Final = (
    Code.RUN_NOT_FOUND,
    Code.RUN_SESSION_MISMATCH,
    Code.RECORD_OWNER_MISMATCH,
    Code.RUN_NOT_ACTIVE,
)
_ON_A_RUN: Final = (
    Code.SESSION_PURGED,
    Code.RUN_NOT_FOUND,
    Code.RECORD_OWNER_MISMATCH,
    Code.RECORD_CONFLICT,
)

_ALL: Final = (
    Method(
        "create_session",
        "Open a session; an active one is answered as it is.",
        arguments.CreateSession,
        answers.OneSessionAnswer,
        _command,
        (Code.SESSION_ENDED, Code.SESSION_PURGED),
    ),
    Method("load_session", "Load a session.", arguments.OneSession, answers.OneSessionAnswer, _load_session, _SESSION),
    Method(
        "load_session_status",
        "Load a session's status; no session at all is `session_not_found`.",
        arguments.OneSessionOrNone,
        answers.StatusAnswer,
        _load_session_status,
        _SESSION,
    ),
    Method(
        "end_session",
        "End a session; once answered, no later start in it proceeds.",
        arguments.EndSession,
        answers.OneSessionAnswer,
        _command,
        _SESSION,
    ),
    Method(
        "purge_session",
        "Remove an ended session with all its runs for good, and seal its ID.",
        arguments.PurgeSession,
        answers.EmptyAnswer,
        _command,
        (Code.SESSION_NOT_FOUND, Code.SESSION_ACTIVE, Code.SESSION_HAS_ACTIVE_RUNS),
    ),
    Method(
        "list_runs_by_session",
        "List a session's runs in start order.",
        arguments.ListRunsBySession,
        answers.RunsAnswer,
        _list_runs_by_session,
        _SESSION,
    ),
    Method(
        "start_root_run",
        "Start a run at the top of a session; in an ended one it is stopped at once.",
        arguments.StartRootRun,
        answers.StartAnswer,
        _command,
        _CONTINUED,
    ),
    Method(
        "start_child_run",
        "Start a run that a tool call of its parent asked for.",
        arguments.StartChildRun,
        answers.StartAnswer,
        _command,
        tuple(dict.fromkeys((*_CONTINUED, *_CHILD))),
    ),
    Method(
        "start_one_shot_run",
        "Start a run that has no session.",
        arguments.StartOneShotRun,
        answers.StartAnswer,
        _command,
        _START,
    ),
    Method(
        "start_one_shot_child_run",
        "Start a child of a run that has no session.",
        arguments.StartOneShotChildRun,
        answers.StartAnswer,
        _command,
        (*_START, *_CHILD),
    ),
    Method(
        "append_record",
        "Add one ordinary record to a run's history.",
        arguments.AppendRecord,
        answers.AppendAnswer,
        _command,
        (*_ON_A_RUN, Code.RUN_NOT_ACTIVE),
    ),
    Method(
        "list_run_records",
        "Read a page of a run's records.",
        arguments.ListRunRecords,
        answers.PageAnswer,
        _list_run_records,
        (Code.RUN_NOT_FOUND, Code.INVALID_CURSOR),
    ),
    Method(
        "list_session_records",
        "Read a page of a session's records, in commit order.",
        arguments.ListSessionRecords,
        answers.PageAnswer,
        _list_session_records,
        (*_SESSION, Code.INVALID_CURSOR),
    ),
    Method(
        "record_cancellation",
        "Store the first request to cancel a run; the run stays running.",
        arguments.RecordCancellation,
        answers.AppendAnswer,
        _command,
        (*_ON_A_RUN, Code.RUN_CANCELLATION_CONFLICT, Code.RUN_NOT_ACTIVE),
    ),
    Method(
        "record_suspension",
        "Suspend a run, with the checkpoint that lets it be continued.",
        arguments.RecordSuspension,
        answers.AppendAnswer,
        _command,
        (*_ON_A_RUN, Code.RUN_SUSPENSION_CONFLICT, Code.RUN_TERMINAL_CONFLICT),
    ),
    Method(
        "record_terminal",
        "Complete, fail or cancel a run.",
        arguments.RecordTerminal,
        answers.AppendAnswer,
        _command,
        (*_ON_A_RUN, Code.RUN_TERMINAL_CONFLICT),
    ),
    Method(
        "repair_suspension",
        "Suspend a run if it is still running; else tell who owns its state.",
        arguments.RepairSuspension,
        answers.RepairAnswer,
        _command,
        _ON_A_RUN,
    ),
    Method(
        "repair_terminal",
        "End a run if it is still running; else tell who owns its state.",
        arguments.RepairTerminal,
        answers.RepairAnswer,
        _command,
        _ON_A_RUN,
    ),
    Method("load_run", "Load a run.", arguments.OneRun, answers.OneRunAnswer, _load_run, (Code.RUN_NOT_FOUND,)),
    Method(
        "load_checkpoint",
        "Load the checkpoint of a suspended run.",
        arguments.OneRun,
        answers.CheckpointAnswer,
        _load_checkpoint,
        (Code.RUN_NOT_FOUND, Code.RUN_SUSPENSION_NOT_FOUND),
    ),
)

METHODS: Final = {method.name: method for method in _ALL}
"""Every method of the store by its name. Each may also refuse with `invalid_command`, `too_large` and `unavailable`."""

MEMORY_METHODS: Final = {
    method.name: method
    for method in (
        Method(
            "memory/append_events",
            "Add events to what is remembered of a run by an agent, all or none; an exact repeat adds nothing.",
            arguments.AppendEvents,
            answers.EmptyAnswer,
            _command,
            (),
        ),
        Method(
            "memory/load_run",
            "Read all that is remembered of a run by an agent.",
            arguments.OneMemory,
            answers.MemoryAnswer,
            _load_memory,
            (),
        ),
        Method(
            "memory/purge_run",
            "Remove what is remembered of a run by an agent for good; it may be begun again.",
            arguments.PurgeMemory,
            answers.EmptyAnswer,
            _command,
            (),
        ),
    )
}
"""The methods of product memory, by their paths; no batch takes them."""
