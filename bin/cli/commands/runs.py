"""`runstore runs`: list and show; what is read back from a run's records is in `bin.cli.run_views`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from bin.cli import run_views, tail, transfers
from bin.cli.client import Client, checked_id
from bin.cli.groups import Group
from bin.cli.options import json_option, with_settings
from bin.cli.output import (
    note,
    print_facts,
    print_json,
    print_record,
    print_table,
    say,
    short_time,
    size,
    terminal_width,
)
from bin.cli.settings import Settings
from schemas.limits import page_records_max
from schemas.values import RunStatus

_ROOMY_CHARS: Final = 100


@click.group("runs", cls=Group)
def command() -> None:
    """List and show runs, read them back, export and import them."""


for each in (
    run_views.transcript,
    run_views.prompts,
    run_views.tree,
    run_views.tools,
    tail.tail,
    transfers.export_run,
    transfers.import_tree,
):
    command.add_command(each)


@command.command("list")
@click.argument("session_id", metavar="SESSION")
@click.option(
    "--status",
    "statuses",
    type=click.Choice([each.value for each in RunStatus]),
    multiple=True,
    help="Only runs of this status; may be given more than once.",
)
@json_option
@with_settings("url")
def list_runs(settings: Settings, *, session_id: str, statuses: tuple[str, ...], as_json: bool) -> None:
    """List the runs of a session, in the order they started."""
    client = Client(settings)
    answer = client.get("sessions", checked_id(session_id, "SESSION"), "runs", status=",".join(statuses))
    if as_json:
        print_json(answer)
        return
    if not answer["runs"]:
        note(f"the session has no {' or '.join(statuses) + ' ' if statuses else ''}runs")
        return
    print_table(
        ("run", "status", "agent", "started", "updated", "parent"),
        [
            (
                each["run_id"],
                each["status"],
                each["agent_id"],
                short_time(each["started_at"]),
                short_time(each["updated_at"]),
                each["parent_run_id"],
            )
            for each in answer["runs"]
        ],
    )


@command.command("show")
@click.argument("run_id", metavar="RUN")
@click.option(
    "--records", "with_records", is_flag=True, help="List its records too: never their payloads, but their size."
)
@click.option("--payloads", "with_payloads", is_flag=True, help="Print its records one by one, each with its payload.")
@json_option
@with_settings("url")
def show_run(settings: Settings, *, run_id: str, with_records: bool, with_payloads: bool, as_json: bool) -> None:
    """Show a run: how it stands, its family, and the size of its history.

    With --json and --records or --payloads, the answer gets one more field, `records`, which holds them whole, with
    their payloads. A table of records shows of their event keys what the terminal has room for.
    """
    client = Client(settings)
    detail = client.get("runs", checked_id(run_id, "RUN"))
    if as_json:
        more = {"records": list(_records(client, run_id))} if with_records or with_payloads else {}
        print_json(detail | more)
        return
    _print_run(detail)
    if with_payloads:
        for record in _records(client, run_id):
            say()
            print_record(record)
    elif with_records:
        say()
        _print_records(_records(client, run_id))


def _records(client: Client, run_id: str) -> Iterator[dict[str, Any]]:
    cursor = ""
    while True:
        page = client.get("runs", run_id, "records", cursor=cursor, limit=str(page_records_max))
        yield from page["records"]
        cursor = page["next_cursor"]
        if not cursor:
            return


def _print_run(detail: dict[str, Any]) -> None:
    run = detail["run"]
    print_facts(
        [
            ("run", run["run_id"]),
            ("status", run["status"]),
            ("agent", run["agent_id"]),
            ("session", run["session_id"] or "none"),
            ("started", run["started_at"]),
            ("updated", run["updated_at"]),
            ("start", "stopped at once, its session had ended" if run["start_outcome"] == "stop" else ""),
            ("cancellation", run["cancellation_reason"]),
            ("parent", run["parent_run_id"]),
            ("continues", detail["predecessor"]),
            ("continued by", ", ".join(detail["successors"])),
            ("labels", ", ".join(f"{key}={value}" for key, value in run["labels"].items())),
            ("records", str(detail["record_count"])),
            ("checkpoint", "yes" if detail["has_checkpoint"] else "no"),
        ]
    )
    if detail["children"]:
        say()
        print_table(
            ("child run", "agent", "tool", "tool call"),
            [
                (each["run_id"], each["agent_id"], each["tool_name"], each["tool_call_id"])
                for each in detail["children"]
            ],
        )


def _print_records(records: Iterator[dict[str, Any]]) -> None:
    roomy = terminal_width() >= _ROOMY_CHARS
    print_table(
        ("record", "time", "type", "event key", "size"),
        [
            (
                each["id"],
                each["timestamp"] if roomy else short_time(each["timestamp"]),
                each["type"],
                each["event_key"],
                size(len(each["payload"].encode())),
            )
            for each in records
        ],
        numbers=("size",),
        narrow="event key",
    )
