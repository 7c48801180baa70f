"""Durations in Go's notation."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.settings.durations import (
    HOUR_NS,
    MAX_NS,
    MIN_NS,
    MINUTE_NS,
    SECOND_NS,
    format_duration,
    parse_duration,
    parse_period,
    parse_time,
)

# Text as Go writes it, and its nanoseconds.
BOTH_WAYS = [
    ("0s", 0),
    ("1ns", 1),
    ("1µs", 1_000),
    ("1.1µs", 1_100),
    ("999.999µs", 999_999),
    ("1ms", 1_000_000),
    ("2.2ms", 2_200_000),
    ("1s", SECOND_NS),
    ("1.000000001s", SECOND_NS + 1),
    ("3.5s", 3_500_000_000),
    ("4m5.001s", 4 * MINUTE_NS + 5_001_000_000),
    ("1h0m0s", HOUR_NS),
    ("1h2m3.5s", HOUR_NS + 2 * MINUTE_NS + 3_500_000_000),
    ("100h0m0.000000001s", 100 * HOUR_NS + 1),
    ("-1.5s", -1_500_000_000),
    ("2562047h47m16.854775807s", MAX_NS),
    ("-2562047h47m16.854775808s", MIN_NS),
]

ONLY_READ = [
    ("0", 0),
    ("+0", 0),
    ("+5s", 5 * SECOND_NS),
    ("60s", MINUTE_NS),
    ("1.s", SECOND_NS),
    (".5s", SECOND_NS // 2),
    ("10us", 10_000),
    ("10\u00b5s", 10_000),
    ("10\u03bcs", 10_000),
    ("1.5h", 90 * MINUTE_NS),
    ("30m1h", 90 * MINUTE_NS),
    ("0.9ns", 0),
]

BAD = (
    "",
    "-",
    "s",
    ".s",
    "one hour",
    " 1s",
    "5",
    "1h5",
    "1.2.3s",
    "5d",
    "5S",
    "1s ",
    "1m-30s",
    "\u0661s",
    "1" * 5000,
)
REFUSED = [
    *((text, "not a duration") for text in BAD),
    *((text, "too long") for text in ("2562047h47m16.854775808s", "-2562047h47m16.854775809s", "9999999h")),
]


PERIODS = [
    ("10min", 10 * MINUTE_NS),
    ("10 min", 10 * MINUTE_NS),
    ("2 hours 30 minutes", 150 * MINUTE_NS),
    ("1d12h", 36 * 60 * MINUTE_NS),
    ("1.5 Days", 36 * 60 * MINUTE_NS),
    ("2w", 14 * 24 * 60 * MINUTE_NS),
    ("90SEC", 90 * SECOND_NS),
    ("1h30m", 90 * MINUTE_NS),
    ("250ms", SECOND_NS // 4),
    ("0", 0),
    ("-1m", -MINUTE_NS),
]


@pytest.mark.parametrize(("text", "duration_ns"), PERIODS)
def test_periods_have_units_as_people_write_them(text: str, duration_ns: int) -> None:
    assert parse_period(text) == duration_ns


@pytest.mark.parametrize(
    "text", ["", "min", "10", "10 parsecs", "-10min", "10min 5", "ten min", "1" * 400 + "d", "300000d"]
)
def test_other_texts_are_no_periods(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration|too long"):
        parse_period(text)


@pytest.mark.parametrize(("text", "duration_ns"), BOTH_WAYS)
def test_written_and_read(text: str, duration_ns: int) -> None:
    assert format_duration(duration_ns) == text
    assert parse_duration(text) == duration_ns


@pytest.mark.parametrize(("text", "duration_ns"), ONLY_READ)
def test_read(text: str, duration_ns: int) -> None:
    assert parse_duration(text) == duration_ns


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_duration(text)


@given(st.integers(MIN_NS, MAX_NS))
def test_what_is_written_is_read(duration_ns: int) -> None:
    assert parse_duration(format_duration(duration_ns)) == duration_ns


NOW_NS = 1_763_632_800 * SECOND_NS


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("2025-11-20T10:00:00Z", NOW_NS),
        ("2025-11-20 10:00", NOW_NS),
        ("2025-11-20T10:00:00", NOW_NS),
        ("2025-11-20T11:30:00+01:30", NOW_NS),
        ("2025-11-20T10:00:00.000000001Z", NOW_NS + 1),
        ("2025-11-20T10:00:00.5-00:00", NOW_NS + SECOND_NS // 2),
        ("2025-11-20", NOW_NS - 10 * HOUR_NS),
        ("1763632800", NOW_NS),
        ("1763632800.25", NOW_NS + SECOND_NS // 4),
        ("1763632800000000", NOW_NS),
        ("1763632800000000001", NOW_NS + 1),
        ("0", 0),
        ("-2h", NOW_NS - 2 * HOUR_NS),
        ("-1d", NOW_NS - 24 * HOUR_NS),
        ("-1.5d30m", NOW_NS - 36 * HOUR_NS - HOUR_NS // 2),
        (" now ", NOW_NS),
    ],
)
def test_times(text: str, time_ns: int) -> None:
    assert parse_time(text, NOW_NS) == time_ns


@pytest.mark.parametrize(
    "text", ["", "-", "-x", "-2", "yesterday", "2025-11", "20:00", "1e9", "2025-11-20T10:00 CET"]
)
def test_no_times(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_time(text, NOW_NS)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("2025-13-01", "month must be in 1..12"), ("9999-01-01", "the year 2262"), ("9" * 20, "the year 2262")],
)
def test_times_that_cannot_be(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_time(text, NOW_NS)


@given(
    st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1)), st.integers(0, 999), st.integers(-1439, 1439)
)
def test_all_that_datetime_writes(moment: datetime, ns: int, offset_minutes: int) -> None:
    zone = timezone(timedelta(minutes=offset_minutes))
    moment = moment.replace(tzinfo=zone)
    text = f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06d}{ns:03d}{moment:%z}"
    text = f"{text[:-2]}:{text[-2:]}"
    whole = round((moment.replace(microsecond=0) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    assert parse_time(text, 0) == whole * SECOND_NS + moment.microsecond * 1000 + ns


@pytest.mark.parametrize(
    "text", ["-1\nh", "-" + "9" * 400 + "d", "-" + "9" * 5000 + "d", "-1e400d", "9" * 5000]
)
def test_a_hostile_text_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="not a time|too") as caught:
        parse_time(text, NOW_NS)
    assert len(str(caught.value)) < 300


@given(st.one_of(st.text(max_size=30), st.from_regex(r"-?[0-9.]{1,400}[dhms\n ]{0,3}[0-9]{0,3}[hms]?")))
def test_any_text_is_a_time_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(parse_time(text, NOW_NS), int)
