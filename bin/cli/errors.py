"""What a command says when it does not do what it was asked, and with which exit status.

The whole tree::

    CliError            status 1: refused, not reachable, or found broken
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


class UsageError(CliError):
    """What was asked for makes no sense here."""

    status = EXIT_USAGE


class Problem(CliError):
    """A refusal of the service: its code, and its detail."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}", HINTS.get(code, ""))
        self.code = code
        self.detail = detail


HINTS: Final = {
    "session_not_found": "`runstore sessions list` shows the sessions that there are",
    "session_ended": "an ended session takes no new work; use another session ID",
    "session_purged": "a purged session is gone for good; use another session ID",
    "session_active": "end it first: `runstore sessions end ID`",
    "session_has_active_runs": "`runstore runs list ID --status running` shows them; they must finish or be canceled",
    "run_not_found": "`runstore runs list SESSION` shows the runs of a session",
    "run_conflict": "a run ID is taken for ever; use another one",
    "record_conflict": "this event key holds another record already; nothing was changed",
    "invalid_cursor": "a cursor only goes on with the listing that gave it; begin without one",
    "unavailable": "nothing is known of the outcome; repeat it, it is safe, or look at `runstore status`",
}
"""What to do next, by the code of a refusal."""
