"""The live table on a terminal: its keyboard, and what the keys change.

One greenlet polls and another draws, so that keys and size changes take effect immediately.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import gevent
from gevent.event import Event
from gevent.socket import wait_read
from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live

from nsq_tools.stat.model import Failure, Model
from nsq_tools.stat.options import StatOptions
from nsq_tools.stat.rows import Filter, Order, select
from nsq_tools.stat.screen import ScreenView, VisibleRows, draw
from nsqd_py.cluster.model import Cluster
from nsqd_py.runtime.command import is_terminal, wants_colour
from nsqd_py.settings.durations import format_duration

# A character, or a sequence of ECMA-48: CSI or SS3, parameters and a final character.
_KEY = re.compile(r"\x1b[\[O][0-9;]*[@-~]|[^\x1b]")
# The sequences that scroll, and the first row that is visible then.
_SCROLLS: dict[str, Callable[[VisibleRows], int]] = {
    **dict.fromkeys(("\x1b[A", "\x1bOA"), lambda window: window.top - 1),
    **dict.fromkeys(("\x1b[B", "\x1bOB"), lambda window: window.top + 1),
    "\x1b[5~": lambda window: window.top - max(window.count, 1),
    "\x1b[6~": lambda window: window.top + max(window.count, 1),
    **dict.fromkeys(("\x1b[H", "\x1bOH", "\x1b[1~", "\x1b[7~"), lambda window: 0),
    **dict.fromkeys(("\x1b[F", "\x1bOF", "\x1b[4~", "\x1b[8~"), lambda window: window.total),
}


class Keyboard:
    """Calls `on_key` for each key while it is open, and restores the terminal afterwards.

    Without a terminal on standard input, or in the background, it reads no keys.
    """

    def __init__(self, on_key: Callable[[str], None]) -> None:
        self._on_key = on_key
        self._before: Any = None  # the settings of the terminal to restore
        self._reader: gevent.Greenlet[[], None] | None = None

    def open(self) -> None:
        if not is_terminal(sys.stdin) or not _is_in_foreground():
            return
        self._before = termios.tcgetattr(sys.stdin)
        tty.setcbreak(sys.stdin)
        self._reader = gevent.spawn(self._read)

    def close(self) -> None:
        if self._reader is None:
            return
        self._reader.kill()
        self._reader = None
        termios.tcsetattr(sys.stdin, termios.TCSAFLUSH, self._before)

    def _read(self) -> None:
        descriptor = sys.stdin.fileno()
        while True:
            wait_read(descriptor)
            try:
                data = os.read(descriptor, 64)
            except OSError:  # the terminal is gone
                return
            if not data:
                return
            for key in _KEY.findall(data.decode("ascii", "replace")):
                self._on_key(key)


def _is_in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False


class LiveTable:
    """The live table. It calls `stop` when the user quits."""

    def __init__(
        self, options: StatOptions, cluster: Cluster, model: Model, rounds: Iterable[list[Failure]], stop: Callable[[], None]
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._model = model
        self._rounds = rounds
        self._stop = stop
        self._filter = Filter(options.filter)
        self._order = Order.parse(options.sort)
        self._window = VisibleRows(0, 0, 0)
        self._failures: list[Failure] = []
        self._changed = Event()
        self._console = Console(no_color=not wants_colour(), highlight=False, force_terminal=True)

    def run(self) -> None:
        """Show the table until it is killed, or until it has shown --count reports."""
        with ExitStack() as stack:
            keyboard = Keyboard(self._on_key)
            stack.callback(keyboard.close)
            keyboard.open()
            screen = stack.enter_context(
                Live(console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
            )
            stack.enter_context(_on_signal(signal.SIGWINCH, self._changed.set))
            stack.enter_context(_on_signal(signal.SIGTSTP, lambda: self._suspend(keyboard, screen)))
            asking = gevent.spawn(self._ask)
            asking.link(lambda _: self._changed.set())
            stack.callback(asking.kill)
            while not asking.ready():
                self._draw(screen)
                self._changed.wait()
                self._changed.clear()
            asking.get()

    def _ask(self) -> None:
        for failures in self._rounds:
            self._failures = failures
            self._changed.set()

    # --- keys

    def _on_key(self, key: str) -> None:
        seen = self._window
        if key == "q":
            self._stop()
        elif key in ("s", "r"):
            self._order = self._order.next if key == "s" else self._order._replace(is_turned=not self._order.is_turned)
            self._window = VisibleRows.at(0, seen.count, seen.total)
        elif key in _SCROLLS:
            # The next key may come before the table is drawn, and starts from this window.
            self._window = VisibleRows.at(_SCROLLS[key](seen), seen.count, seen.total)
        self._changed.set()

    def _suspend(self, keyboard: Keyboard, screen: Live) -> None:
        """Ctrl-Z: restore the terminal, stop the process, and show the table again when it continues."""
        screen.stop()
        keyboard.close()
        os.kill(os.getpid(), signal.SIGSTOP)
        keyboard.open()
        screen.start()
        self._changed.set()

    # --- drawing

    def _draw(self, screen: Live) -> None:
        # Not from the environment, where COLUMNS stays the same when the size changes.
        size = os.get_terminal_size(sys.stdout.fileno())
        width, height = size.columns or 80, size.lines or 24
        self._console.size = ConsoleDimensions(width, height)
        lines, self._window = draw(self._view(), width, height)
        screen.update(Group(*lines), refresh=True)

    def _view(self) -> ScreenView:
        return ScreenView(
            rows=select(self._model.rows, self._filter, self._order),
            all_rows=self._model.rows,
            node_count=len(self._cluster.nodes),
            failures=self._failures,
            order=self._order,
            interval=format_duration(self._options.interval_ns),
            clock=time.strftime("%H:%M:%S"),
            top=self._window.top,
        )


@contextmanager
def _on_signal(number: signal.Signals, act: Callable[[], None]) -> Iterator[None]:
    handler: Any = gevent.signal_handler(number, act)
    try:
        yield
    finally:
        handler.cancel()
