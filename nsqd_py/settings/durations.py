"""Durations as Go writes and reads them: `1h2m3.5s` (package time, ParseDuration and Duration.String); times that users write.

A duration is a whole number of nanoseconds in 64 bits with a sign, and a time one of nanoseconds since the epoch.
"""

from __future__ import annotations

import re

MICROSECOND_NS = 1_000
MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS

UNITS_NS = {
    "ns": 1,
    "us": MICROSECOND_NS,
    "\u00b5s": MICROSECOND_NS,  # micro sign
    "\u03bcs": MICROSECOND_NS,  # Greek mu
    "ms": MILLISECOND_NS,
    "s": SECOND_NS,
    "m": MINUTE_NS,
    "h": HOUR_NS,
}
MAX_NS = 2**63 - 1
MIN_NS = -(2**63)

_DURATION = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)[^0-9.+-]+)+")
_PART = re.compile(r"([0-9]*)\.?([0-9]*)([^0-9.+-]+)")

_PERIOD = re.compile(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*([a-z]+)\s*")
# The units of `parse_period`, with their other names.
_PERIOD_UNITS_NS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), SECOND_NS),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), MINUTE_NS),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), HOUR_NS),
    **dict.fromkeys(("d", "day", "days"), 24 * HOUR_NS),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 24 * HOUR_NS),
}

_MAX_CHARACTERS = 1000
_MAX_SHOWN = 100
_DAY_NS = 24 * 3600 * SECOND_NS
_RFC3339 = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)"
    r"(?:[Tt ](?P<time>\d\d:\d\d(?::\d\d)?)(?P<fraction>\.\d+)?\s*(?P<zone>[Zz]|[+-]\d\d:\d\d)?)?"
)
_NUMBER = re.compile(r"(?P<whole>\d+)(?:\.(?P<fraction>\d*))?")
_RELATIVE = re.compile(r"-(?:(?P<days>\d+(?:\.\d+)?)d)?(?P<rest>.*)")
# A number below the limit is in this unit: seconds (until the year 5138), milliseconds, microseconds.
_EPOCH_UNITS = ((10**11, SECOND_NS), (10**14, 10**6), (10**17, 10**3))


def parse_duration(text: str) -> int:
    """Return the nanoseconds of a duration: numbers with units (`60s`, `1.5h`, `-1m30s`), or `0`.

    Raises ValueError with a text that says what is wrong.
    """
    if text in ("0", "+0", "-0"):
        return 0
    parts = []
    if _DURATION.fullmatch(text):
        parts = _PART.findall(text)
    if not parts or any(unit not in UNITS_NS for _, _, unit in parts):
        raise ValueError(
            f'"{text}" is not a duration: numbers with units (ns, us, ms, s, m, h), such as 60s, 1m30s or 250ms'
        )
    total_ns: int = sum(
        int(whole or "0") * UNITS_NS[unit] + int(fraction or "0") * UNITS_NS[unit] // 10 ** len(fraction)
        for whole, fraction, unit in parts
    )
    total_ns = -total_ns if text.startswith("-") else total_ns
    if not MIN_NS <= total_ns <= MAX_NS:
        raise ValueError(f'the duration "{text}" is too long: about 292 years is the limit')
    return total_ns


def parse_period(text: str) -> int:
    """Return the nanoseconds of a duration, which may also have units as people write them: `10min`, `2 hours`, `1d12h`.

    Raises ValueError.
    """
    parts = _PERIOD.findall(text.lower())
    if not parts or _PERIOD.sub("", text.lower()) or any(unit not in _PERIOD_UNITS_NS for _, unit in parts):
        return parse_duration(text)
    total_ns = sum(float(number) * _PERIOD_UNITS_NS[unit] for number, unit in parts)
    if total_ns > MAX_NS:
        raise ValueError(f'the duration "{text}" is too long: about 292 years is the limit')
    return round(total_ns)


def format_duration(duration_ns: int) -> str:
    """Return the shortest exact form, in Go's units: `1h0m0s`, `1.5s`, `250ms`, `0s`."""
    sign = "-" if duration_ns < 0 else ""
    size_ns = abs(duration_ns)
    for unit, unit_ns, limit_ns in (
        ("ns", 1, MICROSECOND_NS),
        ("\u00b5s", MICROSECOND_NS, MILLISECOND_NS),
        ("ms", MILLISECOND_NS, SECOND_NS),
    ):
        if 0 < size_ns < limit_ns:
            return f"{sign}{_decimal(size_ns, unit_ns)}{unit}"
    minutes, rest_ns = divmod(size_ns, MINUTE_NS)
    hours, minutes = divmod(minutes, 60)
    before = ""
    if hours:
        before = f"{hours}h{minutes}m"
    elif minutes:
        before = f"{minutes}m"
    return f"{sign}{before}{_decimal(rest_ns, SECOND_NS)}s"


def _decimal(size_ns: int, unit_ns: int) -> str:
    """Return `size_ns` in units of `unit_ns`, with the digits after the point that it needs."""
    whole, rest = divmod(size_ns, unit_ns)
    if rest:
        return f"{whole}.{rest:0{len(str(unit_ns)) - 1}d}".rstrip("0")
    return str(whole)


# ---- Times that users write: RFC 3339, a number since the epoch, or an age.


def parse_time(text: str, now_ns: int) -> int:
    """Return the nanoseconds since the epoch of one of these:

    2025-11-20T10:00:00Z      RFC 3339; without an offset it is UTC, without a time midnight
    1763632800, 1763632800.5  seconds since the epoch; a number with more digits is in ms, us or ns
    -2h, -1d12h, now          an age, counted back from `now_ns`, in Go's units of durations and in days

    Raises ValueError with a text that says what is wrong.
    """
    text = text.strip()
    if len(text) > _MAX_CHARACTERS:
        raise _no_time(text)
    if text == "now":
        return now_ns
    for parse in (_parse_rfc3339, _parse_epoch):
        found = parse(text)
        if found is not None:
            return found
    if text.startswith("-"):
        return now_ns - _parse_age(text)
    raise _no_time(text)


def _no_time(text: str) -> ValueError:
    return ValueError(
        f'"{text[:_MAX_SHOWN]}" is not a time (such as 2025-11-20T10:00:00Z, 1763632800 or -2h)'
    )


def _parse_rfc3339(text: str) -> int | None:
    from datetime import UTC, datetime  # 2.7 ms and 0.3 MB of a start; few settings need it

    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    zone = (match["zone"] or "Z").upper().replace("Z", "+00:00")
    try:
        moment = datetime.fromisoformat(f"{match['date']}T{match['time'] or '00:00'}{zone}")
    except ValueError as error:
        raise ValueError(f'"{text}" is not a time: {error}') from None
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    since_s = since.days * 86_400 + since.seconds
    return _checked(since_s * SECOND_NS + _billionths(match["fraction"]), text)


def _billionths(fraction: str | None) -> int:
    """Return the nanoseconds of a fraction of a second, with any number of digits."""
    return int((fraction or "").lstrip(".")[:9].ljust(9, "0"))


def _parse_epoch(text: str) -> int | None:
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    whole = int(match["whole"])
    unit_ns = next((unit_ns for limit, unit_ns in _EPOCH_UNITS if whole < limit), 1)
    return _checked(whole * unit_ns + _billionths(match["fraction"]) * unit_ns // SECOND_NS, text)


def _parse_age(text: str) -> int:
    match = _RELATIVE.fullmatch(text)
    if match is None:  # it has more than one line
        raise _no_time(text)
    days = float(match["days"] or 0)
    if days > MAX_NS / _DAY_NS:
        raise ValueError(f'"{text[:_MAX_SHOWN]}" is too long ago: the limit is {MAX_NS // _DAY_NS} days')
    days_ns = round(days * _DAY_NS)
    if not match["rest"] and match["days"]:
        return days_ns
    try:
        return days_ns + parse_duration(match["rest"])
    except ValueError:
        raise _no_time(text) from None


def _checked(time_ns: int, text: str) -> int:
    if time_ns > MAX_NS:
        raise ValueError(f'"{text}" is too late: the year 2262 is the limit')
    return time_ns
