"""What operators ask: is it alive, is it ready, how does it stand, and build the views anew."""

from __future__ import annotations

from schemas.refusals import Code, Refusal, refuse
from service import answers, render
from service.arguments import Nothing
from service.metrics import CONTENT_TYPE, Metrics
from service.ports import KafkaPlace, StoreHolder
from service.request import read_object
from service.routing import Call, Reply, Route, answered, refused, text
from service.wire import read


class Operations:
    """The operators' routes of one service."""

    def __init__(self, holder: StoreHolder, metrics: Metrics, kafka: KafkaPlace | None = None) -> None:
        self._holder = holder
        self._metrics = metrics
        self._kafka = kafka

    def routes(self) -> tuple[Route, ...]:
        """Every route of operators."""
        return (
            Route(
                "GET",
                "/livez",
                self._live,
                "livez",
                "Tell that the process answers.",
                answers.LiveAnswer,
                tag="operations",
            ),
            Route(
                "GET",
                "/readyz",
                self._ready,
                "readyz",
                "Tell whether every partition is applied to the end it had at start.",
                answers.ReadyAnswer,
                tag="operations",
            ),
            Route(
                "GET",
                "/v1/status",
                self._status,
                "show_status",
                "Show how every partition stands.",
                answers.StoreAnswer,
                tag="operations",
            ),
            Route(
                "GET",
                "/metrics",
                self._exposition,
                "metrics",
                "Read the metrics in the text format of Prometheus.",
                None,
                content_type="text/plain",
                tag="operations",
            ),
            Route(
                "POST",
                "/v1/admin/rebuild",
                self._rebuild,
                "start_rebuild",
                "Build every view anew from the log; answers when it has started.",
                answers.EmptyAnswer,
                arguments=Nothing,
                tag="operations",
            ),
        )

    async def _live(self, _call: Call) -> Reply:
        return answered({"live": True})

    async def _ready(self, _call: Call) -> Reply:
        if self._holder.ready():
            return answered({"ready": True})
        store = self._holder.get()
        if isinstance(store, Refusal):
            return refused(store)
        waiting = [each for each in (await store.status()).partitions if each.state != "serving"]
        why = next((f"; {each.last_error}" for each in waiting if each.last_error), "")
        told = (
            ", ".join(f"partition {each.partition} is {each.state}" for each in waiting) + why
            or "the store is closing, or its key store has failed and it must be started again"
        )
        return refused(refuse(Code.UNAVAILABLE, told))

    async def _status(self, _call: Call) -> Reply:
        store = self._holder.require()
        return answered(render.store_state(await store.status(), self._kafka, ready=store.ready()))

    async def _exposition(self, _call: Call) -> Reply:
        store = self._holder.get()
        state = None if isinstance(store, Refusal) else await store.status()
        return text(self._metrics.exposition(state, ready=self._holder.ready()), CONTENT_TYPE)

    async def _rebuild(self, call: Call) -> Reply:
        args = await read_object(call.body, empty_is_legal=True)
        if isinstance(args, Reply):
            return args
        parsed = read(Nothing, args)
        if isinstance(parsed, Refusal):
            return refused(parsed)
        started = await self._holder.require().start_rebuild()
        return answered({}) if started is None else refused(started)
