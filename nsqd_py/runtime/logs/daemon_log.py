"""Log lines on stderr, in the form that Go's NSQ daemons have, or as JSON:

[nsqd] 2026/11/21 03:38:12.123456 INFO: TCP: listening on 127.0.0.1:4150
{"time":"2026-11-21T03:38:12.123456+00:00","level":"info","prefix":"[nsqd]","message":"TCP: listening on ..."}

`Log` makes the lines, and `LineSink` writes them.
"""

from __future__ import annotations

import atexit
import os
import select
import stat
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Condition, Thread
from time import monotonic

from nsqd_py.runtime.iteration_end import IterationEnd
from nsqd_py.runtime.logs.hidden import without_logins

DEBUG = 1
INFO = 2
WARNING = 3
ERROR = 4
FATAL = 5

# The words of --log-level and PUT /config/log_level.
LEVELS = {"debug": DEBUG, "info": INFO, "warn": WARNING, "error": ERROR, "fatal": FATAL}

# The words of --log-format.
TEXT = "text"
JSON = "json"

STDERR = 2
# Longer messages are cut: they can contain text of clients.
MAX_MESSAGE_CHARACTERS = 4096

# Lines that clients can cause, by text.
CLIENT_BURST = 20
CLIENT_LINES_PER_S = 1.0
MAX_CLIENT_CHARACTERS = 500
_LINE_BREAKS = str.maketrans({"\n": "\\n", "\r": "\\r"})

_SHOWN = {DEBUG: "DEBUG", INFO: "INFO", WARNING: "WARNING", ERROR: "ERROR", FATAL: "FATAL"}

# A pipe that poll() reports as writable takes this many bytes without blocking (PIPE_BUF on Linux); sockets take more.
_PIECE_BYTES = 4096
BUFFER_BYTES = 256 * 1024
_SLOW_S = 0.05
EXIT_S = 1.0


def one_line(text: str) -> str:
    """Return a foreign text with escapes for characters that do not print, such as line breaks."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _traceback(error: BaseException | None = None) -> str:
    """Return the traceback of `error`, or of the exception that is being handled."""
    import traceback  # slow to import

    if error:
        trace = "".join(traceback.format_exception(error))
    else:
        trace = traceback.format_exc()
    return trace.rstrip()


class TextForm:
    """Lines as Go's NSQ writes them. A traceback follows in further lines."""

    __slots__ = ("prefix", "_second", "_stamp")

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._second = -1
        self._stamp = ""

    def line(self, now_s: float, level: int, message: str, trace: str) -> bytes:
        """`now_s` is in seconds since the epoch; `trace` may be empty."""
        second = int(now_s)
        if second != self._second:
            self._second = second
            self._stamp = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(second))
        microseconds = int((now_s - second) * 1e6)
        after = "\n"
        if trace:
            after = "".join(f"\n{one_line(text)}" for text in trace.split("\n")) + "\n"
        # A newline in a client's text would forge a log line. The check costs 0.1 us.
        line = f"{self.prefix}{self._stamp}.{microseconds:06d} {_SHOWN[level]}: {one_line(message)}{after}"
        return line.encode("utf-8", "backslashreplace")


class JsonForm:
    """One JSON object a line, with `time` (RFC 3339), `level`, `prefix`, `message` and `traceback`."""

    __slots__ = ("prefix", "_dumps", "_time_of")

    def __init__(self, prefix: str) -> None:
        import json  # with datetime 4 ms of a start; only this form needs them
        from datetime import datetime

        self.prefix = prefix
        self._time_of = datetime.fromtimestamp
        self._dumps = json.dumps

    def line(self, now_s: float, level: int, message: str, trace: str) -> bytes:
        """As `TextForm.line`."""
        fields = {
            "time": self._time_of(now_s).astimezone().isoformat(timespec="microseconds"),
            "level": next(word for word, number in LEVELS.items() if number == level),
            "prefix": self.prefix.strip(),
            "message": message.encode("utf-8", "backslashreplace").decode(),
            "traceback": trace.encode("utf-8", "backslashreplace").decode(),
        }
        written = {key: value for key, value in fields.items() if value or key == "message"}
        # All but ASCII is escaped: control characters, and those that change the direction of text.
        return self._dumps(written, separators=(",", ":")).replace("\x7f", "\\u007f").encode() + b"\n"


FORMS: dict[str, Callable[[str], TextForm | JsonForm]] = {TEXT: TextForm, JSON: JsonForm}


class Lines:
    """The methods that write a line of each level. The text of a line is `text % args`; below the level it is not formatted.

    level  the lowest level that is written
    """

    __slots__ = ("level",)

    def __init__(self, level: int) -> None:
        self.level = level

    def debug(self, text: str, *args: object) -> None:
        if self.level <= DEBUG:
            self._write(DEBUG, text, args)

    def info(self, text: str, *args: object) -> None:
        if self.level <= INFO:
            self._write(INFO, text, args)

    def warning(self, text: str, *args: object) -> None:
        if self.level <= WARNING:
            self._write(WARNING, text, args)

    def error(self, text: str, *args: object) -> None:
        if self.level <= ERROR:
            self._write(ERROR, text, args)

    def exception(self, text: str, *args: object, error: BaseException | None = None) -> None:
        """Write an error line with the traceback of `error`, or of the exception that is being handled."""
        if self.level <= ERROR:
            self._write(ERROR, text, args, partial(_traceback, error))

    def fatal(self, text: str, *args: object) -> None:
        """Write the reason why the program ends. The caller ends it."""
        self._write(FATAL, text, args)

    def _write(self, level: int, text: str, args: tuple[object, ...], trace: Callable[[], str] = str) -> None:
        raise NotImplementedError


class ClientLines(Lines):
    """Log lines that clients can cause: a burst of each text, then one line of it a second.

    The next line of a text says how many were left out before it. There are few texts: all of them are in the program.
    """

    __slots__ = ("_clock", "_kinds", "_log")

    def __init__(self, log: Lines, clock: Callable[[], float] = monotonic) -> None:
        """`log` writes what is not left out; `clock` returns seconds."""
        super().__init__(DEBUG)
        self._log = log
        self._clock = clock
        # By level and text: the number of lines that may be written, since when, and the number of those left out.
        self._kinds: dict[tuple[int, str], tuple[float, float, int]] = {}

    def _write(self, level: int, text: str, args: tuple[object, ...], trace: Callable[[], str] = str) -> None:
        """Write `text % args`, or count it."""
        if level < self._log.level:
            return
        now_s = self._clock()
        allowance, updated_s, left_out = self._kinds.get((level, text), (CLIENT_BURST, now_s, 0))
        allowance = min(CLIENT_BURST, allowance + (now_s - updated_s) * CLIENT_LINES_PER_S)
        if allowance < 1:
            self._kinds[level, text] = allowance, now_s, left_out + 1
            return
        self._kinds[level, text] = allowance - 1, now_s, 0
        message = (text % args).translate(_LINE_BREAKS)
        if len(message) > MAX_CLIENT_CHARACTERS:
            message = message[:MAX_CLIENT_CHARACTERS] + "..."
        if left_out:
            message += f" ({left_out} more like this were left out)"
        self._log._write(level, message, (), trace)


class Log(Lines):
    """Writes each line of `level` and above to `descriptor`, with one call. It never waits for the reader.

    `level` can change at any time.

    of_clients: the log for lines that clients can cause.
    hide: returns a line without the secrets in it; by default, it hides the logins of URLs.
    """

    __slots__ = ("hide", "of_clients", "_clock", "_form", "_gathered", "_gatherer", "_sink")

    def __init__(
        self,
        prefix: str = "[nsqd] ",
        level: int = INFO,
        *,
        form: str = TEXT,
        descriptor: int = STDERR,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`form` is a word of --log-format; `clock` returns seconds since the epoch."""
        super().__init__(level)
        self.hide: Callable[[str], str] = without_logins
        self._form = FORMS[form](prefix)
        self._sink = LineSink(descriptor)
        self._clock = clock
        self._gatherer: IterationEnd | None = None
        self._gathered: list[bytes] = []
        self.of_clients = ClientLines(self)

    def gather(self, gatherer: IterationEnd) -> None:
        """From now on, write the lines of one event-loop iteration together. An error is written at once.

        A line then costs 2 us instead of 6. Only for a log that is used by one thread.
        """
        self._gatherer = gatherer

    def _write(self, level: int, text: str, args: tuple[object, ...], trace: Callable[[], str] = str) -> None:
        message = self.hide(text % args if args else text)
        if len(message) > MAX_MESSAGE_CHARACTERS:
            message = f"{message[:MAX_MESSAGE_CHARACTERS]}… ({len(message)} characters)"
        line = self._form.line(self._clock(), level, message, self.hide(trace()))
        if self._gatherer is None:
            self._put(line)
            return
        self._gathered.append(line)
        if level >= ERROR:
            self.flush()
        elif len(self._gathered) == 1:
            self._gatherer.add_flusher(self)

    def flush(self) -> None:
        """Write the gathered lines."""
        lines = b"".join(self._gathered)
        self._gathered.clear()
        self._put(lines)

    def _put(self, lines: bytes) -> None:
        sink = self._sink
        sink.write(lines)
        if sink.lost_count and not sink.is_clogged and (lost := sink.take_lost()):
            text = f"{lost} log lines were lost: no one read them in time"
            sink.write(self._form.line(self._clock(), WARNING, text, ""))


# ---- writing to a descriptor: a full pipe, a closed pipe or a slow disk never stops the queue


class LineSink:
    """Writes whole lines. A thread writes what a pipe does not take at once, and what follows a slow write to a file.

    Up to BUFFER_BYTES wait for the thread; lines beyond that are lost, and counted in `lost_count`. When the program ends,
    waiting lines have EXIT_S to be written. The descriptor stays in blocking mode, because other processes share it.

    Any thread may write lines, as those of nsq-to-file do: one lock guards everything here. A poll object refuses a second
    thread, and the rest of a line must not come behind the line of another thread.
    """

    __slots__ = ("_changed", "_descriptor", "_is_slow", "_poll", "_waiting", "_waiting_bytes", "lost_count")

    def __init__(self, descriptor: int) -> None:
        self.lost_count = 0
        self._descriptor = descriptor
        self._poll = _poll_of(descriptor)
        self._is_slow = False
        self._changed = Condition()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0

    @property
    def is_clogged(self) -> bool:
        """True if lines wait that are not written yet."""
        return self._waiting_bytes > 0

    def write(self, lines: bytes) -> None:
        """Write lines, or keep them. Raises nothing: if the disk is full or the pipe closed, the lines are lost."""
        with self._changed:
            if not self._waiting_bytes and not self._is_slow:
                lines = self._write_now(lines)
            if lines:
                self._keep(lines)

    def take_lost(self) -> int:
        """Return how many lines were lost since the last call."""
        with self._changed:
            lost, self.lost_count = self.lost_count, 0
            return lost

    def _keep(self, lines: bytes) -> None:
        """Let a thread write these lines. Call it under the lock."""
        if self._waiting_bytes and self._waiting_bytes + len(lines) > BUFFER_BYTES:
            self.lost_count += lines.count(b"\n")
            return
        self._waiting.append(lines)
        self._waiting_bytes += len(lines)
        if self._waiting_bytes == len(lines):
            atexit.register(self.flush, EXIT_S)
            Thread(target=self._write_waiting, name="log", daemon=True).start()

    def flush(self, timeout_s: float) -> None:
        """Wait until all lines are written, at most for this time."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting_bytes, timeout_s)

    def _write_now(self, lines: bytes) -> bytes:
        """Write as much as possible without waiting, and return the rest. poll() takes 0.5 us for each 4 kB."""
        poll = self._poll
        if poll is None:
            self._write_all(lines)
            return b""
        start = 0
        try:
            while start < len(lines) and poll.poll(0):
                start += os.write(self._descriptor, lines[start : start + _PIECE_BYTES])
        except BlockingIOError:  # another process has changed the mode
            pass
        except OSError:
            return b""
        return lines[start:]

    def _write_all(self, lines: bytes) -> None:
        began_s = monotonic()
        with suppress(OSError):  # on a full disk the lines are lost
            while lines:
                lines = lines[os.write(self._descriptor, lines) :]
        self._is_slow = self._poll is None and monotonic() - began_s >= _SLOW_S

    def _write_waiting(self) -> None:
        while True:
            lines = self._waiting.popleft()
            self._write_all(lines)
            with self._changed:
                self._waiting_bytes -= len(lines)
                if not self._waiting_bytes:  # the next line that has to wait starts another thread
                    atexit.unregister(self.flush)
                    self._changed.notify_all()
                    return


def _poll_of(descriptor: int) -> select.poll | None:
    """Return a poll object that reports whether the descriptor is writable; None for a file, which always is."""
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
    except OSError:  # closed
        return None
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return poll
