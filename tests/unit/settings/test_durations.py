"""Durations in Go's notation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.settings.durations import HOUR_NS, MAX_NS, MIN_NS, MINUTE_NS, SECOND_NS, format_duration, parse_duration

# Text as Go writes it, and its nanoseconds.
BOTH_WAYS = [
    ("0s", 0),
    ("1ns", 1),
    ("999ns", 999),
    ("1µs", 1_000),
    ("1.1µs", 1_100),
    ("999.999µs", 999_999),
    ("1ms", 1_000_000),
    ("2.2ms", 2_200_000),
    ("250ms", 250_000_000),
    ("1s", SECOND_NS),
    ("1.000000001s", SECOND_NS + 1),
    ("3.5s", 3_500_000_000),
    ("59.9s", 59_900_000_000),
    ("1m0s", MINUTE_NS),
    ("1m30s", 90 * SECOND_NS),
    ("4m5.001s", 4 * MINUTE_NS + 5_001_000_000),
    ("15m0s", 15 * MINUTE_NS),
    ("1h0m0s", HOUR_NS),
    ("1h2m3.5s", HOUR_NS + 2 * MINUTE_NS + 3_500_000_000),
    ("100h0m0.000000001s", 100 * HOUR_NS + 1),
    ("-1.5s", -1_500_000_000),
    ("-1m0s", -MINUTE_NS),
    ("2562047h47m16.854775807s", MAX_NS),
    ("-2562047h47m16.854775808s", MIN_NS),
]

ONLY_READ = [
    ("0", 0),
    ("-0", 0),
    ("+0", 0),
    ("+5s", 5 * SECOND_NS),
    ("60s", MINUTE_NS),
    ("1.s", SECOND_NS),
    (".5s", SECOND_NS // 2),
    ("10us", 10_000),
    ("10\u00b5s", 10_000),
    ("10\u03bcs", 10_000),
    ("1.5h", 90 * MINUTE_NS),
    ("0.1s", 100_000_000),
    ("1h30m", 90 * MINUTE_NS),
    ("30m1h", 90 * MINUTE_NS),
    ("0.9ns", 0),
]

BAD = ("", "-", "s", ".s", "one hour", " 1s", "5", "1h5", "1.2.3s", "5d", "5S", "1s ", "1m-30s", "\u0661s", "1" * 5000)
REFUSED = [
    *((text, "not a duration") for text in BAD),
    *((text, "too long") for text in ("2562047h47m16.854775808s", "-2562047h47m16.854775809s", "9999999h")),
]


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
