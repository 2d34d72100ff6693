"""The running service, as the command line asks it: HTTP with the standard library, so that commands start at once."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from bin.cli.errors import CliError, Problem, Unreachable, UsageError
from bin.cli.hints import hint
from bin.cli.program import at_service, serve_at
from bin.cli.settings import Settings
from schemas.text import check_id

answer_seconds_max: Final = 60.0
probe_seconds_max: Final = 1.0
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


def answers_there(url: str) -> bool:
    """Whether a Runstore answers at a URL now."""
    try:
        status, _, answer = _exchange(url, "GET", "/livez", None, probe_seconds_max)
        return status == _OK and json.loads(answer) == {"live": True}
    except (OSError, http.client.HTTPException, ValueError):
        return False


@dataclass(frozen=True)
class Event:
    """One event of a stream; `cursor` is empty for what is no record."""

    cursor: str
    event: str
    data: str


class Client:
    """One service. Every method raises `Problem` for a refusal, and `CliError` where no service answers."""

    def __init__(self, settings: Settings) -> None:
        self.url = settings.service_url
        self._settings = settings

    def printed(self, *words: str) -> str:
        """A command for this service as people can paste it."""
        return at_service(self._settings, self.url, *words)

    def get(self, *parts: str, **query: str) -> dict[str, Any]:
        """Read a view; empty query parameters are left out."""
        return self.get_text(*parts, **query)[0]

    def get_text(self, *parts: str, **query: str) -> tuple[dict[str, Any], str]:
        """Read a view, and its JSON text too, in which every digit and escape is as it came."""
        given = {name: value for name, value in query.items() if value}
        told, text = self._ask("GET", path_of(*parts) + ("?" + urlencode(given) if given else ""), None)
        return told, text.decode()

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call a method of the store."""
        return self.post("store", method, arguments=arguments)

    def post(self, *parts: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Post a JSON object."""
        return self._ask("POST", path_of(*parts), json.dumps(arguments).encode())[0]

    def attempt(self, method: str, arguments: dict[str, Any]) -> Problem | None:
        """Call a method of the store; the refusal where there is one."""
        try:
            self.post("store", method, arguments=arguments)
        except Problem as problem:
            return problem
        return None

    def batch(self, commands: Sequence[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
        """Do commands in their order; the first refusal is raised, though those after it may have been done."""
        asked = [{"method": method, "args": arguments} for method, arguments in commands]
        results = self.post("store", "batch", arguments={"commands": asked})["results"]
        for each in results:
            if "error" in each:
                raise self._problem(each["error"], reading=False)
        return [each["ok"] for each in results]

    def lines(self, *parts: str, headers: Mapping[str, str] | None = None, **query: str) -> Iterator[bytes]:
        """Read lines as they come, each with its end; one that was cut has none. Empty parameters are left out."""
        given = {name: value for name, value in query.items() if value}
        path = path_of(*parts) + ("?" + urlencode(given) if given else "")
        try:
            with _opened(self.url, "GET", path, None, answer_seconds_max, headers) as answer:
                if answer.status != _OK:
                    self._told(answer.status, answer.headers.get_content_type(), answer.read(), reading=True)
                yield from answer
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None

    def events(self, *parts: str, last: str = "", **query: str) -> Iterator[Event]:
        """Read the events of a stream as they come, from after the cursor `last`, for as long as it lasts.

        Raises `Unreachable` where no service answers, or no more.
        """
        headers = {"Last-Event-ID": last} if last else {}
        fields: dict[str, str] = {}
        for line in self.lines(*parts, headers=headers, **query):
            name, _, value = line.decode().removesuffix("\n").partition(": ")
            if line == b"\n" and "event" in fields:
                yield Event(fields.get("id", ""), fields["event"], fields["data"])
            if line == b"\n":
                fields = {}
            elif line.endswith(b"\n"):
                fields[name] = value

    def _ask(self, verb: str, path: str, body: bytes | None) -> tuple[dict[str, Any], bytes]:
        reading = verb == "GET"
        try:
            status, kind, answer = _exchange(self.url, verb, path, body, answer_seconds_max)
        except TimeoutError:
            unknown = "" if reading else "whether it did what was asked is not known; "
            raise CliError(
                f"the service at {self.url} has not answered for {answer_seconds_max:.0f} s",
                f"{unknown}`{self.printed('status')}` shows how the store stands",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None
        return self._told(status, kind, answer, reading=reading), answer

    def _unreachable(self, error: Exception) -> Unreachable:
        start = serve_at(self.url)
        return Unreachable(
            f"no service answers at {self.url} ({_why(error)})",
            f"start one with `{start}`, or name the running one with --url"
            if start
            else "name the running service with --url",
        )

    def _told(self, status: int, kind: str, answer: bytes, *, reading: bool) -> dict[str, Any]:
        """The object that was answered. Raises `Problem` for a refusal."""
        try:
            told = json.loads(answer)
        except ValueError:
            told = None
        if isinstance(told, dict) and status == _OK:
            return told
        if isinstance(told, dict) and kind == _PROBLEM and isinstance(told.get("code"), str):
            raise self._problem(told, reading=reading)
        raise CliError(f"what answers at {self.url} is no Runstore (HTTP {status})", "name the service with --url")

    def _problem(self, told: dict[str, Any], *, reading: bool) -> Problem:
        code, detail, ids = told["code"], str(told.get("detail", "")), told.get("ids")
        known = {name: str(value) for name, value in ids.items()} if isinstance(ids, dict) else {}
        return Problem(code, detail, hint(code, detail, known, self.printed, reading=reading))


def _exchange(url: str, verb: str, path: str, body: bytes | None, seconds: float) -> tuple[int, str, bytes]:
    with _opened(url, verb, path, body, seconds) as answer:
        return answer.status, answer.headers.get_content_type(), answer.read()


@contextmanager
def _opened(
    url: str, verb: str, path: str, body: bytes | None, seconds: float, more: Mapping[str, str] | None = None
) -> Iterator[http.client.HTTPResponse]:
    parts = urlsplit(url)
    maker = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    assert parts.hostname, "the settings checked the URL"
    connection = maker(parts.hostname, parts.port, timeout=seconds)
    try:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(verb, parts.path + path, body, headers | dict(more or {}))
        yield connection.getresponse()
    finally:
        connection.close()


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return type(error).__name__
