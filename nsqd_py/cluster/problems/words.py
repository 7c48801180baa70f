"""Numbers, rates and time spans in sentences. Pure."""

from __future__ import annotations

_UNITS: tuple[tuple[float, str], ...] = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_MOST_NAMED = 3


def counted(number: int, noun: str) -> str:
    """Return "1 message" or "12,345 messages"."""
    if number == 1:
        return f"{number:,} {noun}"
    return f"{number:,} {noun}s"


def waiting(depth: int) -> str:
    """Return "1 message waits" or "12,345 messages wait"."""
    return f"{counted(depth, 'message')} {verb(depth)}"


def verb(number: int) -> str:
    return "waits" if number == 1 else "wait"


def rate(per_s: float) -> str:
    """Return "12,345/s", "12.3/s" or "0.12/s"."""
    return f"{per_s:,.0f}/s" if per_s >= 100 else f"{per_s:.3g}/s"


def percent(part: float) -> str:
    if part >= 0.01:
        return f"{100 * part:.0f} %"
    return f"{100 * part:.1g} %"


def span(seconds: float) -> str:
    """Return "2 h 5 min": the two largest units of a time span."""
    parts: list[str] = []
    rest = max(1, round(seconds))
    for unit_s, name in _UNITS:
        number, rest = divmod(rest, int(unit_s))
        if number or parts:
            parts.append(f"{number} {name}" if number else "")
    return " ".join(part for part in parts[:2] if part)


def named(names: list[str], most: int = _MOST_NAMED) -> str:
    """Return the first few names, sorted, and "and others" if there are more."""
    shown = ", ".join(sorted(names)[:most])
    return f"{shown} and others" if len(names) > most else shown
