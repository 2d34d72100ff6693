"""`runstore demo`."""

from __future__ import annotations

import secrets
import shlex
import time

import click

from bin.cli import story
from bin.cli.client import Client, checked_id, path_of
from bin.cli.errors import UsageError
from bin.cli.options import json_option, with_settings
from bin.cli.output import counted, plain, print_json, say
from bin.cli.settings import Settings
from schemas.times import format_time, parse_time


@click.command("demo")
@click.option("--session-id", metavar="ID", help="The session to record it in.  [default: a new one]")
@json_option
@with_settings("url")
def command(settings: Settings, *, session_id: str | None, as_json: bool) -> None:
    """Record a small, real conversation to look at.

    It holds three runs: one that uses tools and is suspended, its child, and the one that continues it. All goes
    through the API that everyone uses, so a service must be running. With the session ID of an earlier demo every
    command is an exact retry: all succeed, and nothing is written twice. That works until the session is ended;
    from then on the demo is refused.
    """
    client = Client(settings)
    created_at = time.time_ns() // 1_000_000 - story.TOLD_MS
    if session_id is None:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(created_at // 1000))
        session_id = f"demo-{stamp}-{secrets.token_hex(3)}"
    if not story.fits(checked_id(session_id, "--session-id")):
        raise UsageError(f"--session-id must be at most {story.SESSION_ID_BYTES_MAX} bytes once it is percent-encoded")
    # Of a session that exists, the stored time counts; every other time of the story follows from it.
    session = client.call("create_session", session_id=session_id, created_at=format_time(created_at))["session"]
    written, repeated = _record(client, session_id, parse_time(session["created_at"]), quiet=as_json)
    if as_json:
        print_json({"session_id": session_id, "written": written, "repeated": repeated})
    else:
        _tell_where(client, session_id, written, repeated)


def _record(client: Client, session_id: str, created_at: int, *, quiet: bool) -> tuple[int, int]:
    if not quiet:
        say(f"session {plain(session_id)}")
    written = repeated = 0
    for step in story.tell(session_id, created_at):
        if step.chapter and not quiet:
            say(f"  {step.chapter}")
        answer = client.call(step.method, **step.arguments)
        results = [value for value in answer.values() if isinstance(value, dict)] or [answer]
        written += sum(result["inserted"] for result in results)
        repeated += sum(not result["inserted"] for result in results)
    return written, repeated


def _tell_where(client: Client, session_id: str, written: int, repeated: int) -> None:
    again = f"; {repeated} were there already, from an earlier demo" if repeated else ""
    say(f"{counted(written, 'record')} written{again}")
    suspended, continued = story.run_ids(session_id)
    say()
    say("look at it:")
    for words in (
        ("sessions", "show", session_id),
        ("runs", "list", session_id),
        ("runs", "show", suspended, "--records"),
        ("runs", "show", suspended, "--payloads"),
        ("runs", "show", continued),
    ):
        say("  " + plain(client.printed(*words)))
    say("or over HTTP:")
    for path in (
        path_of("sessions", session_id, "records") + "?payload=json",
        path_of("runs", suspended),
        path_of("runs", continued, "records") + "?payload=json&type=transcript_messages_appended",
    ):
        say("  curl " + shlex.quote(client.url + path))
