"""Times are read and written as the rules say, to the millisecond."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.times import check_time_ms, format_time, parse_time, time_ms_max

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
times = st.integers(0, time_ms_max)


def test_the_ends_of_time() -> None:
    assert parse_time("1970-01-01T00:00:00Z") == 0
    assert parse_time("9999-12-31T23:59:59.999Z") == time_ms_max
    assert format_time(0) == "1970-01-01T00:00:00.000Z"
    assert format_time(time_ms_max) == "9999-12-31T23:59:59.999Z"
    for beyond in (-1, time_ms_max + 1):
        with pytest.raises(ValueError, match="1970"):
            format_time(beyond)


@given(times)
def test_times_agree_with_datetime(ms: int) -> None:
    moment = EPOCH + timedelta(milliseconds=ms)
    written = moment.isoformat(timespec="milliseconds")
    assert format_time(ms) == written.replace("+00:00", "Z")
    assert parse_time(written) == ms
    assert parse_time(format_time(ms)) == ms


@given(times, st.integers(0, 30))
def test_decimals_that_are_zero_may_be_added_and_left_out(ms: int, zeros: int) -> None:
    written = format_time(ms)[:-1]
    assert parse_time(f"{written}{'0' * zeros}Z") == ms
    short = written.rstrip("0").removesuffix(".")
    assert parse_time(f"{short}+00:00") == ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-11-30T14:56:46.812Z", 1_796_050_606_812),
        ("2026-11-30T14:56:46.8Z", 1_796_050_606_800),
        ("2026-11-30T14:56:46.81Z", 1_796_050_606_810),
        ("2026-11-30T14:56:46.812000000Z", 1_796_050_606_812),
        ("2026-11-30T14:56:46.000Z", 1_796_050_606_000),
        ("2000-02-29T00:00:00+00:00", 951_782_400_000),
        ("2024-02-29T23:59:59.999Z", 1_709_251_199_999),
    ],
)
def test_forms_that_are_read(text: str, ms: int) -> None:
    assert parse_time(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-30T14:56:46.8121Z",
        "2026-11-30T14:56:46.8120001Z",
        "2026-11-30T14:56:46.Z",
        "2026-11-30T14:56:46,812Z",
        "2026-11-30T14:56:46.812",
        "2026-11-30T14:56:46.812+01:00",
        "2026-11-30T14:56:46.812-00:00",
        "2026-11-30T14:56:46.812+0000",
        "2026-11-30T14:56:46.812+00",
        "2026-11-30T14:56:46.812z",
        "2026-11-30t14:56:46.812Z",
        "2026-11-30 14:56:46.812Z",
        "2026-11-30T14:56Z",
        "2026-11-30T14:56:60Z",
        "2016-12-31T23:59:60Z",
        "2026-11-30T24:00:00Z",
        "2026-11-30T14:60:00Z",
        "2026-11-31T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z",
        "2026-00-10T00:00:00Z",
        "2026-13-10T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "1969-12-31T23:59:59.999Z",
        "0000-01-01T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "+2026-11-30T14:56:46Z",
        "2026-W01-1T00:00:00Z",
        "20261130T145646Z",
        " 2026-11-30T14:56:46Z",
        "2026-11-30T14:56:46Z\n",
        "２０２６-11-30T14:56:46Z",
        "2026-11-30T14:56:4٦Z",
        "2026-11-30T14:56:46.٦Z",
    ],
)
def test_forms_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be RFC 3339 in UTC"):
        parse_time(text)


def test_milliseconds_are_checked_by_name() -> None:
    assert check_time_ms(0) is None
    assert check_time_ms(time_ms_max) is None
    for beyond in (-1, time_ms_max + 1):
        problem = check_time_ms(beyond, "started_at")
        assert problem is not None
        assert "started_at" in problem
        assert str(time_ms_max) in problem
