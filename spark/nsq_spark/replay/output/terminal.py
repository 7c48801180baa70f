"""The terminal of spark-replay: its question, its signals, and a line of progress."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import ExitStack, suppress
from shutil import get_terminal_size
from time import monotonic
from types import FrameType
from typing import Self

from nsq_spark.replay.checkpoint.ledger import Totals
from nsqd_py.runtime.command import is_terminal
from nsqd_py.settings.program import FAILED

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def agreed(question: str) -> bool:
    """True if the user answers yes; Enter alone, and the end of input, are no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    return answer.strip().lower() in ("y", "yes")


class Stopping(ExitStack):
    """Handles Ctrl-C and SIGTERM while it is entered. A second signal ends the process at once.

    asked  set by a signal, which raises KeyboardInterrupt until `begin_work` is called
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self._is_at_work = False

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self.callback(signal.signal, number, signal.signal(number, self._on_signal))
        return self

    def begin_work(self) -> None:
        """From now on a signal asks the replay to end. PySpark has replaced our handler by its own."""
        self._is_at_work = True
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            os._exit(FAILED)
        self.asked.set()
        if not self._is_at_work:
            raise KeyboardInterrupt


class ProgressBar:
    """A line of progress on a terminal while it is entered; nothing in a pipe."""

    def __init__(self) -> None:
        self._is_shown = is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"
        self._began_s = monotonic()

    def __enter__(self) -> Self:
        self._draw("reading")
        return self

    def __exit__(self, *exception: object) -> None:
        self._draw("")

    def __call__(self, counts: Totals) -> None:
        """Draw what is sent so far."""
        if counts.sent or counts.failed:
            speed = counts.sent / max(monotonic() - self._began_s, 1.0)
            self._draw(f"{counts.sent:,} sent, {counts.failed:,} refused, {speed:,.0f}/s")

    def _draw(self, text: str) -> None:
        if self._is_shown:
            with suppress(OSError):  # the terminal is gone, and the work goes on
                print(
                    f"\r{text[: get_terminal_size().columns - 1]}\x1b[K", end="", file=sys.stderr, flush=True
                )
