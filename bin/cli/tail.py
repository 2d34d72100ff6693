"""`runstore runs tail`: a run's records as they land, over however many connections that takes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Final

import click

from bin.cli.client import Client, Event, checked_id
from bin.cli.errors import CliError, Problem, Unreachable
from bin.cli.options import json_option, with_settings
from bin.cli.output import note, plain, print_json_line, print_record
from bin.cli.settings import Settings
from schemas.refusals import Code
from schemas.streams import Ending

away_seconds_max: Final = 60.0
"""How long a service that answered before may be away."""

_WAIT_SECONDS_FIRST: Final = 0.1
_WAIT_SECONDS_MAX: Final = 2.0


@click.command("tail")
@click.argument("run_id", metavar="RUN")
@click.option("--type", "types", multiple=True, help="Only records of this type; may be given more than once.")
@click.option("--cursor", default="", help="Begin after the record with this cursor.")
@json_option
@with_settings("url")
def tail(settings: Settings, *, run_id: str, types: tuple[str, ...], cursor: str, as_json: bool) -> None:
    """Show a run's records, those that are there and then each as it lands, until the run has ended.

    A connection that breaks is made again, and nothing is shown twice or left out. With --json each record is a line.
    """
    checked_id(run_id, "RUN")
    follower = _Follower(Client(settings), run_id, types, cursor)
    while (event := follower.next()).cursor:
        if as_json:
            print_json_line(event.data)
        else:
            print_record(json.loads(event.data))
    if event.event == Ending.PURGED:
        raise CliError(f"run {plain(run_id)} has been purged", "its records are gone for good")
    if not as_json:
        note(f"the run is {json.loads(event.data)['status']}")


class _Follower:
    """The events of one run's stream; it goes on from the last cursor whenever the connection breaks."""

    def __init__(self, client: Client, run_id: str, types: tuple[str, ...], cursor: str) -> None:
        self._client = client
        self._run_id = run_id
        self._types = ",".join(types)
        self._cursor = cursor
        self._events = self._connected()
        self._answered = False

    def next(self) -> Event:
        """The next event. Raises a `CliError` once it cannot go on."""
        away_since: float | None = None
        wait = _WAIT_SECONDS_FIRST
        while True:
            try:
                event = next(self._events, None)
                self._answered = True
            except (Unreachable, Problem) as error:
                temporary = isinstance(error, Unreachable) or error.code == Code.UNAVAILABLE
                away_since = away_since or time.monotonic()
                if not temporary or not self._answered or time.monotonic() - away_since > away_seconds_max:
                    raise
                event = None
            if event is not None:
                self._cursor = event.cursor or self._cursor
                return event
            time.sleep(wait)
            wait = min(2 * wait, _WAIT_SECONDS_MAX)
            self._events = self._connected()

    def _connected(self) -> Iterator[Event]:
        return self._client.events("runs", self._run_id, "stream", last=self._cursor, types=self._types)
