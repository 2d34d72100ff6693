"""The reference of the command line, `docs/cli.md`, made of what every command says with `--help`.

Write it anew from the root of the tree, with `.venv/bin/python -m bin.cli.reference`; a test compares it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from bin.cli.app import runstore
from bin.cli.declared import SETTINGS
from bin.cli.settings import CONFIG_FILE, CONFIG_VARIABLE

REFERENCE: Final = Path(__file__).parents[2] / "docs" / "cli.md"
_WIDTH_CHARS: Final = 100

_HEAD: Final = f"""\
# The command line

`bin/runstore` from the tree, `runstore` wherever it is on the path. This page is made from `--help`: after a first
`bin/runstore`, `.venv/bin/python -m bin.cli.reference` in the root of the tree writes it anew.

| exit status | means |
|---|---|
| 0 | done |
| 1 | refused, not reachable, or found broken |
| 2 | wrong usage: the command line, a setting, or the folder or the brokers it names |

Answers go to stdout; errors, notes and progress to stderr. `NO_COLOR` turns colors off.

## Settings

From flags, then variables of the environment, then `{CONFIG_FILE}` in the current folder (or the file that `--config`
or `{CONFIG_VARIABLE}` names): the first that has one wins. An empty variable counts as not set. Paths in the file start
from the file's folder. A value that cannot be, and a setting that there is not, in the file or as a flag, end the
command with status 2; a `RUNSTORE_…` variable that is no setting is warned of, and counts for nothing.

A dot in a name is a table of the file: `kafka.topic_prefix` is `topic_prefix` below `[kafka]`. What concerns Kafka is
read when a store with its log there is opened; [Kafka](kafka.md) tells how the settings belong together.

| `{CONFIG_FILE}` | flag | variable | default | |
|---|---|---|---|---|
"""


def reference() -> str:
    """The whole page."""
    settings = "".join(
        f"| `{each.name}` | {_code(each.flag)} | `{each.variable}` | {_code(each.default)} | {each.meaning} |\n"
        for each in SETTINGS
    )
    pages = "".join(f"\n## {name}\n\n```text\n{text}\n```\n" for name, text in _pages())
    return _HEAD + settings + pages


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def documented(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """A command and every command below it, each with its context."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            settings = command.context_settings
            yield from documented(below, click.Context(below, parent=context, info_name=name, **settings))


def root() -> tuple[click.Command, click.Context]:
    """The top of the tree, with a context of a fixed width."""
    context = click.Context(runstore, info_name="runstore", terminal_width=_WIDTH_CHARS, **runstore.context_settings)
    return runstore, context


def _pages() -> Iterator[tuple[str, str]]:
    for command, context in documented(*root()):
        yield context.command_path, command.get_help(context).rstrip()


if __name__ == "__main__":
    REFERENCE.write_text(reference(), encoding="utf-8")
