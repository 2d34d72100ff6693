"""Groups of commands, whose help shows each command's summary whole and its own examples as they can be pasted."""

from __future__ import annotations

from inspect import cleandoc
from typing import Final

import click

_SUMMARY_CHARS_MAX: Final = 1000


class Group(click.Group):
    """A group of commands."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See `click.Group`, which cuts the summaries off where the line ends."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            assert command is not None
            rows.append((name, command.get_short_help_str(_SUMMARY_CHARS_MAX)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See `click.Command`."""
        assert self.help is not None
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(cleandoc(self.help).replace("`runstore ", f"`{ctx.find_root().info_name} "))
