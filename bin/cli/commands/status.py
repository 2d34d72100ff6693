"""`runstore status`."""

from __future__ import annotations

import click

from bin.cli.client import Client
from bin.cli.errors import EXIT_REFUSED
from bin.cli.options import json_option, with_settings
from bin.cli.output import note, plain, print_facts, print_json, print_table, say
from bin.cli.settings import Settings


@click.command("status")
@json_option
@with_settings("url")
def command(settings: Settings, *, as_json: bool) -> int:
    """Show how the running service and each of its partitions stand.

    Positions count the log's entries. Applied is how far the views have read; the lag is what they have yet to read.
    The exit status is 1 when a partition has stopped.
    """
    client = Client(settings.service_url)
    state = client.get("status")
    stopped = [each for each in state["partitions"] if each["state"] == "stopped"]
    if as_json:
        print_json(state)
        return EXIT_REFUSED if stopped else 0
    print_facts(
        [
            ("service", client.url),
            ("version", state["version"]),
            ("log", state["log"]),
            ("ready", "yes" if state["ready"] else "no"),
        ]
    )
    say()
    numbers = ("log start", "log end", "applied", "lag", "void", "queued", "rebuild")
    print_table(
        ("partition", "state", *numbers, "last error"),
        [
            (
                str(each["partition"]),
                each["state"],
                *(str(each[name]) for name in ("log_start", "log_end", "applied", "lag", "void_records", "queued")),
                "" if each["rebuild"] is None else f"{each['rebuild']:.0%}",
                each["last_error"],
            )
            for each in state["partitions"]
        ],
        numbers=("partition", *numbers),
    )
    for each in stopped:
        note(f"partition {each['partition']} has stopped: {plain(each['last_error'])}")
    if stopped:
        note("  next: stop the service and run `runstore verify` to see what is damaged")
    return EXIT_REFUSED if stopped else 0
