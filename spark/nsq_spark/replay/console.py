"""The command and its user: questions, signals, and a progress bar on the terminal."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, Self

from nsq_spark.replay.driver import ReplayProgress
from nsq_tools.cli import FAILED, is_terminal

_SHOW_CURSOR = b"\x1b[?25h"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_WINDOW_S = 5.0


def agreed(question: str) -> bool:
    """True if the user answers yes; Enter alone, and the end of input, are no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    return answer.strip().lower() in ("y", "yes")


def say(text: str) -> None:
    """Write to standard error; standard output is for data."""
    with suppress(OSError):  # the terminal is gone, and the work goes on
        print(text, file=sys.stderr, flush=True)


class Stopping:
    """Handles Ctrl-C and SIGTERM while it is entered. A second signal ends the process at once.

    asked  set by a signal, which raises KeyboardInterrupt until `begin_work` is called
    """

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._is_at_work = False
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        return self

    def begin_work(self) -> None:
        """From now on a signal asks the replay to end. PySpark has put a handler of its own in place of ours."""
        self._is_at_work = True
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            if is_terminal(sys.stderr):
                os.write(sys.stderr.fileno(), _SHOW_CURSOR)  # the bar hides it
            os._exit(FAILED)
        self.asked.set()
        if not self._is_at_work:
            raise KeyboardInterrupt


class Bar:
    """A progress bar on a terminal while it is entered; nothing in a pipe. `waiting` is its text at first."""

    def __init__(self, waiting: str, *, is_dry: bool = False) -> None:
        self._is_dry = is_dry
        self._bar: Any = None
        if is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb":
            from rich import progress
            from rich.console import Console

            self._bar = progress.Progress(
                progress.SpinnerColumn(),
                progress.BarColumn(24),
                progress.TaskProgressColumn(),
                progress.TextColumn("{task.description}", markup=False),
                console=Console(stderr=True),
                transient=True,
                speed_estimate_period=_WINDOW_S,
            )
            self._tasks = self._bar.add_task(waiting, total=None)
            self._messages = self._bar.add_task("", total=None, visible=False)  # its speed is in the text

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, progress: ReplayProgress) -> None:
        """Draw the progress."""
        if self._bar is None:
            return
        counts = progress.counts
        self._bar.update(self._messages, completed=counts.sent)
        self._bar.update(self._tasks, total=max(progress.tasks, 1), completed=progress.tasks_done)
        speed = self._bar.tasks[1].speed or 0.0
        words = [progress.phase, f"{progress.tasks_done} of {progress.tasks} tasks"]
        if not self._is_dry:
            words += [f"{counts.sent:,} sent", f"{counts.failed:,} failed" if counts.failed else "", f"{speed:,.0f}/s"]
        self._bar.update(self._tasks, description="  ".join(filter(None, words)))
