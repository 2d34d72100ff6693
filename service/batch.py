"""Many commands in one request. Each is atomic by itself, the batch is not; within a home they keep their order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

from pydantic import Field, WithJsonSchema

from schemas.limits import batch_commands_max
from schemas.refusals import Code, Refusal, refuse
from service import answers, render
from service.answers import BatchDone, BatchRefused, JsonObject
from service.arguments import CommandArguments
from service.homes import Planned, by_home
from service.methods import METHODS, Method, unknown_method
from service.metrics import Metrics
from service.ports import StoreHolder, StorePort
from service.problems import problem
from service.request import read_object
from service.routing import Call, Reply, Route, answered, refused
from service.unexpected import unexpected
from service.wire import Wire, ids_of, read

_ITEM_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "description": "One command: a method of the store, and what its own path would take as the body.",
    "properties": {
        "method": {"type": "string", "enum": sorted(METHODS)},
        "args": {"type": ["object", "null"]},
    },
    "required": ["method"],
    "additionalProperties": False,
}


class Batch(Wire):
    """At most 1,000 commands. What is wrong with one of them is told in its own place."""

    commands: Annotated[list[Annotated[Any, WithJsonSchema(_ITEM_SCHEMA)]], Field(max_length=batch_commands_max)]


class BatchItem(Wire):
    """One command of a batch."""

    method: str
    args: Any = None


Result = JsonObject | Refusal
Shown = BatchDone | BatchRefused

_UNKNOWN_METHOD_STATUS: Final = 404


class Batches:
    """The batches of one store, over HTTP."""

    def __init__(self, holder: StoreHolder, metrics: Metrics) -> None:
        self._holder = holder
        self._metrics = metrics

    def routes(self) -> Iterator[Route]:
        """The one route."""
        yield Route(
            "POST",
            "/v1/store/batch",
            self._call,
            "batch",
            "Do many commands, each answered in its place; those of one session or sessionless tree keep their order.",
            answers.BatchAnswer,
            arguments=Batch,
            codes=(Code.TOO_LARGE,),
        )

    async def _call(self, call: Call) -> Reply:
        args = await read_object(call.body)
        if isinstance(args, Reply):
            return args
        batch = read(Batch, args)
        if isinstance(batch, Refusal):
            return refused(batch)
        return answered({"results": await self._run(batch.commands)})

    async def _run(self, items: Sequence[object]) -> list[Shown]:
        shown: dict[int, Shown] = {}
        ready: list[Planned] = []
        store = self._holder.get()
        for index, item in enumerate(items):
            plan = self._plan(index, item)
            if not isinstance(plan, Planned):
                shown[index] = plan
            elif isinstance(store, Refusal):
                shown[index] = self._settled(plan.method, store)
            else:
                ready.append(plan)
        if not isinstance(store, Refusal):
            groups = await by_home(store, ready)
            await asyncio.gather(*(self._in_order(store, group, shown) for group in groups))
        return [shown[index] for index in range(len(items))]

    def _plan(self, index: int, item: object) -> Planned | BatchRefused:
        parsed = read(BatchItem, item)
        if isinstance(parsed, Refusal):
            return {"error": problem(parsed)}
        method = METHODS.get(parsed.method)
        if method is None:
            return {"error": problem(unknown_method(parsed.method), _UNKNOWN_METHOD_STATUS)}
        args = {} if parsed.args is None else parsed.args
        arguments = read(method.arguments, args)
        if isinstance(arguments, Refusal):
            self._metrics.command(method.name, arguments.code.value)
            return {"error": problem(arguments)}
        return Planned(index, method, arguments, ids_of(args))

    def _settled(self, method: Method, result: Result) -> Shown:
        """Count what became of a command, and show it."""
        if isinstance(result, Refusal):
            self._metrics.command(method.name, result.code.value)
            return {"error": problem(result)}
        self._metrics.command(method.name, "ok")
        return {"ok": dict(result)}

    async def _in_order(self, store: StorePort, group: list[Planned], shown: dict[int, Shown]) -> None:
        """Do the commands of one home, each after the one before it, and none after one that is `unavailable`."""
        stopped = False
        for part in _parts(group):
            if stopped:
                results: list[Result] = [_not_attempted(item) for item in part]
            else:
                results = await self._attempt(store, part)
            for item, result in zip(part, results, strict=True):
                stopped = stopped or (isinstance(result, Refusal) and result.temporary)
                shown[item.index] = self._settled(item.method, result)

    async def _attempt(self, store: StorePort, part: list[Planned]) -> list[Result]:
        try:
            commands = [item.arguments.command() for item in part if isinstance(item.arguments, CommandArguments)]
            if commands:
                done = await store.execute_in_order(commands)
                return [each if isinstance(each, Refusal) else render.answer(each) for each in done]
            return [await item.method.perform(store, item.arguments) for item in part]
        except Exception as error:  # noqa: BLE001 - others go on
            self._metrics.bug()
            refusal = unexpected(error)
            return [refusal for _ in part]


def _parts(group: list[Planned]) -> Iterator[list[Planned]]:
    """A home's commands as the store takes them: neighbours that change something together, each read alone."""
    together: list[Planned] = []
    for item in group:
        if isinstance(item.arguments, CommandArguments):
            together.append(item)
            continue
        if together:
            yield together
            together = []
        yield [item]
    if together:
        yield together


def _not_attempted(item: Planned) -> Refusal:
    return refuse(
        Code.UNAVAILABLE,
        "not attempted, because an earlier command of this batch for the same session or tree is unavailable",
        **item.ids,
    )
