"""What a view is: something read with GET, by the IDs in its path and by its query."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from schemas.refusals import Code, Refusal, Refused
from service.answers import JsonObject
from service.ports import StorePort
from service.query import Query
from service.routing import Parameter

T = TypeVar("T")
Read = Callable[[StorePort, tuple[str, ...], Query], Awaitable[JsonObject]]

PAYLOAD: Final = Parameter(
    "payload", {"type": "string", "enum": ["json"]}, "`json` embeds payloads as JSON, digit for digit as stored."
)


@dataclass(frozen=True, slots=True)
class View:
    """One view: `read` is handed the IDs in its path and its query, and raises `Refused`."""

    path: str
    name: str
    summary: str
    answer: Any
    read: Read
    parameters: tuple[Parameter, ...] = ()
    codes: tuple[Code, ...] = ()

    @property
    def known(self) -> tuple[str, ...]:
        """The names of its parameters."""
        return tuple(each.name for each in self.parameters)


def found(value: T | Refusal) -> T:
    """A value of the store; a refusal is raised."""
    if isinstance(value, Refusal):
        raise Refused(value)
    return value
