"""Single keys from the terminal, while something else is on it."""

from __future__ import annotations

import codecs
import os
import sys
import termios
import tty
from collections.abc import Callable
from types import TracebackType
from typing import Any

import gevent
from gevent.socket import wait_read

from nsq_tools.stat.keys import KeyDecoder
from nsq_tools.terminal import is_terminal

# A terminal sends the sequence of a key at once; over a slow line its pieces are this far apart at most.
_SEQUENCE_TIMEOUT_S = 0.1


class Keyboard:
    """While it is open, calls `on_key` for each key; the terminal is as it was afterwards.

    Without a terminal on standard input, or in the background, there are no keys.
    """

    def __init__(self, on_key: Callable[[str], None]) -> None:
        self._on_key = on_key
        self._before: Any = None  # how the terminal was
        self._reader: gevent.Greenlet[[], None] | None = None

    def __enter__(self) -> Keyboard:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
        characters = codecs.getincrementaldecoder("utf-8")("ignore")
        decoder = KeyDecoder()
        while True:
            try:
                wait_read(descriptor, _SEQUENCE_TIMEOUT_S if decoder.is_waiting else None)
            except TimeoutError:
                self._press(decoder.end())
                continue
            try:
                data = os.read(descriptor, 64)
            except OSError:  # the terminal is gone
                return
            if not data:
                return
            self._press(decoder.feed(characters.decode(data)))

    def _press(self, keys: list[str]) -> None:
        for key in keys:
            self._on_key(key)


def _is_in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False
