"""`docs/cli.md` is what the commands say of themselves, and each says something."""

from __future__ import annotations

import tomllib

import click
import pytest

from bin.cli import VERSION
from bin.cli.app import COMMANDS
from bin.cli.reference import REFERENCE, documented, reference, root
from engine import opening
from tests.cli.processes import ROOT

ALL = list(documented(*root()))


def test_the_page_is_up_to_date() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == reference(), "run `.venv/bin/python -m bin.cli.reference`"


def test_every_command_is_in_the_tree() -> None:
    assert {path.stem for path in (ROOT / "bin" / "cli" / "commands").glob("[a-z]*.py")} == set(COMMANDS)
    paths = [context.command_path.removeprefix("runstore ") for _, context in ALL]
    assert set(paths) >= {
        *("serve", "status", "rebuild", "verify", "demo"),
        *("sessions list", "sessions show", "sessions end", "sessions purge", "runs list", "runs show"),
    }


@pytest.mark.parametrize(("command", "context"), ALL, ids=[context.command_path for _, context in ALL])
def test_every_command_and_option_is_explained(command: click.Command, context: click.Context) -> None:
    assert command.help
    assert not command.get_short_help_str(200).endswith("...")
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_there_is_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION == opening.VERSION
