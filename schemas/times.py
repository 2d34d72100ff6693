"""Times: milliseconds since 1970-01-01 UTC inside, RFC 3339 outside.

Read: `Z` or `+00:00`, any number of decimals whose finer ones are zero, years 1970 to 9999.
Written: three decimals and `Z`. There are no leap seconds, and no time without its zone.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from typing import Final

time_ms_max: Final = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the last time there is."""

_MINUTE_MS: Final = 60_000
_DAY_MINUTES: Final = 1_440
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_LAW: Final = (
    "must be RFC 3339 in UTC (Z or +00:00), no finer than a millisecond, "
    "from 1970-01-01T00:00:00Z to 9999-12-31T23:59:59.999Z"
)

_match: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.([0-9]{1,3})0*)?(?:Z|\+00:00)"
).fullmatch


def parse_time(text: str) -> int:
    """The milliseconds since 1970 of an RFC 3339 time in UTC; ValueError, with the rule, for anything else."""
    found = _match(text)
    if found is None:
        raise ValueError(_LAW)
    decimals = found[1]
    thousandths = int(decimals.ljust(3, "0")) if decimals else 0
    return _ms_of_minute(text[:16]) + int(text[17:19]) * 1_000 + thousandths


def format_time(ms: int) -> str:
    """The one written form of a time, `2026-11-30T14:56:46.812Z`; ValueError outside 1970 to 9999."""
    if not 0 <= ms <= time_ms_max:
        raise ValueError(_LAW)
    minutes, rest = divmod(ms, _MINUTE_MS)
    return f"{_text_of_minute(minutes)}:{rest // 1_000:02}.{rest % 1_000:03}Z"


def check_time_ms(ms: int, name: str = "time") -> str | None:
    """None for milliseconds within 1970 to 9999, else a message that names the field and the limit."""
    if 0 <= ms <= time_ms_max:
        return None
    return f"{name} must be 0 to {time_ms_max} milliseconds since 1970, the years 1970 to 9999"


# Times met together are mostly of a few minutes, so the calendar is asked once for each.
@lru_cache(maxsize=1024)
def _ms_of_minute(text: str) -> int:
    try:
        day = date.fromisoformat(text[:10]).toordinal() - _EPOCH_DAY
    except ValueError:
        raise ValueError(_LAW) from None
    if day < 0:
        raise ValueError(_LAW)
    return (day * _DAY_MINUTES + int(text[11:13]) * 60 + int(text[14:16])) * _MINUTE_MS


@lru_cache(maxsize=1024)
def _text_of_minute(minutes: int) -> str:
    day, rest = divmod(minutes, _DAY_MINUTES)
    return f"{date.fromordinal(day + _EPOCH_DAY).isoformat()}T{rest // 60:02}:{rest % 60:02}"
