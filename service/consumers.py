"""Named consumers over HTTP: made, committed, deleted. They are listed by a view."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from schemas.consumers import Scope, StartAt
from schemas.refusals import Code, Refusal
from service import answers, render
from service.answers import JsonObject
from service.arguments import Commit, ConsumerInput
from service.ports import StoreHolder, StorePort
from service.request import read_object
from service.routing import Call, Reply, Route, answered, refused
from service.wire import read

Perform = Callable[[StorePort, str, dict[str, Any]], Awaitable[JsonObject | Refusal]]


async def put(store: StorePort, name: str, args: dict[str, Any]) -> JsonObject | Refusal:
    """Make a consumer."""
    parsed = read(ConsumerInput, args)
    if isinstance(parsed, Refusal):
        return parsed
    kind, subject_id = parsed.scope
    found = await store.consumers.put(name, Scope(kind, subject_id), parsed.types or (), StartAt(parsed.begin))
    return found if isinstance(found, Refusal) else render.consumer(found)


async def commit(store: StorePort, name: str, args: dict[str, Any]) -> JsonObject | Refusal:
    """Note up to where a consumer has dealt with what it reads."""
    parsed = read(Commit, args)
    if isinstance(parsed, Refusal):
        return parsed
    found = await store.consumers.commit(name, parsed.cursor)
    return found if isinstance(found, Refusal) else render.consumer(found)


async def delete(store: StorePort, name: str) -> JsonObject | Refusal:
    """Remove a consumer."""
    found = await store.consumers.delete(name)
    return found if isinstance(found, Refusal) else {}


class Consumers:
    """The consumers of one store, over HTTP."""

    def __init__(self, holder: StoreHolder) -> None:
        self._holder = holder

    def routes(self) -> Iterator[Route]:
        """Every route but that of the list."""
        yield Route(
            "PUT",
            "/v1/consumers/{name}",
            partial(self._with_body, put),
            "put_consumer",
            "Make a consumer; the same again changes nothing.",
            answers.ConsumerAnswer,
            arguments=ConsumerInput,
            codes=(
                Code.CONSUMER_CONFLICT,
                Code.SESSION_NOT_FOUND,
                Code.SESSION_PURGED,
                Code.RUN_NOT_FOUND,
                Code.TOO_LARGE,
            ),
            tag="consumers",
        )
        yield Route(
            "DELETE",
            "/v1/consumers/{name}",
            self._delete,
            "delete_consumer",
            "Remove a consumer; its name may be used again.",
            answers.EmptyAnswer,
            codes=(Code.CONSUMER_NOT_FOUND,),
            tag="consumers",
        )
        yield Route(
            "POST",
            "/v1/consumers/{name}/commit",
            partial(self._with_body, commit),
            "commit_consumer",
            "Note that all up to a cursor of the consumer's stream is dealt with; backwards changes nothing.",
            answers.ConsumerAnswer,
            arguments=Commit,
            codes=(Code.CONSUMER_NOT_FOUND, Code.INVALID_CURSOR, Code.TOO_LARGE),
            tag="consumers",
        )

    async def _with_body(self, perform: Perform, call: Call) -> Reply:
        args = await read_object(call.body)
        if isinstance(args, Reply):
            return args
        answer = await perform(self._holder.require(), call.ids[0], args)
        return refused(answer) if isinstance(answer, Refusal) else answered(answer)

    async def _delete(self, call: Call) -> Reply:
        answer = await delete(self._holder.require(), call.ids[0])
        return refused(answer) if isinstance(answer, Refusal) else answered(answer)
