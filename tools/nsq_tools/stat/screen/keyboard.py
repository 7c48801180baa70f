"""The keyboard of a terminal."""

from __future__ import annotations

import os
import sys
import termios
import tty
from collections.abc import Callable
from typing import Any

import gevent
from gevent.socket import wait_read

from nsq_tools.stat.screen.keys import KeyReader
from nsqd_py.runtime.command import is_terminal

# A sequence of bytes for one key comes within this time, also over a slow line.
_SEQUENCE_S = 0.1


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
        keys = KeyReader()
        while True:
            try:
                wait_read(descriptor, _SEQUENCE_S if keys.is_in_sequence else None)
                data = os.read(descriptor, 64)
            except TimeoutError:
                found = keys.flush()
            except OSError:  # the terminal is gone
                return
            else:
                if not data:
                    return
                found = keys.feed(data)
            for key in found:
                self._on_key(key)


def _is_in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False
