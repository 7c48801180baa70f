"""Numbers, sizes, bars and colours of the live table, as short texts. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from nsqd_py.cluster.problems.kinds import ERROR, INFO, WARNING

QUIET = "dim"
GROWING = "yellow"
ALARMING = "bold red"

# The colour of what has a problem, and the letter that says the same without colours.
STYLES = {ERROR: ALARMING, WARNING: "yellow", INFO: "cyan"}
MARKS = {ERROR: "E", WARNING: "W", INFO: "i"}

_BARS = "▁▂▃▄▅▆▇█"


def short_number(value: float) -> str:
    """Return the number in at most five characters: 9999, 12.3k, 456k, 7.8M."""
    if abs(value) < 10_000:
        return str(int(value))
    return _with_unit(value)


def _with_unit(value: float) -> str:
    for unit in "kMGTP":
        value /= 1000
        if abs(value) < 99.95:
            return f"{value:.1f}{unit}"
        if abs(value) < 999.5:
            return f"{value:.0f}{unit}"
    return f"{value / 1000:.1f}E"  # the largest 64-bit count is 9.2E


def short_rate(value: float) -> str:
    """Like `short_number`, but with one decimal for small numbers: 0, 0.5, 12."""
    if 0 < abs(value) < 9.95:
        return f"{value:.1f}"
    return short_number(round(value))


def short_bytes(value: float) -> str:
    """Return a size in at most seven characters: 0 B, 999 B, 12.3 MB, 456 GB."""
    if value < 1000:
        return f"{int(value)} B"
    text = _with_unit(value)
    return f"{text[:-1]} {text[-1]}B"


def short_span(seconds: float) -> str:
    """Return a time span in at most five characters: 59s, 59m, 47h, 365d."""
    for unit_s, name, most in ((1, "s", 60), (60, "m", 60), (3600, "h", 48)):
        if seconds < unit_s * most:
            return f"{int(seconds / unit_s)}{name}"
    return f"{min(int(seconds / 86400), 9999)}d"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the last `width` values as bars, scaled to the highest of them, with the latest at the right."""
    shown = values[-width:]
    highest = max(shown, default=0)
    if highest <= 0:
        return (_BARS[0] * len(shown)).rjust(width)
    steps = len(_BARS) - 1
    # Rounded up, so that the lowest bar means exactly 0.
    bars = (_BARS[-int(-max(value, 0) * steps // highest)] for value in shown)
    return "".join(bars).rjust(width)


def plot(values: Sequence[float], width: int, height: int) -> list[str]:
    """Return the last `width` values as columns of `height` lines, scaled to the highest of them; the latest is at the right."""
    shown = values[-width:]
    highest = max(shown, default=0)
    steps = len(_BARS)
    # In eighths of a line, rounded up: what is not 0 can be seen.
    levels = [0] * len(shown)
    if highest > 0:
        levels = [int(-(-max(value, 0) * height * steps // highest)) for value in shown]
    lines = []
    for line in reversed(range(height)):
        parts = (min(level - line * steps, steps) for level in levels)
        bars = (_BARS[part - 1] if part > 0 else " " for part in parts)
        lines.append("".join(bars).rjust(width))
    return lines


def shorten(text: str, width: int) -> str:
    """Replace the middle of a long text with an ellipsis, because names differ at both ends."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def padded(column: Sequence[str], *, is_left: bool) -> list[str]:
    """Return texts of the same width."""
    width = max(map(len, column))
    return [text.ljust(width) if is_left else text.rjust(width) for text in column]


def fitted(parts: Sequence[str], width: int, gap: str = "   ") -> str:
    """Join the first parts that fit completely. Return an ellipsis if not even the first one fits."""
    text = ""
    for part in parts:
        longer = f"{text}{gap}{part}" if text else part
        if len(longer) > width:
            break
        text = longer
    return text or "…"
