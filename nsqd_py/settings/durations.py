"""Durations as Go writes and reads them: `1h2m3.5s` (package time, ParseDuration and Duration.String).

A duration is a whole number of nanoseconds in 64 bits with a sign.
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

_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")


def parse_duration(text: str) -> int:
    """Return the nanoseconds of a duration: numbers with units (`60s`, `1.5h`, `-1m30s`), or `0`.

    Raises ValueError with a text that says what is wrong.
    """
    negative = text.startswith("-")
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    if not rest:
        raise ValueError(f'"{text}" is not a duration (such as 60s, 1m30s or 250ms)')
    total_ns = 0
    for part in _parts(text, rest):
        total_ns += part
    if negative:
        total_ns = -total_ns
    if not MIN_NS <= total_ns <= MAX_NS:
        raise ValueError(f'the duration "{text}" is too long: about 292 years is the limit')
    return total_ns


def _parts(text: str, rest: str) -> list[int]:
    parts = []
    position = 0
    while position < len(rest):
        match = _PART.match(rest, position)
        assert match is not None  # all parts are optional
        whole, fraction, unit = match.group(1), match.group(2) or "", match.group(3)
        if not whole and not fraction:
            raise ValueError(f'"{text}" is not a duration (such as 60s, 1m30s or 250ms)')
        if not unit:
            raise ValueError(f'the duration "{text}" lacks a unit (ns, us, ms, s, m, h)')
        if unit not in UNITS_NS:
            raise ValueError(f'unknown unit "{unit}" in the duration "{text}" (ns, us, ms, s, m, h)')
        parts.append(_part_ns(whole, fraction, UNITS_NS[unit]))
        position = match.end()
    return parts


def _part_ns(whole: str, fraction: str, unit_ns: int) -> int:
    # As in Go: computed in floating point and truncated; digits beyond 63 bits are ignored.
    numerator, denominator = 0, 1.0
    for digit in fraction:
        longer = numerator * 10 + int(digit)
        if longer > 2**63:
            break
        numerator, denominator = longer, denominator * 10
    return int(whole or "0") * unit_ns + int(float(numerator) * (float(unit_ns) / denominator))


def format_duration(duration_ns: int) -> str:
    """Return the shortest exact form, in Go's units: `1h0m0s`, `1.5s`, `250ms`, `0s`."""
    sign = "-" if duration_ns < 0 else ""
    size_ns = abs(duration_ns)
    if size_ns == 0:
        return "0s"
    if size_ns < MICROSECOND_NS:
        return f"{sign}{size_ns}ns"
    if size_ns < MILLISECOND_NS:
        return f"{sign}{_decimal(size_ns, MICROSECOND_NS)}\u00b5s"
    if size_ns < SECOND_NS:
        return f"{sign}{_decimal(size_ns, MILLISECOND_NS)}ms"
    minutes, rest_ns = divmod(size_ns, MINUTE_NS)
    hours, minutes = divmod(minutes, 60)
    seconds = _decimal(rest_ns, SECOND_NS)
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}s"
    if minutes:
        return f"{sign}{minutes}m{seconds}s"
    return f"{sign}{seconds}s"


def _decimal(size_ns: int, unit_ns: int) -> str:
    """Return `size_ns` in units of `unit_ns`, with the digits after the point that it needs."""
    whole, rest = divmod(size_ns, unit_ns)
    if not rest:
        return str(whole)
    digits = len(str(unit_ns)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0")
