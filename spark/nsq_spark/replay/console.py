"""The command and its user: questions, signals, and a progress bar on the terminal."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import deque
from contextlib import suppress
from types import FrameType
from typing import Any, NamedTuple, Self

from nsq_spark.replay.driver import ReplayProgress
from nsq_spark.replay.figures import duration_text, size_text
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
    with suppress(OSError):  # nobody reads it any more, and the work goes on
        print(text, file=sys.stderr, flush=True)


class Stopping:
    """Handles Ctrl-C and SIGTERM while it is entered. A second signal ends the process at once.

    asked       set by a signal
    is_at_work  set by the caller: a signal now asks the replay to end. Before, it raises KeyboardInterrupt
    """

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.is_at_work = False
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            if is_terminal(sys.stderr):
                os.write(sys.stderr.fileno(), _SHOW_CURSOR)  # the bar hides it
            os._exit(FAILED)
        self.asked.set()
        if not self.is_at_work:
            raise KeyboardInterrupt


# ---- progress


class Bar:
    """A progress bar on a terminal while it is entered; nothing in a pipe. `waiting` is its text at first."""

    def __init__(self, waiting: str, *, is_dry: bool = False) -> None:
        self._is_dry = is_dry
        self._speed = Speed(is_dry=is_dry)
        self._bar: Any = None
        if is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb":
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

            text = TextColumn("{task.description}", markup=False)
            columns = (SpinnerColumn(), BarColumn(24), TaskProgressColumn(), text)
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(waiting, total=None)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, progress: ReplayProgress) -> None:
        """Draw the progress."""
        if self._bar is not None:
            self._speed.add(progress)
            text = progress_text(progress, self._speed, is_dry=self._is_dry)
            self._bar.update(self._task, total=1.0, completed=part_done(progress), description=text)


class _Sample(NamedTuple):
    seconds: float
    messages: int
    done_bytes: float


class Speed:
    """The speed of the last seconds. The time before the first message does not count."""

    def __init__(self, *, is_dry: bool = False) -> None:
        self._is_dry = is_dry
        self._samples = deque([_Sample(0.0, 0, 0.0)])

    def add(self, progress: ReplayProgress) -> None:
        counts, samples = progress.counts, self._samples
        sample = _Sample(progress.seconds, counts.matched if self._is_dry else counts.sent, done_bytes(progress))
        if not sample.messages or sample.messages < samples[-1].messages:  # a phase begins
            samples.clear()
        samples.append(sample)
        while len(samples) > 2 and samples[1].seconds < sample.seconds - _WINDOW_S:
            samples.popleft()

    @property
    def messages_a_second(self) -> float:
        return self._rate(self._samples[-1].messages - self._samples[0].messages)

    @property
    def bytes_a_second(self) -> float:
        return self._rate(self._samples[-1].done_bytes - self._samples[0].done_bytes)

    def _rate(self, amount: float) -> float:
        seconds = self._samples[-1].seconds - self._samples[0].seconds
        return max(amount / seconds, 0.0) if seconds > 0 else 0.0


def done_bytes(progress: ReplayProgress) -> float:
    """Return the bytes of the archive that are read, without the share of matching messages that are not sent yet."""
    counts = progress.counts
    settled = counts.sent + counts.failed
    waits = settled and counts.matched > settled
    return counts.read_bytes * settled / counts.matched if waits else counts.read_bytes


def part_done(progress: ReplayProgress) -> float:
    """Return the part of the work that is done, 0 to 1."""
    return min(done_bytes(progress) / progress.total_bytes, 1.0) if progress.total_bytes else 0.0


def progress_text(progress: ReplayProgress, speed: Speed, *, is_dry: bool = False) -> str:
    """Return the number of messages, their rate, and the time that is left."""
    counts, done = progress.counts, done_bytes(progress)
    words = [
        progress.phase,
        f"{counts.matched:,} found" if is_dry else f"{counts.sent:,} sent",
        f"{counts.failed:,} failed" if counts.failed else "",
        f"{speed.messages_a_second:,.0f}/s",
    ]
    if done < progress.total_bytes:
        words.append(f"{size_text(done)} of {size_text(progress.total_bytes)}")
        if speed.bytes_a_second:
            words.append(f"{duration_text((progress.total_bytes - done) / speed.bytes_a_second)} left")
    return "  ".join(filter(None, words))
