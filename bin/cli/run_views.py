"""`runstore runs`: transcript, prompts, tree and tools, which are read back from a run's records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from bin.cli.client import Client, checked_id
from bin.cli.messages import print_transcript
from bin.cli.options import json_option, with_settings
from bin.cli.output import counted, note, plain, print_json_text, print_table, say, status_word
from bin.cli.settings import Settings


@click.command("transcript")
@click.argument("run_id", metavar="RUN")
@click.option("--through", default="", metavar="RECORD", help="End with this record of the run.")
@json_option
@with_settings("url")
def transcript(settings: Settings, *, run_id: str, through: str, as_json: bool) -> None:
    """Show what was said in a run, and whether it keeps the rules for transcripts.

    Messages that were seeded are marked: they rebuild the model's input, and are no output of this run.
    """
    told, text = Client(settings).get_text("runs", checked_id(run_id, "RUN"), "transcript", through=through)
    if as_json:
        print_json_text(text)
    else:
        print_transcript(told, text)


@click.command("prompts")
@click.argument("run_id", metavar="RUN")
@click.option("--no-descendants", is_flag=True, help="Leave out the prompts of its descendants.")
@click.option("--predecessors", is_flag=True, help="Add those of the runs that it continues.")
@json_option
@with_settings("url")
def prompts(settings: Settings, *, run_id: str, no_descendants: bool, predecessors: bool, as_json: bool) -> None:
    """List the prompts that shaped a run, each version where it was first met."""
    told, text = Client(settings).get_text(
        "runs",
        checked_id(run_id, "RUN"),
        "prompts",
        descendants="false" if no_descendants else "",
        predecessors="true" if predecessors else "",
    )
    if as_json:
        print_json_text(text)
        return
    if told["prompts"]:
        names = ("prompt_id", "version", "run_id", "record_id")
        rows = [[each[name] for name in names] for each in told["prompts"]]
        print_table(("prompt", "version", "run", "record"), rows)
    else:
        note("no prompt shaped this run")
    _note_unreadable(told)


@click.command("tree")
@click.argument("run_id", metavar="RUN")
@json_option
@with_settings("url")
def tree(settings: Settings, *, run_id: str, as_json: bool) -> None:
    """Show a run with its descendants, the runs that it continues, and those that continue it."""
    told, text = Client(settings).get_text("runs", checked_id(run_id, "RUN"), "tree")
    if as_json:
        print_json_text(text)
        return
    for title, runs in (("continues", told["predecessors"]), ("continued by", told["successors"])):
        for run in runs:
            say(f"{click.style(title.ljust(12), bold=True)}  {_run_line(run)}")
    for line in _branches(told):
        say(line)


@click.command("tools")
@click.argument("run_id", metavar="RUN")
@json_option
@with_settings("url")
def tools(settings: Settings, *, run_id: str, as_json: bool) -> None:
    """List the tool calls of a run by the runtime's IDs, with the model's beside them.

    A call is open while the run has no result of it.
    """
    told, text = Client(settings).get_text("runs", checked_id(run_id, "RUN"), "tool-calls")
    if as_json:
        print_json_text(text)
        return
    if told["tool_calls"]:
        print_table(
            ("tool call", "model's ID", "tool", "scheduled", "result", "outcome"),
            [
                (
                    each["tool_call_id"],
                    each["model_tool_call_id"] or "",
                    each["tool_name"],
                    each["scheduled"] or "",
                    each["result"] or "",
                    _outcome(each),
                )
                for each in told["tool_calls"]
            ],
        )
    else:
        note("the run has no tool calls")
    _note_unreadable(told)


def _outcome(call: dict[str, Any]) -> str:
    if call["result"] is None:
        return "open"
    return "failed" if call["failed"] else "done"


def _note_unreadable(told: dict[str, Any]) -> None:
    """Say which records are missing from a table, since they could not be read."""
    unreadable = told.get("unreadable", [])
    if unreadable:
        note(f"{counted(len(unreadable), 'record')} could not be read, and --json shows what they hold:")
    for each in unreadable:
        note(f"  {each['record']['id']}  {plain(each['record']['type'])}  {plain(each['problem'])}")


def _branches(top: dict[str, Any]) -> Iterator[str]:
    """The lines of a tree: each run, and under it its children."""
    left: list[tuple[dict[str, Any], str, str]] = [(top, "", "")]
    while left:
        branch, before, below = left.pop()
        tool = f"  {plain(branch['tool_name'])} {plain(branch['tool_call_id'])}" if "tool_name" in branch else ""
        yield before + _run_line(branch["run"]) + tool
        children = branch["children"]
        for index in reversed(range(len(children))):
            last = index == len(children) - 1
            left.append((children[index], below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")))


def _run_line(run: dict[str, Any]) -> str:
    return f"{plain(run['run_id'])}  {status_word(run['status'])}  {plain(run['agent_id'])}"
