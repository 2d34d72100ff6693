"""What the suite asks of a store: one call for methods, one for views, refusals as exceptions.

`HttpClient` speaks to a server, and checks on every answer that refusals have the form that the interface fixes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Protocol
from urllib.parse import quote

import httpx

from schemas.refusals import Code, Refusal, Refused
from tests.contract.builders import Command, Json

STATUS_OF: Final[dict[str, tuple[int, ...]]] = {
    "invalid_command": (400, 404, 405, 422),
    "invalid_cursor": (422,),
    "transcript_invalid": (422,),
    "too_large": (413,),
    "session_not_found": (404,),
    "run_not_found": (404,),
    "run_suspension_not_found": (404,),
    "transcript_not_found": (404,),
    "consumer_not_found": (404,),
    "session_purged": (410,),
    "unauthenticated": (401,),
    "forbidden": (403,),
    "unavailable": (503,),
}
"""The HTTP statuses that a code may have; every other code has 409."""


class Client(Protocol):
    """A store, however it is reached. Both raise `Refused`."""

    async def call(self, method: str, args: Json) -> Json:
        """Do a method of the store, or one of product memory by its path, and answer its result object."""
        ...

    async def get(self, path: str, **query: Any) -> Json:
        """Read a view; IDs in the path are percent-encoded."""
        ...

    async def send(self, verb: str, path: str, body: Any = None) -> Json:
        """Make, commit or delete a consumer; the name in the path is percent-encoded."""
        ...

    async def consume(self, name: str, cursor: str = "") -> list[tuple[str, Json]]:
        """What a consumer's stream gives up to now, each record with its cursor."""
        ...

    async def call_all(self, commands: Sequence[Command]) -> list[Json | Refused]:
        """Do some methods that do not depend on one another, at the least cost; refusals are told in their places."""
        ...


async def call_each(client: Client, commands: Sequence[Command]) -> list[Json | Refused]:
    """`Client.call_all` for a client that has no better way than one after the other."""
    answers: list[Json | Refused] = []
    for command in commands:
        try:
            answers.append(await client.call(command.method, command.args))
        except Refused as refused:
            answers.append(refused)
    return answers


class Cloggable(Protocol):
    """A store that can be made unable to write, and able again. Clogging loses nothing that was answered."""

    @property
    def client(self) -> Client:
        """The store."""
        ...

    async def clog(self) -> None:
        """From now on nothing can be written."""
        ...

    async def unclog(self) -> None:
        """From now on everything can be written again."""
        ...


def check_problem(problem: Json, status: int) -> Refused:
    """Check the form of a problem object against its HTTP status, and make the exception of it."""
    assert {"type", "title", "status", "detail", "code", "temporary", "ids"} <= set(problem), problem
    assert problem["status"] == status, problem
    assert status in STATUS_OF.get(problem["code"], (409,)), problem
    assert problem["temporary"] is (problem["code"] == "unavailable"), problem
    assert all(isinstance(problem[name], str) for name in ("type", "title", "detail", "code")), problem
    assert isinstance(problem["ids"], dict), problem
    return Refused(Refusal(Code(problem["code"]), problem["detail"], problem["ids"]))


class HttpClient:
    """A store behind HTTP. `http` is for what only HTTP can ask."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def call(self, method: str, args: Json) -> Json:
        """See `Client`."""
        return await self.post(f"/v1/{method}" if "/" in method else f"/v1/store/{method}", args)

    async def get(self, path: str, **query: Any) -> Json:
        """See `Client`."""
        return self.answer(await self.http.get(path, params=query))

    async def call_all(self, commands: Sequence[Command]) -> list[Json | Refused]:
        """See `Client`."""
        body = {"commands": [{"method": command.method, "args": command.args} for command in commands]}
        results = (await self.post("/v1/store/batch", body))["results"]
        errors = [result.get("error") for result in results]
        return [
            check_problem(error, error["status"]) if error else result["ok"]
            for result, error in zip(results, errors, strict=True)
        ]

    async def send(self, verb: str, path: str, body: Any = None) -> Json:
        """See `Client`."""
        content = None if body is None else json.dumps(body).encode()
        return self.answer(await self.http.request(verb, path, content=content))

    async def consume(self, name: str, cursor: str = "") -> list[tuple[str, Json]]:
        """See `Client`."""
        query = {"follow": "false", "cursor": cursor}
        response = await self.http.get(f"/v1/consumers/{quote(name, safe='')}/stream", params=query)
        if response.status_code != 200:
            self.answer(response)
        assert response.headers["content-type"] == "text/event-stream"
        found = []
        for event in response.text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in event.splitlines() if not line.startswith(":"))
            if "id" in fields:
                record = json.loads(fields["data"])
                assert fields["event"] == record["type"]
                found.append((fields["id"], record))
        return found

    async def post(self, path: str, body: Json) -> Json:
        """Post a JSON body; lone surrogates go out as escapes, which is the only way they can."""
        content = json.dumps(body, ensure_ascii=True).encode()
        return self.answer(await self.http.post(path, content=content, headers={"content-type": "application/json"}))

    def answer(self, response: httpx.Response) -> Json:
        """The result object of a response, or the refusal it carries."""
        if response.status_code == 200:
            assert response.headers["content-type"].startswith("application/json"), response.headers
            result = response.json()
            assert isinstance(result, dict), result
            return result
        assert response.headers["content-type"].startswith("application/problem+json"), response.headers
        assert response.status_code != 503 or "retry-after" in response.headers, response.headers
        raise check_problem(response.json(), response.status_code)
