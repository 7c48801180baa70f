"""Log lines."""

import json
import os
import re
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from nsqd_py.runtime.logs import DEBUG, ERROR, FATAL, INFO, JSON, KEPT_BYTES, TEXT, WARNING, Log
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

    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text().splitlines()]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    os.close(pipe.reader)
    wait_until(lambda: all(thread.name != "log" for thread in threading.enumerate()))  # else it writes to the next pipe
    os.close(pipe.writer)


class LoopIteration:
    """The end of an iteration that a test decides on."""

    def __init__(self) -> None:
        self.flushers: list[Log] = []

    def add_flusher(self, flusher: Log) -> None:
        self.flushers.append(flusher)

    def end(self) -> None:
        for flusher in self.flushers:
            flusher.flush()
        self.flushers.clear()


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


def fail() -> None:
    raise ZeroDivisionError("by 100%")


@pytest.mark.parametrize("form", [TEXT, JSON])
def test_an_exception_comes_with_its_traceback(pipe: Pipe, form: str) -> None:
    """In JSON it is a field."""
    try:
        fail()
    except ZeroDivisionError as error:
        pipe.log(form=form).exception("client %s - %r", "a", error)
    if form == JSON:
        [line] = pipe.objects()
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
    log, iteration = pipe.log(), LoopIteration()
    log.gather(iteration)
    log.info("before")
    getattr(log, write)("it failed")
    assert re.findall(r"before|it failed", pipe.text()) == ["before", "it failed"]
    iteration.end()
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
    assert len(kept) * 1000 > KEPT_BYTES


def test_a_line_longer_than_all_that_is_kept_arrives_whole(pipe: Pipe) -> None:
    log = pipe.log()
    log.exception("broken", error=ValueError("x" * 2 * KEPT_BYTES))
    log.info("next")
    text = read_until_losses_are_reported(pipe, log)
    assert f"ValueError: {'x' * 2 * KEPT_BYTES}\n" in text
    assert "INFO: next" not in text


# --- JSON


def test_whatever_is_in_it_a_json_line_is_one_line(pipe: Pipe) -> None:
    log = pipe.log(form=JSON)
    log.info('a\nb "%s" \u2028 \x00', b"\xff\xe9".decode(errors="surrogateescape"))
    text = pipe.text()
    assert text.count("\n") == 1
    assert json.loads(text)["message"] == 'a\nb "\\udcff\\udce9" \u2028 \x00'


# --- levels


def test_the_text_of_an_exception_does_not_control_the_terminal(pipe: Pipe) -> None:
    try:
        raise ValueError("\x1b]0;title\x07\x9b\u202e")
    except ValueError as error:
        pipe.log().exception("client - %s", error)
    text = pipe.text()
    assert text.replace("\n", "").isprintable()
    assert "ValueError: \\x1b]0;title" in text
