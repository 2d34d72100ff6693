"""`runstore sessions`: list, show, end and purge; export and import are in `bin.cli.transfers`."""

from __future__ import annotations

import sys
import time
from typing import Any, Final

import click

from bin.cli import transfers
from bin.cli.client import Client, checked_id
from bin.cli.errors import CliError, UsageError
from bin.cli.groups import Group
from bin.cli.options import json_option, with_settings
from bin.cli.output import (
    counted,
    note,
    plain,
    print_facts,
    print_json,
    print_table,
    run_counts,
    say,
    short_time,
)
from bin.cli.settings import Settings
from schemas.limits import page_records_max
from schemas.times import format_time, parse_time
from schemas.values import SessionStatus

_LISTED_DEFAULT: Final = 50
_TIME_EXAMPLE: Final = "2026-11-30T14:56:46Z"


@click.group("sessions", cls=Group)
def command() -> None:
    """List, show, end, purge, export and import sessions."""


for each in (transfers.export_session, transfers.import_session):
    command.add_command(each)


@command.command("list")
@click.option(
    "--status", type=click.Choice([each.value for each in SessionStatus]), help="Only sessions of this status."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=_LISTED_DEFAULT,
    show_default=True,
    metavar="NUMBER",
    help="How many sessions at most.",
)
@click.option("--all", "everything", is_flag=True, help="All of them, whatever --limit says.")
@click.option("--cursor", default="", metavar="CURSOR", help="Go on where an earlier list stopped.")
@json_option
@with_settings("url")
def list_sessions(
    settings: Settings, *, status: str | None, limit: int, everything: bool, cursor: str, as_json: bool
) -> None:
    """List sessions, newest first. Purged ones are not listed."""
    client = Client(settings)
    sessions: list[dict[str, Any]] = []
    while True:
        wanted = page_records_max if everything else min(page_records_max, limit - len(sessions))
        page = client.get("sessions", status=status or "", cursor=cursor, limit=str(wanted))
        sessions.extend(page["sessions"])
        cursor = page["next_cursor"]
        # A page may be shorter than asked for, even empty; only an empty cursor ends the list.
        if not cursor or (not everything and len(sessions) >= limit):
            break
    if as_json:
        print_json({"sessions": sessions, "next_cursor": cursor})
        return
    if not sessions:
        note(
            f"there are no {status + ' ' if status else ''}sessions; `{client.printed('demo')}` records one to look at"
        )
        return
    print_table(
        ("session", "status", "created", "ended", "runs"),
        [
            (
                each["id"],
                each["status"],
                short_time(each["created_at"]),
                short_time(each.get("ended_at", "")),
                run_counts(each["run_counts"]),
            )
            for each in sessions
        ],
    )
    if cursor:
        note(f"there are more: --all lists every one, --cursor {cursor} goes on from here")


@command.command("show")
@click.argument("session_id", metavar="SESSION")
@json_option
@with_settings("url")
def show_session(settings: Settings, *, session_id: str, as_json: bool) -> None:
    """Show a session and how its runs stand."""
    client = Client(settings)
    detail = client.get("sessions", checked_id(session_id, "SESSION"))
    if as_json:
        print_json(detail)
        return
    session = detail["session"]
    print_facts(
        [
            ("session", session["id"]),
            ("status", session["status"]),
            ("created", session["created_at"]),
            ("ended", session.get("ended_at", "")),
            ("last activity", detail["last_activity_at"]),
            ("runs", run_counts(detail["run_counts"])),
        ]
    )


@command.command("end")
@click.argument("session_id", metavar="SESSION")
@click.option("--at", "at", metavar="TIME", help=f"When it ended, such as {_TIME_EXAMPLE}.  [default: now]")
@json_option
@with_settings("url")
def end_session(settings: Settings, *, session_id: str, at: str | None, as_json: bool) -> None:
    """End a session: it takes no new work, and runs that start in it later stop at once."""
    try:
        ended_at = format_time(time.time_ns() // 1_000_000 if at is None else parse_time(at))
    except ValueError as error:
        raise UsageError(f"--at {error}, such as {_TIME_EXAMPLE}, not {at!r}") from None
    client = Client(settings)
    answer = client.call("end_session", session_id=checked_id(session_id, "SESSION"), ended_at=ended_at)
    if as_json:
        print_json(answer)
        return
    session = answer["session"]
    already = session.get("ended_at") != ended_at
    say(f"session {plain(session['id'])} {'had already' if already else 'has'} ended at {session.get('ended_at', '')}")


@command.command("purge")
@click.argument("session_id", metavar="SESSION")
@click.option("--yes", is_flag=True, help="Do not ask. Needed where there is no terminal to ask on.")
@json_option
@with_settings("url")
def purge_session(settings: Settings, *, session_id: str, yes: bool, as_json: bool) -> None:
    """Remove an ended session with its runs, records and checkpoints for good.

    Its keys are deleted, so that what the log still holds of it can never be read again.
    """
    client = Client(settings)
    checked_id(session_id, "SESSION")
    if not yes:
        _ask(client, session_id)
    answer = client.call("purge_session", session_id=session_id)
    if as_json:
        print_json(answer)
    else:
        say(f"session {plain(session_id)} is purged")


def _ask(client: Client, session_id: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError("a purge cannot be undone, and there is no terminal to ask on; say --yes")
    counts: dict[str, int] = client.get("sessions", session_id)["run_counts"]
    runs = counted(sum(counts.values()), "run")
    question = f"Purge session {plain(session_id)} with {runs} for good? Nothing brings it back."
    if not click.confirm(question, err=True):
        raise CliError("nothing was purged")
