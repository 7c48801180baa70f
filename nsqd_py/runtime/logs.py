"""Log lines on stderr, in the form that Go's NSQ daemons have, or as JSON:

[nsqd] 2026/11/21 03:38:12.123456 INFO: TCP: listening on 127.0.0.1:4150
{"time":"2026-11-21T03:38:12.123456+00:00","level":"info","prefix":"[nsqd]","message":"TCP: listening on ..."}
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from nsqd_py.runtime.client_log import ClientLines
from nsqd_py.runtime.log_levels import DEBUG as DEBUG
from nsqd_py.runtime.log_levels import ERROR as ERROR
from nsqd_py.runtime.log_levels import FATAL as FATAL
from nsqd_py.runtime.log_levels import INFO as INFO
from nsqd_py.runtime.log_levels import WARNING as WARNING
from nsqd_py.runtime.log_sink import LineSink
from nsqd_py.runtime.one_line import one_line

# The words of --log-level and of PUT /config/log_level.
LEVELS = {"debug": DEBUG, "info": INFO, "warn": WARNING, "error": ERROR, "fatal": FATAL}

# The words of --log-format.
TEXT = "text"
JSON = "json"

STDERR = 2
# Of a longer message, the beginning is written: clients choose some of the words.
MAX_MESSAGE_CHARACTERS = 4096

_SHOWN = {DEBUG: "DEBUG", INFO: "INFO", WARNING: "WARNING", ERROR: "ERROR", FATAL: "FATAL"}


def parse_level(word: str) -> int:
    """The level that `word` names, in upper or lower case; raises ValueError."""
    try:
        return LEVELS[word.lower()]
    except KeyError:
        raise ValueError(f"not a log level ({', '.join(LEVELS)})") from None


def level_word(level: int) -> str:
    return next(word for word, number in LEVELS.items() if number == level)


class Gatherer(Protocol):
    """Calls `flush` of what was added, soon; `nsqd_py.net.loop_iteration.Turn` is one."""

    def add_flusher(self, flusher: Log) -> None: ...


class TextForm:
    """Lines as Go's NSQ writes them; a traceback follows in further lines."""

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
            self._stamp = datetime.fromtimestamp(second).strftime("%Y/%m/%d %H:%M:%S")
        microseconds = int((now_s - second) * 1e6)
        after = f"\n{trace}\n" if trace else "\n"
        # Clients choose some of the words: with a newline they could write lines of their own. The check costs 0.1 us.
        line = f"{self.prefix}{self._stamp}.{microseconds:06d} {_SHOWN[level]}: {one_line(message)}{after}"
        return line.encode("utf-8", "backslashreplace")


class JsonForm:
    """A line is one JSON object, whatever is in it: `time` (RFC 3339), `level`, `prefix`, `message`, `traceback`."""

    __slots__ = ("prefix", "_dumps", "_levels", "_second", "_stamp", "_zone")

    def __init__(self, prefix: str) -> None:
        import orjson  # only for those who want JSON: --version and --help need none

        self.prefix = prefix
        self._dumps = orjson.dumps
        self._levels = {number: word for word, number in LEVELS.items()}
        self._second = -1
        self._stamp = self._zone = ""

    def line(self, now_s: float, level: int, message: str, trace: str) -> bytes:
        """As that of `TextForm`."""
        second = int(now_s)
        if second != self._second:
            self._second = second
            stamp = datetime.fromtimestamp(second).astimezone().isoformat()
            self._stamp, self._zone = stamp[:19], stamp[19:]
        microseconds = int((now_s - second) * 1e6)
        fields = {"time": f"{self._stamp}.{microseconds:06d}{self._zone}", "level": self._levels[level]}
        prefix = self.prefix.strip()
        if prefix:
            fields["prefix"] = prefix
        fields["message"] = message
        if trace:
            fields["traceback"] = trace
        try:
            return self._dumps(fields) + b"\n"
        except TypeError:  # a surrogate stands for a byte that is no UTF-8
            return self._dumps({key: _escaped(value) for key, value in fields.items()}) + b"\n"


def _escaped(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


FORMS: dict[str, Callable[[str], TextForm | JsonForm]] = {TEXT: TextForm, JSON: JsonForm}


class Log:
    """Writes each line of `level` and above with one write to `descriptor`, and never waits for its reader.

    The text of a line is `text % args`; below the level nothing is formatted. `level` may change at any time.

    of_clients  for lines that a client can cause as often as it likes; has `info`, `warning` and `error`
    """

    __slots__ = ("level", "of_clients", "_clock", "_form", "_gathered", "_gatherer", "_sink")

    def __init__(
        self,
        prefix: str = "[nsqd] ",
        level: int = INFO,
        *,
        form: str = TEXT,
        descriptor: int = STDERR,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`form` is a word of --log-format; `clock` gives seconds since the epoch."""
        self.level = level
        self._form = FORMS[form](prefix)
        self._sink = LineSink(descriptor)
        self._clock = clock
        self._gatherer: Gatherer | None = None
        self._gathered: list[bytes] = []
        self.of_clients = ClientLines(lambda: self.level, lambda level, text: self._write(level, text, ()))

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
        """An error line with the traceback of `error`, or of the exception that is being handled."""
        if self.level <= ERROR:
            trace = traceback.format_exception(error) if error is not None else [traceback.format_exc()]
            self._write(ERROR, text, args, "".join(trace).rstrip())

    def fatal(self, text: str, *args: object) -> None:
        """Says why the program is about to end; ending it is the caller's part."""
        self._write(FATAL, text, args)

    def _write(self, level: int, text: str, args: tuple[object, ...], trace: str = "") -> None:
        message = text % args if args else text
        if len(message) > MAX_MESSAGE_CHARACTERS:
            message = f"{message[:MAX_MESSAGE_CHARACTERS]}… ({len(message)} characters)"
        line = self._form.line(self._clock(), level, message, trace)
        if self._gatherer is None:
            self._put(line)
            return
        self._gathered.append(line)
        if level >= ERROR:
            self.flush()
        elif len(self._gathered) == 1:
            self._gatherer.add_flusher(self)

    def flush(self) -> None:
        """Write what was gathered."""
        lines = b"".join(self._gathered)
        self._gathered.clear()
        self._put(lines)

    def _put(self, lines: bytes) -> None:
        sink = self._sink
        sink.write(lines)
        if sink.lost_count and not sink.is_clogged:
            lost, sink.lost_count = sink.lost_count, 0
            text = f"{lost} log lines were lost: nobody read them in time"
            sink.write(self._form.line(self._clock(), WARNING, text, ""))
