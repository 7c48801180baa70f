"""The progress of to-nsq on a terminal: one line on standard error, drawn over itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Self

import gevent

from nsq_tools.to_nsq.progress import Progress, progress_line

# The cursor waits at the begin of the line, so that whatever else is written there begins with this.
ERASE_LINE = "\x1b[K"
_INTERVAL_S = 0.1
_NARROW = 80


class Bar:
    """Drawn while it is entered."""

    def __init__(self, progress: Callable[[], Progress]) -> None:
        self._progress = progress
        self._greenlet: gevent.Greenlet[[], None] | None = None

    def __enter__(self) -> Self:
        self._greenlet = gevent.spawn(self._draw_often)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
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
