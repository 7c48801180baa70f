"""The progress of to-nsq: a line on the terminal while it runs, and a summary at the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

import gevent

from nsq_tools.sizes import size_text

_BAR_CELLS = 24
_FULL, _EMPTY = "━", "─"


class Progress(NamedTuple):
    """The progress so far.

    read_bytes   bytes of the input that have been read
    total_bytes  size of the input, or None if it is unknown
    messages     messages that every nsqd has acknowledged
    """

    read_bytes: int
    total_bytes: int | None
    messages: int
    elapsed_s: float

    @property
    def per_second(self) -> float:
        return self.messages / self.elapsed_s if self.elapsed_s > 0 else 0.0


def progress_line(progress: Progress, columns: int) -> str:
    """Return one line for a terminal of this width. A figure that does not fit is left out, never truncated."""
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
    """Return the last log line of to-nsq."""
    noun = "message" if progress.messages == 1 else "messages"
    rate = f" ({progress.per_second:,.0f}/s)" if progress.messages > 1 and progress.elapsed_s > 0 else ""
    return (
        f"published {progress.messages:,} {noun} to {', '.join(addresses)}: "
        f"{size_text(progress.read_bytes)} in {progress.elapsed_s:.2f} s{rate}"
    )


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


# The cursor stays at the start of the line, and other output to the terminal begins with this sequence.
ERASE_LINE = "\x1b[K"
_INTERVAL_S = 0.1
_NARROW = 80


class Bar:
    """A progress line on standard error, redrawn in place while the context is entered."""

    def __init__(self, progress: Callable[[], Progress]) -> None:
        self._progress = progress
        self._greenlet: gevent.Greenlet[[], None] | None = None

    def __enter__(self) -> Self:
        self._greenlet = gevent.spawn(self._draw_often)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._greenlet is not None:
            self._greenlet.kill()
        _write(ERASE_LINE)

    def _draw_often(self) -> None:
        while True:
            gevent.sleep(_INTERVAL_S)
            _write(f"{ERASE_LINE}{progress_line(self._progress(), _columns())}\r")


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _NARROW
    except OSError:
        return _NARROW


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
