"""Log lines on stderr, in the form that Go's NSQ daemons have:

[nsqd] 2026/11/21 03:38:12.123456 INFO: TCP: listening on 127.0.0.1:4150
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Protocol

DEBUG = 1
INFO = 2
WARNING = 3
ERROR = 4
FATAL = 5

# The words of --log-level and of PUT /config/log_level.
LEVELS = {"debug": DEBUG, "info": INFO, "warn": WARNING, "error": ERROR, "fatal": FATAL}

STDERR = 2

_WRITTEN_AT_ONCE = ("ERROR", "FATAL")


def parse_level(word: str) -> int:
    """The level that `word` names, in upper or lower case; raises ValueError."""
    try:
        return LEVELS[word.lower()]
    except KeyError:
        raise ValueError(f"not a log level ({', '.join(LEVELS)})") from None


def level_word(level: int) -> str:
    return next(word for word, number in LEVELS.items() if number == level)


class Gatherer(Protocol):
    """Calls `flush` of what was added, soon; `nsqd_py.turn.Turn` is one."""

    def add_flusher(self, flusher: Log) -> None: ...


class Log:
    """Writes each line of `level` and above with one write to `descriptor`.

    The text of a line is `text % args`; below the level nothing is formatted. `level` may change at any time.
    """

    __slots__ = ("level", "prefix", "_clock", "_descriptor", "_gathered", "_gatherer", "_second", "_second_text")

    def __init__(
        self,
        prefix: str = "[nsqd] ",
        level: int = INFO,
        *,
        descriptor: int = STDERR,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` gives seconds since the epoch."""
        self.prefix = prefix
        self.level = level
        self._descriptor = descriptor
        self._clock = clock
        self._second = -1
        self._second_text = ""
        self._gatherer: Gatherer | None = None
        self._gathered: list[str] = []

    def gather(self, gatherer: Gatherer) -> None:
        """From now on, write the lines of one turn of the event loop together; errors at once, with all before them.

        A line then costs 2 us, not 6. Only for a log that no other thread writes to.
        """
        self._gatherer = gatherer

    @property
    def is_debug(self) -> bool:
        """Whether a debug line would be written; ask before computing what it says."""
        return self.level <= DEBUG

    def debug(self, text: str, *args: object) -> None:
        if self.level <= DEBUG:
            self._write("DEBUG", text, args)

    def info(self, text: str, *args: object) -> None:
        if self.level <= INFO:
            self._write("INFO", text, args)

    def warning(self, text: str, *args: object) -> None:
        if self.level <= WARNING:
            self._write("WARNING", text, args)

    def error(self, text: str, *args: object) -> None:
        if self.level <= ERROR:
            self._write("ERROR", text, args)

    def exception(self, text: str, *args: object) -> None:
        """An error with the traceback of the exception that is being handled, in further lines."""
        if self.level <= ERROR:
            line = text % args if args else text
            self._write("ERROR", "%s\n%s", (line, traceback.format_exc().rstrip()))

    def fatal(self, text: str, *args: object) -> None:
        """Says why the program is about to end; ending it is the caller's part."""
        self._write("FATAL", text, args)

    def _write(self, level: str, text: str, args: tuple[object, ...]) -> None:
        now_s = self._clock()
        second = int(now_s)
        if second != self._second:
            self._second = second
            self._second_text = datetime.fromtimestamp(second).strftime("%Y/%m/%d %H:%M:%S")
        stamp = f"{self._second_text}.{int((now_s - second) * 1e6):06d}"
        line = f"{self.prefix}{stamp} {level}: {text % args if args else text}\n"
        if self._gatherer is None:
            self._put(line)
            return
        self._gathered.append(line)
        if level in _WRITTEN_AT_ONCE:
            self.flush()
        elif len(self._gathered) == 1:
            self._gatherer.add_flusher(self)

    def flush(self) -> None:
        """Write what was gathered."""
        text = "".join(self._gathered)
        self._gathered.clear()
        self._put(text)

    def _put(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        # A full disk or a closed pipe behind stderr must not stop the queue.
        with suppress(OSError):
            while data:
                data = data[os.write(self._descriptor, data) :]
