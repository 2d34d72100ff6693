"""What becomes of a bug: a line in the log with an ID to find it by, and an answer that promises nothing."""

from __future__ import annotations

import logging
import secrets
from traceback import extract_tb

from schemas.refusals import Code, Refusal, refuse

_log = logging.getLogger("runstore.service")


def unexpected(error: Exception) -> Refusal:
    """Log an error that nobody expected, and the refusal to answer with: `unavailable`, for the outcome is unknown.

    Only the error's kind and place are logged: its message may hold a payload or a label.
    """
    request_id = secrets.token_hex(8)
    frames = extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else "an unknown place"
    _log.error("request %s met an unexpected %s at %s", request_id, type(error).__name__, place)
    return refuse(Code.UNAVAILABLE, f"something unexpected went wrong; the log tells more of request {request_id}")
