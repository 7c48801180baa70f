"""Ctrl-C and SIGTERM: before anything is sent they end the command at once, then they ask the replay to end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Self

from nsq_tools.cli import FAILED, is_terminal

_SHOW_CURSOR = b"\x1b[?25h"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """While it is entered. A second signal ends the process at once: what was acknowledged is written down.

    asked  set by a signal once `is_at_work` is true; before that, a signal raises KeyboardInterrupt
    """

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.is_at_work = False
        self._has_come = False
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._has_come:
            if is_terminal(sys.stderr):
                os.write(sys.stderr.fileno(), _SHOW_CURSOR)  # the bar hides it
            os._exit(FAILED)
        self._has_come = True
        self.asked.set()
        if not self.is_at_work:
            raise KeyboardInterrupt
