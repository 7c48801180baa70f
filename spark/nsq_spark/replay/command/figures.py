"""Numbers, sizes and times for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from nsq_tools.tail.rendering import for_terminal_line
from nsq_tools.to_nsq.progress import size_text

from nsqd_py.settings.durations import SECOND_NS

__all__ = ["count_text", "duration_text", "rate_text", "rows_text", "shown", "size_text", "time_text"]


def count_text(count: int, noun: str) -> str:
    """`1 message`, `1,234 messages`."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def rate_text(count: int, seconds: float) -> str:
    """Of so many in so long: `1,234/s`; empty where that says nothing."""
    return f"{count / seconds:,.0f}/s" if count > 1 and seconds > 0 else ""


def duration_text(seconds: float) -> str:
    """`0:07`, `12:34`, `1:02:03`."""
    minutes, rest_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest_s:02d}" if hours else f"{minutes}:{rest_s:02d}"


def time_text(time_ns: int) -> str:
    """RFC 3339 in UTC, with as many digits after the second as it needs: none, three or nine."""
    seconds, rest_ns = divmod(time_ns, SECOND_NS)
    whole = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = "" if not rest_ns else f".{rest_ns // 10**6:03d}" if not rest_ns % 10**6 else f".{rest_ns:09d}"
    return f"{whole}{fraction}Z"


def shown(text: str | bytes) -> str:
    """On one line, without what would steer a terminal."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    return for_terminal_line(data).decode()


def rows_text(rows: Iterable[Sequence[str]], right: Sequence[int] = (), indent: str = "  ") -> str:
    """Lines with columns one below the other; those with the numbers in `right` end below each other."""
    cells = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        aligned = (
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )  # fmt: skip
        lines.append((indent + "  ".join(aligned)).rstrip())
    return "\n".join(lines)
