"""What a command says when it does not do what it was asked, and with which exit status.

The whole tree::

    CliError            status 1: refused, not reachable, or found broken
    ├── Unreachable     status 1: no service answers
    ├── Problem         status 1: the service refused, with a code of the contract
    └── UsageError      status 2: the command line, a setting or the folder it names is wrong
"""

from __future__ import annotations

from typing import Final

EXIT_REFUSED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130


class CliError(Exception):
    """A command failed; `message` is one line for a person, `hint` what to do next (may be empty)."""

    status = EXIT_REFUSED

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Unreachable(CliError):
    """No service answers, or the one that did has gone."""


class UsageError(CliError):
    """What was asked for makes no sense here."""

    status = EXIT_USAGE


class Problem(CliError):
    """A refusal of the service: its code, and its detail."""

    def __init__(self, code: str, detail: str, hint: str) -> None:
        super().__init__(f"{code}: {detail}", hint)
        self.code = code
        self.detail = detail
