"""Numbers, sizes and times as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from nsqd_py.runtime.logs import one_line
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.types import size_text

__all__ = ["count_text", "duration_text", "rows_text", "shown", "size_text", "time_text"]


def count_text(count: int, noun: str) -> str:
    """Return `1 message` or `1,234 messages`."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def duration_text(seconds: float) -> str:
    """Return `0:07`, `12:34` or `1:02:03`."""
    minutes, rest_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest_s:02d}" if hours else f"{minutes}:{rest_s:02d}"


def time_text(time_ns: int) -> str:
    """Return RFC 3339 in UTC, with none, three or nine digits after the second, as it needs."""
    seconds, rest_ns = divmod(time_ns, SECOND_NS)
    whole = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = "" if not rest_ns else f".{rest_ns // 10**6:03d}" if not rest_ns % 10**6 else f".{rest_ns:09d}"
    return f"{whole}{fraction}Z"


def shown(text: str | bytes) -> str:
    """Return a text on one line, with no bytes that control the terminal."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    return one_line(data.decode("utf-8", "backslashreplace"))


def rows_text(rows: Iterable[Sequence[str]], right: Sequence[int] = (), indent: str = "  ") -> str:
    """Return lines with aligned columns; those with the numbers in `right` are aligned to the right."""
    cells = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        aligned = (
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append((indent + "  ".join(aligned)).rstrip())
    return "\n".join(lines)
