"""The routes of the methods of the store and of product memory: one path each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from schemas.refusals import Code, Refusal
from service.methods import MEMORY_METHODS, METHODS, Method, invoke
from service.metrics import Metrics
from service.ports import StoreHolder
from service.request import read_object
from service.routing import Call, Reply, Route, answered, refused


class Commands:
    """The methods of one store, over HTTP."""

    def __init__(self, holder: StoreHolder, metrics: Metrics) -> None:
        self._holder = holder
        self._metrics = metrics

    def routes(self) -> Iterator[Route]:
        """Every method's route."""
        for method in METHODS.values():
            yield Route(
                "POST",
                f"/v1/store/{method.name}",
                partial(self._call, method),
                method.name,
                method.summary,
                method.answer,
                arguments=method.arguments,
                codes=(*method.codes, Code.TOO_LARGE),
            )
        for method in MEMORY_METHODS.values():
            yield Route(
                "POST",
                f"/v1/{method.name}",
                partial(self._call, method),
                method.name.replace("/", "_"),
                method.summary,
                method.answer,
                arguments=method.arguments,
                codes=(*method.codes, Code.TOO_LARGE),
                tag="memory",
            )

    async def _call(self, method: Method, call: Call) -> Reply:
        reply = await self._reply(method, call)
        self._metrics.command(method.name, reply.outcome)
        return reply

    async def _reply(self, method: Method, call: Call) -> Reply:
        args = await read_object(call.body)
        if isinstance(args, Reply):
            return args
        store = self._holder.get()
        answer = store if isinstance(store, Refusal) else await invoke(store, method, args)
        return refused(answer) if isinstance(answer, Refusal) else answered(answer)
