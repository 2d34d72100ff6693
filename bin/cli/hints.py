"""What to do after a refusal: by its code, by the IDs that it names, and by whether something was only asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

Printed = Callable[..., str]
"""Makes a command that can be pasted, of its words."""

_says_stopped: Final = re.compile(r"\bpartition [0-9]+ is stopped\b").search

_SAID: Final[Mapping[str, str]] = {
    "session_ended": "an ended session takes no new work; use another session ID",
    "run_conflict": "a run ID is taken for ever; use another one",
    "record_conflict": "this event key holds another record already; nothing was changed",
    "transcript_not_found": "a run has a transcript once messages are seeded or appended",
    "transcript_invalid": "the record is kept as it is; the transcript can be read through the record before it",
    "invalid_cursor": "a cursor only goes on with the listing that gave it; begin without one",
}


def hint(code: str, detail: str, ids: Mapping[str, str], printed: Printed, *, reading: bool) -> str:
    """What to do next, in a line; empty where there is nothing to say."""
    if code == "unavailable":
        return _unavailable(detail, printed, reading=reading)
    if code == "session_not_found":
        return f"`{printed('sessions', 'list')}` shows the sessions that there are"
    if code == "session_purged" and (reading or "run_id" in ids):
        return (
            "its runs, records and checkpoints are gone for good; "
            f"`{printed('sessions', 'list')}` shows the sessions that there are"
        )
    if code == "session_purged":
        return "a purged session is gone for good, and so is its ID; use another session ID"
    if code == "session_active":
        return f"end it first: `{printed('sessions', 'end', ids.get('session_id', 'SESSION'))}`"
    if code == "session_has_active_runs":
        listing = printed("runs", "list", ids.get("session_id", "SESSION"), "--status", "running")
        return f"`{listing}` shows them; they must finish or be canceled"
    if code == "run_not_found":
        return (
            f"`{printed('sessions', 'list')}` shows the sessions, `{printed('runs', 'list', 'SESSION')}` "
            "the runs of one; the runs of a purged session are gone with it"
        )
    return _SAID.get(code, "")


def _unavailable(detail: str, printed: Printed, *, reading: bool) -> str:
    status = printed("status")
    if _says_stopped(detail):
        return (
            f"repeating it will not help; `{status}` shows which partitions have stopped and why, and "
            "docs/operating.md, “When a partition has stopped”, what to do"
        )
    if reading:
        return f"try again in a moment; `{status}` shows how the store stands"
    return f"nothing is known of the outcome; repeating it exactly is safe; `{status}` shows how the store stands"
