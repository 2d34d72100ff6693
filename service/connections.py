"""Connections that a request can end at once, with what is still to be sent on them.

Closing one waits until all of that has left, which it never does while the reader does not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_EXTENSION: Final = "runstore.connection"


class Connection(HttpToolsProtocol):
    """Uvicorn's connection, whose requests can abort it."""

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        extensions: dict[str, Any] = {_EXTENSION: {"abort": self.transport.abort}}
        self.scope["extensions"] = extensions


def abort(scope: Mapping[str, Any]) -> None:
    """End the connection of a request at once; elsewhere than on such a connection nothing happens."""
    extension = (scope.get("extensions") or {}).get(_EXTENSION)
    if extension is not None:
        end: Callable[[], None] = extension["abort"]
        end()
