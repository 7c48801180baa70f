"""Log lines."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from unittest.mock import Mock

import pytest

from nsqd_py.runtime.logs import daemon_log as logs
from nsqd_py.runtime.logs.daemon_log import (
    BUFFER_BYTES,
    CLIENT_BURST,
    DEBUG,
    ERROR,
    FATAL,
    INFO,
    JSON,
    MAX_CLIENT_CHARACTERS,
    TEXT,
    WARNING,
    ClientLines,
    Lines,
    LineSink,
    Log,
)
from tests.support.hostile_schedule import run_hostile
from tests.support.nsqd_process import wait_until

NOON_S = datetime(2026, 11, 21, 12, 0, 0, 1234).timestamp()


class Pipe:
    """A log's descriptor, and what arrived there."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)

    def log(self, level: int = INFO, prefix: str = "[nsqd] ", form: str = TEXT) -> Log:
        return Log(prefix, level, form=form, descriptor=self.writer, clock=lambda: NOON_S)

    def text(self) -> str:
        try:
            return os.read(self.reader, 65536).decode()
        except BlockingIOError:
            return ""


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    os.close(pipe.reader)
    # Else it writes to the next pipe.
    wait_until(lambda: all(thread.name != "log" for thread in threading.enumerate()))
    os.close(pipe.writer)


def test_what_clients_say_begins_no_line(pipe: Pipe) -> None:
    pipe.log().info("IDENTIFY: %s", "a\r\n[nsqd] 2026/11/21 12:00:00.001234 FATAL: \x1b[2J\u2028")
    [line] = pipe.text().splitlines()
    assert line.endswith(r"INFO: IDENTIFY: a\r\n[nsqd] 2026/11/21 12:00:00.001234 FATAL: \x1b[2J\u2028")


@pytest.mark.parametrize("form", [TEXT, JSON])
def test_of_a_long_message_the_beginning_is_written(pipe: Pipe, form: str) -> None:
    pipe.log(form=form).info("%s", "\U0001f600" + "x" * 5_000_000)
    text = pipe.text()
    assert len(text) < 5000
    assert "xxx… (5000001 characters)" in text.replace("\\u2026", "…")


@pytest.mark.parametrize(
    ("level", "written"),
    [
        (DEBUG, ["DEBUG", "INFO", "WARNING", "ERROR", "FATAL"]),
        (INFO, ["INFO", "WARNING", "ERROR", "FATAL"]),
        (WARNING, ["WARNING", "ERROR", "FATAL"]),
        (ERROR, ["ERROR", "FATAL"]),
        (FATAL, ["FATAL"]),
    ],
)
def test_a_level_silences_those_below(pipe: Pipe, level: int, written: list[str]) -> None:
    log = pipe.log(level)
    for write in (log.debug, log.info, log.warning, log.error, log.fatal):
        write("text")
    assert re.findall(r"([A-Z]+): text\n", pipe.text()) == written


@pytest.mark.parametrize("form", [TEXT, JSON])
def test_an_exception_comes_with_its_traceback(pipe: Pipe, form: str) -> None:
    """In JSON it is a field."""
    try:
        raise ZeroDivisionError("by 100%")
    except ZeroDivisionError as error:
        pipe.log(form=form).exception("client %s - %r", "a", error)
    if form == JSON:
        line = json.loads(pipe.text())
        first, *lines = [f"{line['level'].upper()}: {line['message']}", *line["traceback"].splitlines()]
    else:
        first, *lines = pipe.text().splitlines()
    assert first.endswith("ERROR: client a - ZeroDivisionError('by 100%')")
    assert (lines[0], lines[-1]) == ("Traceback (most recent call last):", "ZeroDivisionError: by 100%")


def test_what_no_encoding_has_is_escaped(pipe: Pipe) -> None:
    pipe.log().info("topic %s", b"\xff\xe9".decode(errors="surrogateescape"))
    assert pipe.text().endswith("topic \\udcff\\udce9\n")


@pytest.mark.parametrize("write", ["error", "fatal", "exception"])
def test_an_error_does_not_wait_for_the_end_of_the_turn(pipe: Pipe, write: str) -> None:
    log, iteration = pipe.log(), Mock()
    log.gather(iteration)
    log.info("before")
    getattr(log, write)("it failed")
    assert re.findall(r"before|it failed", pipe.text()) == ["before", "it failed"]
    iteration.add_flusher.assert_called_with(log)
    log.flush()
    assert pipe.text() == ""


def test_a_closed_reader_raises_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    log = Log(descriptor=writer)
    log.info("into a broken pipe")
    os.close(writer)
    log.info("into nothing")


def test_a_full_pipe_raises_nothing(pipe: Pipe) -> None:
    os.set_blocking(pipe.writer, False)
    for _ in range(100):
        pipe.log().info("x" * 4000)
    assert "INFO: xxx" in pipe.text()


# --- a reader that does not read


def read_until_losses_are_reported(pipe: Pipe, log: Log) -> str:
    """Waiting lines are written, and then the number of lost ones is reported with the next line."""
    text = ""

    def is_reported() -> bool:
        nonlocal text
        log.info("later")
        text += pipe.text()
        return "were lost" in text

    wait_until(is_reported)
    return text


def test_lines_that_were_lost_are_counted_and_none_is_torn(pipe: Pipe) -> None:
    log = pipe.log()
    for number in range(1000):
        log.info("line %d %s", number, "x" * 1000)
    assert os.get_blocking(pipe.writer), "other processes share it"
    text = read_until_losses_are_reported(pipe, log)
    kept = [int(number) for number in re.findall(r"INFO: line (\d+) x{1000}\n", text)]
    lost = [int(count) for count in re.findall(r"WARNING: (\d+) log lines were lost", text)]
    assert kept == sorted(kept)
    assert text.count("line ") == len(kept)
    assert len(kept) + sum(lost) == 1000
    assert len(kept) * 1000 > BUFFER_BYTES


def test_a_line_longer_than_all_that_is_kept_arrives_whole(pipe: Pipe) -> None:
    log = pipe.log()
    log.exception("broken", error=ValueError("x" * 2 * BUFFER_BYTES))
    log.info("next")
    text = read_until_losses_are_reported(pipe, log)
    assert f"ValueError: {'x' * 2 * BUFFER_BYTES}\n" in text
    assert "INFO: next" not in text


# --- JSON


def test_whatever_is_in_it_a_json_line_is_one_line(pipe: Pipe) -> None:
    log = pipe.log(form=JSON)
    log.info('a\nb "%s" \u2028 \x00', b"\xff\xe9".decode(errors="surrogateescape"))
    text = pipe.text()
    assert text.count("\n") == 1
    assert json.loads(text)["message"] == 'a\nb "\\udcff\\udce9" \u2028 \x00'


def test_the_text_of_an_exception_does_not_control_the_terminal(pipe: Pipe) -> None:
    try:
        raise ValueError("\x1b]0;title\x07\x9b\u202e")
    except ValueError as error:
        pipe.log().exception("client - %s", error)
    text = pipe.text()
    assert text.replace("\n", "").isprintable()
    assert "ValueError: \\x1b]0;title" in text


# --- log lines that clients can cause: a burst of each text, then one a second, and a count of the others


class Written(Lines):
    """Lines, and a clock that the test sets."""

    def __init__(self) -> None:
        super().__init__(INFO)
        self.now_s = 100.0
        self.texts: list[str] = []
        self.lines = ClientLines(self, lambda: self.now_s)

    def _write(self, level: int, text: str, args: tuple[object, ...], trace: Callable[[], str] = str) -> None:
        self.texts.append(text + trace())

    def flood(self) -> None:
        for _ in range(CLIENT_BURST * 2):
            self.lines.info("one")


@pytest.fixture
def written() -> Written:
    return Written()


def test_a_burst_is_written_as_it_comes(written: Written) -> None:
    for number in range(CLIENT_BURST):
        written.lines.info("client(%d) is here", number)
    assert written.texts == [f"client({number}) is here" for number in range(CLIENT_BURST)]


def test_after_a_burst_one_line_a_second_says_how_many_were_left_out(written: Written) -> None:
    for second in range(5):
        written.now_s = 100.0 + second
        for number in range(1_000):
            written.lines.error("client(%d) is wrong", number)
    assert (
        written.texts[CLIENT_BURST:]
        == [f"client(0) is wrong ({1_000 - CLIENT_BURST} more like this were left out)"]
        + ["client(0) is wrong (999 more like this were left out)"] * 3
    )
    written.now_s += CLIENT_BURST
    for _ in range(2 * CLIENT_BURST):
        written.lines.error("client(%d) is wrong", 0)
    assert len(written.texts) == 2 * CLIENT_BURST + 4, "a burst again"


def test_a_line_that_is_left_out_has_no_traceback(written: Written) -> None:
    for _ in range(2 * CLIENT_BURST):
        try:
            raise ValueError("bug")
        except ValueError as error:
            written.lines.exception("panic - %r", error)
    assert [text.count("Traceback") for text in written.texts] == [1] * CLIENT_BURST


def test_a_flood_of_one_kind_hides_no_other(written: Written) -> None:
    written.flood()
    written.lines.info("another")
    assert written.texts[-1] == "another"


def test_what_is_below_the_level_is_neither_written_nor_counted(written: Written) -> None:
    written.level = ERROR
    written.flood()
    written.level = INFO
    written.lines.info("one")
    assert written.texts == ["one"]


def test_a_line_is_one_line_of_bounded_length(written: Written) -> None:
    written.lines.info("client %s", "a\nb\r" + "x" * 100_000)
    (text,) = written.texts
    assert text.startswith(r"client a\nb\rxxx")
    assert len(text) <= MAX_CLIENT_CHARACTERS + 3


# --- a log file on a disk that is slow: whoever logs does not wait for it


class SlowFile:
    """A file; a write by a thread waits for `gate`."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.gate = threading.Event()
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT)
        self.sink = LineSink(self.fd)
        self._real = os.write
        monkeypatch.setattr(os, "write", self._write)

    def _write(self, fd: int, data: bytes) -> int:
        if fd == self.fd and threading.current_thread() is not threading.main_thread():
            assert self.gate.wait(40)
        return self._real(fd, data)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlowFile:
    return SlowFile(tmp_path / "log", monkeypatch)


def test_after_a_slow_write_a_thread_writes(file: SlowFile, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        times = iter((0.0, 1.0))
        patch.setattr(logs, "monotonic", lambda: next(times))
        file.sink.write(b"slow\n")
    lines = [b"%d\n" % number for number in range(100)]
    for line in lines:
        file.sink.write(line)
    assert file.sink.is_clogged
    assert file.path.read_bytes() == b"slow\n"
    file.gate.set()
    wait_until(lambda: not file.sink.is_clogged)
    assert file.path.read_bytes() == b"".join([b"slow\n", *lines])
    assert file.sink.lost_count == 0


# --- threads that write to one log, as those of nsq-to-file

LINES_OF_THREADS = """
import os, threading
from nsqd_py.runtime.logs.daemon_log import Log

reader, writer = os.pipe()
log = Log(descriptor=writer)
came, failed = [], []

def read():
    while data := os.read(reader, 65536):
        came.append(data)

def write(name):
    try:
        for number in range(1000):
            log.info("line %d of %s", number, name)
    except BaseException as error:
        failed.append(error)

reading = threading.Thread(target=read)
reading.start()
threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
log._sink.flush(40)
os.close(writer)
reading.join()
texts = [line.partition(b"INFO: ")[2].decode() for line in b"".join(came).splitlines()]
for name in "abcd":
    assert [text for text in texts if text.endswith(name)] == [f"line {number} of {name}" for number in range(1000)], failed
assert not failed
print(len(texts))
"""


def test_threads_share_a_log() -> None:
    """A poll object is for one thread at a time; the second one got a RuntimeError, which ended nsq-to-file."""
    assert run_hostile(LINES_OF_THREADS) == "4000\n"
