"""How refusals are written: one problem object (RFC 9457) each, with the HTTP status that its code has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from schemas.refusals import Code, Refusal
from service.answers import ProblemAnswer

STATUS: Final[Mapping[Code, int]] = {
    Code.INVALID_COMMAND: 422,
    Code.INVALID_CURSOR: 422,
    Code.TRANSCRIPT_INVALID: 422,
    Code.TOO_LARGE: 413,
    Code.UNAUTHENTICATED: 401,
    Code.FORBIDDEN: 403,
    Code.SESSION_NOT_FOUND: 404,
    Code.RUN_NOT_FOUND: 404,
    Code.RUN_SUSPENSION_NOT_FOUND: 404,
    Code.TRANSCRIPT_NOT_FOUND: 404,
    Code.CONSUMER_NOT_FOUND: 404,
    Code.SESSION_PURGED: 410,
    Code.SESSION_ENDED: 409,
    Code.SESSION_ACTIVE: 409,
    Code.SESSION_HAS_ACTIVE_RUNS: 409,
    Code.RUN_CONFLICT: 409,
    Code.RUN_TERMINAL_CONFLICT: 409,
    Code.RUN_CANCELLATION_CONFLICT: 409,
    Code.RUN_SUSPENSION_CONFLICT: 409,
    Code.RUN_NOT_ACTIVE: 409,
    Code.RUN_SESSION_MISMATCH: 409,
    Code.CONTINUATION_MISMATCH: 409,
    Code.RECORD_OWNER_MISMATCH: 409,
    Code.RECORD_CONFLICT: 409,
    Code.CONSUMER_CONFLICT: 409,
    Code.UNAVAILABLE: 503,
}
"""The status of each code. `invalid_command` also comes with 400 (no JSON), 404 (no such path) and 405 (other verb)."""

RETRY_AFTER_SECONDS: Final = 1
"""What `Retry-After` says with every 503."""


def problem(refusal: Refusal, status: int | None = None) -> ProblemAnswer:
    """The problem object of a refusal; `status` where it is not the one that the code has."""
    code = refusal.code
    return {
        "type": f"urn:runstore:problem:{code.value}",
        "title": code.value.replace("_", " ").capitalize(),
        "status": STATUS[code] if status is None else status,
        "detail": refusal.detail,
        "code": code.value,
        "temporary": refusal.temporary,
        "ids": dict(refusal.ids),
    }
