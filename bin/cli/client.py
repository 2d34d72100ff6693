"""The running service, as the command line asks it: HTTP with the standard library, so that commands start at once."""

from __future__ import annotations

import http.client
import json
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from bin.cli.errors import CliError, Problem, UsageError
from schemas.text import check_id

answer_seconds_max: Final = 60.0
_PROBLEM: Final = "application/problem+json"
_OK: Final = 200


def checked_id(text: str, name: str) -> str:
    """The ID as given. Raises `UsageError` for what can be no ID, since a path with it might mean another thing."""
    problem = check_id(text, name)
    if problem is not None:
        raise UsageError(problem)
    return text


def path_of(*parts: str) -> str:
    """A path below `/v1`, every part percent-encoded whole: IDs may hold slashes."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


class Client:
    """One service. Every method raises `Problem` for a refusal, and `CliError` where no service answers."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, *parts: str, **query: str) -> dict[str, Any]:
        """Read a view; empty query parameters are left out."""
        given = {name: value for name, value in query.items() if value}
        return self._ask("GET", path_of(*parts) + ("?" + urlencode(given) if given else ""), None)

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call a method of the store."""
        return self.post("store", method, arguments=arguments)

    def post(self, *parts: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Post a JSON object."""
        return self._ask("POST", path_of(*parts), json.dumps(arguments).encode())

    def _ask(self, verb: str, path: str, body: bytes | None) -> dict[str, Any]:
        try:
            status, kind, answer = self._exchange(verb, path, body)
        except TimeoutError:
            raise CliError(
                f"the service at {self.url} has not answered for {answer_seconds_max:.0f} s",
                "whether it did what was asked is not known; `runstore status` shows how the store stands",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise CliError(
                f"no service answers at {self.url} ({_why(error)})",
                "start one with `runstore serve`, or name the running one with --url",
            ) from None
        try:
            told = json.loads(answer)
        except ValueError:
            told = None
        if isinstance(told, dict) and status == _OK:
            return told
        if isinstance(told, dict) and kind == _PROBLEM and isinstance(told.get("code"), str):
            raise Problem(told["code"], str(told.get("detail", "")))
        raise CliError(f"what answers at {self.url} is no Runstore (HTTP {status})", "name the service with --url")

    def _exchange(self, verb: str, path: str, body: bytes | None) -> tuple[int, str, bytes]:
        parts = urlsplit(self.url)
        maker = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        assert parts.hostname, "the settings checked the URL"
        connection = maker(parts.hostname, parts.port, timeout=answer_seconds_max)
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(verb, parts.path + path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers.get_content_type(), answer.read()
        finally:
            connection.close()


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return type(error).__name__
