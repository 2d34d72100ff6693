"""Which route a request is for. A path is cut at `/` first and decoded after, so that an ID may hold anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from schemas.refusals import Code, Refusal
from service.answers import JsonObject
from service.body import Body
from service.events import EventStream
from service.json_text import encoded
from service.problems import RETRY_AFTER_SECONDS, STATUS, problem
from service.query import Query, decode_percent

T = TypeVar("T")
Header = tuple[bytes, bytes]

# An answer may hold what a purge will remove, so nothing between may keep it.
_COMMON: Final[tuple[Header, ...]] = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_JSON: Final[tuple[Header, ...]] = ((b"content-type", b"application/json"), *_COMMON)
_PROBLEM: Final[tuple[Header, ...]] = ((b"content-type", b"application/problem+json"), *_COMMON)
_RETRY: Final[tuple[Header, ...]] = (*_PROBLEM, (b"retry-after", str(RETRY_AFTER_SECONDS).encode()))


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as bytes. `outcome` is `ok` or the refusal's code; `close` ends the connection after it.

    `chunks`, where there are any, are sent one by one in place of `body`; so is `live`, a stream that may never end.
    """

    status: int
    body: bytes
    headers: tuple[Header, ...]
    outcome: str = "ok"
    close: bool = False
    chunks: AsyncIterator[bytes] | None = None
    live: EventStream | None = None


def answered(answer: JsonObject) -> Reply:
    """200 with a JSON object."""
    return Reply(200, encoded(answer), _JSON)


def text(body: bytes, content_type: bytes) -> Reply:
    """200 with a body of another kind."""
    return Reply(200, body, ((b"content-type", content_type), *_COMMON))


def streamed(chunks: AsyncIterator[bytes], content_type: bytes) -> Reply:
    """200 with a body of another kind, sent as it is made."""
    return Reply(200, b"", ((b"content-type", content_type), *_COMMON), chunks=chunks)


def live(stream: EventStream, content_type: bytes) -> Reply:
    """200 with a stream; whoever is between must hand on each event as it comes."""
    headers = ((b"content-type", content_type), *_COMMON, (b"x-accel-buffering", b"no"))
    return Reply(200, b"", headers, live=stream)


def refused(
    refusal: Refusal, status: int | None = None, headers: tuple[Header, ...] = (), *, close: bool = False
) -> Reply:
    """A problem; `status` where it is not the one that the code has."""
    status = STATUS[refusal.code] if status is None else status
    base = _RETRY if refusal.code is Code.UNAVAILABLE else _PROBLEM
    return Reply(status, msgspec.json.encode(problem(refusal, status)), base + headers, refusal.code.value, close)


@dataclass(slots=True)
class Call:
    """One request that found its route: the IDs in its path, its query, both decoded, and its body."""

    ids: tuple[str, ...]
    query: Query
    body: Body


Handler = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or a header of a route, as the description of the interface tells it."""

    name: str
    schema: dict[str, Any]
    description: str


@dataclass(frozen=True, slots=True)
class Route:
    """One verb on one path (`{...}` stands for an ID), with what the description of the interface needs.

    `arguments` and `answer` are types whose JSON schema is known; an `answer` of None is not JSON, and then
    `content_type` says what it is.
    """

    verb: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    handler: Handler
    name: str
    summary: str
    answer: Any
    arguments: Any = None
    parameters: tuple[Parameter, ...] = ()
    codes: tuple[Code, ...] = ()
    content_type: str = "application/json"
    headers: tuple[Parameter, ...] = ()
    tag: str = "store"

    @property
    def known(self) -> tuple[str, ...]:
        """The names of its query parameters; another is refused."""
        return tuple(each.name for each in self.parameters)


@dataclass(slots=True)
class _Place(Generic[T]):
    literal: dict[str, _Place[T]] = field(default_factory=dict)
    any: _Place[T] | None = None
    verbs: dict[str, T] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """What is at a path, by verb (`HEAD` with `GET`), and the IDs in the path."""

    verbs: dict[str, T]
    ids: tuple[str, ...]

    @property
    def allow(self) -> str:
        """The verbs of the path, as `Allow` says them."""
        return ", ".join(self.verbs)


class Router(Generic[T]):
    """Whatever is served, found by its path."""

    def __init__(self, entries: Iterable[tuple[str, str, T]]) -> None:
        """`entries` are a verb, a path in which `{...}` stands for an ID, and what is there."""
        self._root: _Place[T] = _Place()
        self._plain: dict[bytes, Found[T]] = {}
        for verb, path, item in entries:
            self._add(verb, path, item)

    def find(self, raw_path: bytes) -> Found[T] | None:
        """What is at a path as it came over the wire; None for nothing, and where the path's encoding is broken."""
        found = self._plain.get(raw_path)
        if found is not None:
            return found
        if not raw_path.startswith(b"/"):
            return None
        place: _Place[T] | None = self._root
        ids: list[str] = []
        for segment in raw_path[1:].split(b"/"):
            name = decode_percent(segment)
            if not name or place is None:
                return None
            if name in place.literal:
                place = place.literal[name]
            else:
                place = place.any
                ids.append(name)
        return Found(place.verbs, tuple(ids)) if place is not None and place.verbs else None

    def _add(self, verb: str, path: str, item: T) -> None:
        place = self._root
        for segment in path[1:].split("/"):
            if segment.startswith("{"):
                place.any = place.any or _Place()
                place = place.any
            else:
                place = place.literal.setdefault(segment, _Place())
        assert verb not in place.verbs, f"{verb} {path} is there already"
        place.verbs[verb] = item
        if verb == "GET":
            place.verbs["HEAD"] = item
        if "{" not in path:
            self._plain[path.encode()] = Found(place.verbs, ())
