"""A program on a pseudo-terminal, and what one would see there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyte

from tests.support.nsqd_process import REPOSITORY

_TURN_S = 0.02
_MOST_BYTES = 1 << 20  # at a time, of a program that never rests


class Terminal:
    """A program that has it as its controlling terminal, for standard input, output and error alike."""

    def __init__(
        self, command: Sequence[str], columns: int = 80, lines: int = 24, **environment: str
    ) -> None:
        self._ours, self._theirs = os.openpty()
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.output = b""
        self._tell_size(columns, lines)
        self.settings_before = self.settings
        self._process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={**os.environ, "TERM": "xterm-256color", **environment},
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
        )

    # --- what one sees

    @property
    def lines(self) -> list[str]:
        """What stands on the screen, without spaces at the ends of lines."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def has_cursor(self) -> bool:
        return not self._screen.cursor.hidden

    @property
    def settings(self) -> list[Any]:
        """Those of the terminal itself: echo, lines or single keys, and so on."""
        return termios.tcgetattr(self._theirs)

    def line_with(self, text: str) -> str:
        """The first line that has it; empty where there is none."""
        return next((line for line in self.lines if text in line), "")

    def cell_below(self, head_text: str, title: str, line_text: str) -> tuple[str, str]:
        """A character and its colour: in the first line that has `line_text`, where a title in the head ends."""
        column = self.line_with(head_text).index(title) + len(title) - 1
        row = next(number for number, line in enumerate(self.lines) if line_text in line)
        cell = self._screen.buffer[row][column]
        return cell.data, cell.fg

    def colour_at(self, line: int, column: int) -> str:
        """The name of the colour of a character."""
        return str(self._screen.buffer[line][column].fg)

    def is_reverse(self, line: int) -> bool:
        """True if the line begins in reverse video."""
        return bool(self._screen.buffer[line][0].reverse)

    def wait_for(self, condition: Callable[[], object], what: str, deadline_s: float = 40.0) -> None:
        """Shows what the program writes, until the condition is true."""
        deadline = time.monotonic() + deadline_s
        while not condition():
            screen = "\n".join(self.lines)
            assert time.monotonic() < deadline, f"waited {deadline_s} s for {what}; on the screen:\n{screen}"
            assert self._process.poll() is None or self._take(), f"it ended before {what}:\n{screen}"
            self._take()

    def wait_for_text(self, text: str) -> None:
        self.wait_for(lambda: self.line_with(text), repr(text))

    def _take(self) -> bool:
        """Takes what was written, until there is a moment without more; false where nothing was.

        A screen comes in several pieces. Half of one would be the top of a new one on the bottom of the last.
        """
        size_before = len(self.output)
        while (
            select.select([self._ours], [], [], _TURN_S)[0] and len(self.output) - size_before < _MOST_BYTES
        ):
            data = os.read(self._ours, 65536)
            self.output += data
            self._stream.feed(data)
        return len(self.output) > size_before

    # --- what one does

    @property
    def pid(self) -> int:
        return self._process.pid

    def type(self, keys: str, expected: str = "") -> None:
        """Type them, and wait until the expected text is there, if there is one."""
        os.write(self._ours, keys.encode())
        if expected:
            self.wait_for_text(expected)

    def resize(self, columns: int, lines: int) -> None:
        """As when somebody pulls at the window: the program is notified by a signal."""
        self._screen.resize(lines, columns)
        self._tell_size(columns, lines)

    def _tell_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def wait(self, deadline_s: float = 40.0) -> int:
        """The exit status, when the program has ended; what it wrote until then is on the screen."""
        deadline = time.monotonic() + deadline_s
        while self._process.poll() is None or self._take():
            assert time.monotonic() < deadline, "it does not end:\n" + "\n".join(self.lines)
            self._take()
        return self._process.returncode

    def destroy(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        os.close(self._ours)
        os.close(self._theirs)


@contextlib.contextmanager
def on_terminal(
    command: Sequence[str], columns: int = 80, lines: int = 24, **environment: str
) -> Iterator[Terminal]:
    """The program on a terminal of this size; it is ended if it has not ended by itself."""
    terminal = Terminal(command, columns, lines, **environment)
    try:
        yield terminal
    finally:
        terminal.destroy()
