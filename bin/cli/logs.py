"""What the process says of itself, to stderr: one line an event, `name=value` pairs, values as JSON where they need it.

No payload and no label is ever in a line. Of an exception only its kind and its place are told, since its message
may hold one; of asyncio's own messages only the first line, since the others show the objects involved.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from traceback import extract_tb

from schemas.times import format_time

_bare = re.compile(r"[A-Za-z0-9_.:/+-]+").fullmatch


class LineFormatter(logging.Formatter):
    """Formats a log record as one line of pairs."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        message = record.getMessage()
        if record.name == "asyncio":
            message = message.partition("\n")[0]
        pairs = {
            "time": format_time(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message,
        }
        if record.exc_info is not None and record.exc_info[1] is not None:
            pairs |= _told(record.exc_info[1])
        return pairs_line(pairs)


def pairs_line(pairs: dict[str, str]) -> str:
    """Pairs as one line: a value is bare, or a JSON string."""
    return " ".join(f"{name}={value if _bare(value) else json.dumps(value)}" for name, value in pairs.items())


def configure(level: str) -> None:
    """Send what is at or above the level to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    logging.raiseExceptions = False


def silence(*names: str) -> None:
    """Let these loggers write only of errors that nobody foresaw, where a command tells the rest in its answer."""
    for name in names:
        logging.getLogger(name).addFilter(_is_unforeseen)


def milliseconds_since(begun: float) -> str:
    """How long ago a moment of `time.monotonic` was."""
    return f"{(time.monotonic() - begun) * 1000:.0f} ms"


def seconds_since(begun: float) -> str:
    """The same for what takes longer."""
    return f"{time.monotonic() - begun:.1f} s"


def _is_unforeseen(record: logging.LogRecord) -> bool:
    return record.exc_info is not None


def _told(error: BaseException) -> dict[str, str]:
    frames = extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "unknown"
    return {"error": type(error).__name__, "at": place}
