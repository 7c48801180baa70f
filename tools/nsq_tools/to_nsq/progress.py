"""What to-nsq tells while it runs, on a terminal, and at its end."""

from __future__ import annotations

from typing import NamedTuple

_BAR_CELLS = 24
_FULL, _EMPTY = "━", "─"
_STEPS = (("B", 0), ("kB", 1), ("MB", 1), ("GB", 2), ("TB", 2))


class Progress(NamedTuple):
    """What happened so far.

    read_bytes   of the input
    total_bytes  of the input, where it is known
    messages     that every nsqd has acknowledged
    """

    read_bytes: int
    total_bytes: int | None
    messages: int
    elapsed_s: float

    @property
    def per_second(self) -> float:
        return self.messages / self.elapsed_s if self.elapsed_s > 0 else 0.0


def progress_line(progress: Progress, columns: int) -> str:
    """One line for a terminal of that width. What has no room is left out as a whole, so that no figure is cut."""
    parts = [_read(progress), f"{progress.messages:,} messages", f"{progress.per_second:,.0f}/s"]
    if progress.total_bytes:
        part = min(progress.read_bytes / progress.total_bytes, 1.0)
        parts = [f"{_bar(part)} {part:4.0%}", *parts, *_time_left(progress, part)]
    line = ""
    for text in parts:
        longer = f"{line}  {text}" if line else text
        if len(longer) < columns:
            line = longer
    return line


def summary(progress: Progress, addresses: list[str]) -> str:
    """The last line."""
    noun = "message" if progress.messages == 1 else "messages"
    rate = f" ({progress.per_second:,.0f}/s)" if progress.messages > 1 and progress.elapsed_s > 0 else ""
    return (
        f"published {progress.messages:,} {noun} to {', '.join(addresses)}: "
        f"{size_text(progress.read_bytes)} in {progress.elapsed_s:.2f} s{rate}"
    )


def size_text(size_bytes: float) -> str:
    """`512 B`, `1.5 MB`."""
    step = 0
    while size_bytes >= 999.5 and step < len(_STEPS) - 1:
        size_bytes /= 1000
        step += 1
    unit, digits = _STEPS[step]
    return f"{size_bytes:.{digits}f} {unit}"


def _read(progress: Progress) -> str:
    read = size_text(progress.read_bytes)
    return f"{read} of {size_text(progress.total_bytes)}" if progress.total_bytes else read


def _bar(part: float) -> str:
    full = round(part * _BAR_CELLS)
    return _FULL * full + _EMPTY * (_BAR_CELLS - full)


def _time_left(progress: Progress, part: float) -> list[str]:
    if part <= 0 or part >= 1:
        return []
    left_s = progress.elapsed_s / part - progress.elapsed_s
    return [f"{left_s // 60:.0f}:{left_s % 60:02.0f} left"]
