"""`runstore status`."""

from __future__ import annotations

from typing import Any

import click

from bin.cli.client import Client
from bin.cli.errors import EXIT_REFUSED
from bin.cli.folder import store_id
from bin.cli.options import json_option, with_settings
from bin.cli.output import note, plain, print_facts, print_json, print_table, say, wrapped
from bin.cli.program import command_line, on_folder
from bin.cli.settings import Settings


@click.command("status")
@json_option
@with_settings("url")
def command(settings: Settings, *, as_json: bool) -> int:
    """Show how the running service and each of its partitions stand.

    Positions count the log's entries. Applied is how far the views have read; the lag is what they have yet to read.
    The exit status is 1 when a partition has stopped.
    """
    client = Client(settings)
    state = client.get("status")
    stopped = any(each["state"] == "stopped" for each in state["partitions"])
    if as_json:
        print_json(state)
    else:
        _print(client.url, state)
        if stopped:
            here = store_id(settings) == state.get("store_id", "-")
            verify = on_folder(settings, "verify") if here else command_line("verify", "--data-dir", "FOLDER")
            note(
                "  next: docs/operating.md, “When a partition has stopped”, says what to do; "
                f"`{plain(verify)}` tells more once the service is stopped"
            )
    return EXIT_REFUSED if stopped else 0


def _log(state: dict[str, Any]) -> str:
    """The kind of the log, and where it is. A service of an earlier version does not tell."""
    kafka = state.get("kafka")
    if kafka is None:
        return str(state["log"])
    return f"kafka: topic {kafka['log_topic']} at {kafka['bootstrap_servers']}"


def _print(url: str, state: dict[str, Any]) -> None:
    partitions = state["partitions"]
    print_facts(
        [
            ("service", url),
            ("version", state["version"]),
            ("store", state.get("store_id", "")),
            ("log", _log(state)),
            ("ready", "yes" if state["ready"] else "no"),
        ]
    )
    say()
    numbers = ("log start", "log end", "applied", "lag", "void", "lost", "queued", "rebuild")
    shown = ("log_start", "log_end", "applied", "lag", "void_records", "lost_records", "queued")
    print_table(
        ("partition", "state", *numbers),
        [
            (
                str(each["partition"]),
                each["state"],
                *(str(each.get(name, "")) for name in shown),
                "" if each["rebuild"] is None else f"{each['rebuild']:.0%}",
            )
            for each in partitions
        ],
        numbers=("partition", *numbers),
    )
    broken = [each for each in partitions if each["last_error"]]
    if broken:
        say()
    for each in broken:
        error = each["last_error"].removeprefix(f"partition {each['partition']}: ")
        for line in wrapped(f"partition {each['partition']} is {each['state']}: {error}"):
            say(line)
