"""Options that commands share, and how a command gets its settings."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from bin.cli.settings import CONFIG_FILE, SETTINGS, load_settings

_BY_NAME: Final = {setting.name: setting for setting in SETTINGS}

Command = Callable[..., int | None]
"""A command: takes its parameters, and returns its exit status (None: 0)."""


def with_settings(*names: str) -> Callable[[Command], Command]:
    """Give a command the settings in force as its parameter `settings`, and these of them as flags."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def settled(**parameters: Any) -> int | None:
            flags = {name: parameters.pop(name) for name in names}
            config = parameters.pop("config")
            settings = load_settings(flags, os.environ, Path.cwd(), Path(config) if config is not None else None)
            return command(settings=settings, **parameters)

        settled = click.option(
            "--config", metavar="FILE", help=f"Read settings from this file.  [default: {CONFIG_FILE} here, if any]"
        )(settled)
        for name in reversed(names):
            setting = _BY_NAME[name]
            told = f"{setting.meaning}  [default: {setting.default}]" if setting.default else setting.meaning
            settled = click.option(setting.flag, name, metavar=setting.metavar, help=told)(settled)
        return settled

    return decorate


def json_option(command: Command) -> Command:
    """Give a command the flag `--json`, as its parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
