"""Refusals: the answers that are not success.

The whole tree, by what a caller can do about it::

    Refusal
    ├── permanent: the same command can never succeed, do not repeat it
    │   ├── the command itself   invalid_command · invalid_cursor · too_large
    │   ├── nothing by that ID   session_not_found · run_not_found · run_suspension_not_found
    │   │                        transcript_not_found · consumer_not_found
    │   ├── the session          session_ended · session_purged · session_active · session_has_active_runs
    │   ├── the run              run_conflict · run_terminal_conflict · run_cancellation_conflict
    │   │                        run_suspension_conflict · run_not_active · run_session_mismatch
    │   │                        continuation_mismatch
    │   ├── the record           record_owner_mismatch · record_conflict · transcript_invalid
    │   ├── the consumer         consumer_conflict
    │   └── the caller           unauthenticated · forbidden
    └── temporary: the outcome is unknown, repeating the command exactly is safe
        └── unavailable

A refusal is a value, returned and not raised: being refused is a normal answer. Only `Refused`, for
callers that prefer exceptions (clients, tests, the command line), carries one up a stack.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Code(StrEnum):
    """The codes of the contract. Callers tell refusals apart by these, never by the message."""

    INVALID_COMMAND = "invalid_command"
    INVALID_CURSOR = "invalid_cursor"
    TOO_LARGE = "too_large"
    SESSION_NOT_FOUND = "session_not_found"
    RUN_NOT_FOUND = "run_not_found"
    RUN_SUSPENSION_NOT_FOUND = "run_suspension_not_found"
    TRANSCRIPT_NOT_FOUND = "transcript_not_found"
    CONSUMER_NOT_FOUND = "consumer_not_found"
    SESSION_ENDED = "session_ended"
    SESSION_PURGED = "session_purged"
    SESSION_ACTIVE = "session_active"
    SESSION_HAS_ACTIVE_RUNS = "session_has_active_runs"
    RUN_CONFLICT = "run_conflict"
    RUN_TERMINAL_CONFLICT = "run_terminal_conflict"
    RUN_CANCELLATION_CONFLICT = "run_cancellation_conflict"
    RUN_SUSPENSION_CONFLICT = "run_suspension_conflict"
    RUN_NOT_ACTIVE = "run_not_active"
    RUN_SESSION_MISMATCH = "run_session_mismatch"
    CONTINUATION_MISMATCH = "continuation_mismatch"
    RECORD_OWNER_MISMATCH = "record_owner_mismatch"
    RECORD_CONFLICT = "record_conflict"
    TRANSCRIPT_INVALID = "transcript_invalid"
    CONSUMER_CONFLICT = "consumer_conflict"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    UNAVAILABLE = "unavailable"

    @property
    def temporary(self) -> bool:
        """True when the outcome is unknown and the same command may be repeated."""
        return self is Code.UNAVAILABLE


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a command was not done: a code, a message for a person, and the IDs involved.

    `ids` maps a field name (`session_id`, `run_id`, `event_key`, ...) to the ID, and never holds a
    payload, a label or any other private value.
    """

    code: Code
    detail: str
    ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def temporary(self) -> bool:
        """True when the outcome is unknown and the same command may be repeated."""
        return self.code.temporary


class Refused(Exception):
    """A refusal as an exception, for callers that want one."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.code.value}: {refusal.detail}")
        self.refusal = refusal

    @property
    def code(self) -> Code:
        """The refusal's code."""
        return self.refusal.code


def refuse(code: Code, detail: str, **ids: str) -> Refusal:
    """Make a refusal; empty IDs are left out."""
    return Refusal(code, detail, {name: value for name, value in ids.items() if value})


def invalid(detail: str, **ids: str) -> Refusal:
    """The refusal of a command whose own shape is wrong."""
    return refuse(Code.INVALID_COMMAND, detail, **ids)
