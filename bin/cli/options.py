"""Options that commands share, and how a command gets its settings."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import click

from bin.cli.declared import SETTINGS, VARIABLE_PREFIX
from bin.cli.output import note, plain
from bin.cli.program import PROGRAM_VARIABLE
from bin.cli.settings import CONFIG_FILE, CONFIG_VARIABLE, load_settings

_BY_NAME: Final = {setting.name: setting for setting in SETTINGS}
_VARIABLES: Final = (*(setting.variable for setting in SETTINGS), CONFIG_VARIABLE)
_OTHER_VARIABLES: Final = frozenset(
    {
        PROGRAM_VARIABLE,
        "RUNSTORE_VENV",
        "RUNSTORE_VENV_DEV",
        "RUNSTORE_VENV_BENCH",
        "RUNSTORE_FAILPOINT",
        "RUNSTORE_KAFKA_LIBS",
    }
)
"""Those that scripts and tests read, and that are no settings."""
_ALIKE: Final = 0.6

Command = Callable[..., int | None]
"""A command: takes its parameters, and returns its exit status (None: 0)."""


def with_settings(*names: str) -> Callable[[Command], Command]:
    """Give a command the settings in force as its parameter `settings`, and these of them as flags."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def settled(**parameters: Any) -> int | None:
            for warning in unknown_variables(os.environ):
                note(f"{click.style('runstore:', fg='yellow')} {plain(warning)}")
            flags = {name: parameters.pop(_BY_NAME[name].parameter) for name in names}
            config = parameters.pop("config")
            settings = load_settings(flags, os.environ, Path.cwd(), Path(config) if config is not None else None)
            return command(settings=settings, **parameters)

        settled = click.option(
            "--config", metavar="FILE", help=f"Read settings from this file.  [default: {CONFIG_FILE} here, if any]"
        )(settled)
        for name in reversed(names):
            setting = _BY_NAME[name]
            told = f"{setting.meaning}  [default: {setting.default}]" if setting.default else setting.meaning
            settled = click.option(setting.flag, setting.parameter, metavar=setting.metavar, help=told)(settled)
        return settled

    return decorate


def json_option(command: Command) -> Command:
    """Give a command the flag `--json`, as its parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def unknown_variables(names: Iterable[str]) -> list[str]:
    """A warning for each variable that looks like a setting and is none, with the one that may be meant."""
    warnings = []
    for name in sorted(names):
        if name.startswith(VARIABLE_PREFIX) and name not in _VARIABLES and name not in _OTHER_VARIABLES:
            nearest = _nearest(name)
            meant = f"did you mean {nearest}?" if nearest else "docs/cli.md lists those that there are"
            warnings.append(f"warning: there is no setting {name}, so it counts for nothing; {meant}")
    return warnings


def _nearest(name: str) -> str:
    """The known variable most like a name, by what follows the prefix that they share."""
    rest = [each.removeprefix(VARIABLE_PREFIX) for each in _VARIABLES]
    found = get_close_matches(name.removeprefix(VARIABLE_PREFIX).upper(), rest, n=1, cutoff=_ALIKE)
    return VARIABLE_PREFIX + found[0] if found else ""
