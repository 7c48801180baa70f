"""The progress on standard error: a bar on a terminal, nothing in a pipe."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Any, Self

from nsq_tools.cli import is_terminal

from nsq_spark.replay.command.progress_text import Speed, part_done, progress_text
from nsq_spark.replay.running import Progress


class Bar:
    """Drawn while it is entered, and wiped away at the end. `waiting` is what it says before there is progress."""

    def __init__(self, waiting: str, *, is_dry: bool = False) -> None:
        self._is_dry = is_dry
        self._speed = Speed(is_dry=is_dry)
        self._bar: Any = None  # rich is imported where there is a terminal
        if is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb":
            self._draw(waiting)

    def _draw(self, waiting: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn
        from rich.progress import Progress as Drawing

        columns = (SpinnerColumn(), BarColumn(24), TaskProgressColumn(), TextColumn("{task.description}", markup=False))
        self._bar = Drawing(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(waiting, total=None)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        """How far it is."""
        if self._bar is None:
            return
        self._speed.add(progress)
        text = progress_text(progress, self._speed, is_dry=self._is_dry)
        self._bar.update(self._task, total=1.0, completed=part_done(progress), description=text)
