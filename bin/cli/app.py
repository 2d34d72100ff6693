"""The tree of commands, and what becomes of an error: one line, what to do next, and the exit status.

Each command is imported when it is used: asking the service must not wait for the engine to load.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import click

from bin.cli import VERSION
from bin.cli.errors import EXIT_INTERRUPTED, EXIT_USAGE, CliError
from bin.cli.groups import Group
from bin.cli.output import note, plain
from bin.cli.program import program

COMMANDS: Final = ("serve", "status", "sessions", "runs", "rebuild", "verify", "migrate", "demo")
"""Every command, in the order of the help; each lives in the module `bin.cli.commands.NAME`, as `command`."""


class Commands(Group):
    """The top of the tree."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """See `click.Group`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """See `click.Group`."""
        if cmd_name not in COMMANDS:
            return None
        found = import_module(f"bin.cli.commands.{cmd_name}").command
        assert isinstance(found, click.Command)
        return found


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="runstore", message="%(prog)s %(version)s")
def runstore() -> None:
    """A durable store for agent sessions, runs and their records, whose only truth is an append-only log.

    Start with `runstore serve`, and in another terminal `runstore demo`.

    Settings come from flags, then RUNSTORE_... variables, then runstore.toml. The exit status is 0 when all was
    done, 1 when something was refused or found broken, and 2 when the command line, a setting or a folder is wrong.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; return its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # An ID may hold what this terminal's encoding does not.
            stream.reconfigure(errors="backslashreplace")
    try:
        status: Any = runstore.main(args=arguments, prog_name=program(), standalone_mode=False)
    except CliError as error:
        return _failed(error.message, error.hint, error.status)
    except click.exceptions.NoArgsIsHelpError as error:
        note(error.format_message())
        return EXIT_USAGE
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else program()
        message = error.format_message().rstrip(".")
        return _failed(message[:1].lower() + message[1:], f"`{path} --help` tells more", EXIT_USAGE)
    except click.ClickException as error:
        return _failed(error.format_message(), "", error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        note("")
        return EXIT_INTERRUPTED
    return status if isinstance(status, int) else 0


def _failed(message: str, hint: str, status: int) -> int:
    note(f"{click.style('runstore:', fg='red')} {plain(message)}")
    if hint:
        note(f"  next: {plain(hint)}")
    return status
