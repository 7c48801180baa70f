"""A bug at the doors that nsqlookupd and nsqadmin have too: an HTTP handler, and the callbacks of the event loop."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from werkzeug.test import Client

from nsqadmin_py.web.app import App
from nsqd_py.errors import InternalError, bug_number
from nsqd_py.net.http.handling import perform
from nsqd_py.runtime.logs.bugs import report_bug
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.process import log_uncaught_errors


class Lines:
    """A log, and what it has written."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        self.log = Log(descriptor=write)

    def read(self) -> str:
        return os.read(self._read, 1 << 16).decode()


@pytest.fixture
def lines() -> Lines:
    return Lines()


def fail(*_: object) -> Any:
    return [][0]


def bug_of(code: Callable[[], object]) -> LookupError:
    with pytest.raises(LookupError) as raised:
        code()
    return raised.value


def number_in(text: str) -> str:
    found = re.search(r"internal error ([0-9a-f]{6}), see the server's log", text)
    assert found, text
    assert "index" not in text.lower()
    return found[1]


def check_line(lines: Lines, number: str) -> None:
    written = lines.read()
    assert f"ERROR: internal error {number}: IndexError('list index out of range')" in written
    assert "Traceback (most recent call last)" in written


def test_an_http_handler(lines: Lines) -> None:
    request = SimpleNamespace(
        app=SimpleNamespace(admin_guard=None), route=SimpleNamespace(handler=fail), url="/x"
    )
    reply = perform(request, "127.0.0.1:1", lines.log)
    assert reply.status == 500
    check_line(lines, number_in(reply.body.decode()))


def test_nsqadmin(lines: Lines) -> None:
    access = SimpleNamespace(check_site=fail, add_headers=lambda _: None)
    app = App({}, "", access, lines.log)
    response = Client(app).get("/")
    assert response.status_code == 500
    check_line(lines, number_in(response.text))


def test_the_event_loop(lines: Lines) -> None:
    hub = SimpleNamespace()
    log_uncaught_errors(hub, lines.log)
    bug = bug_of(fail)
    hub.print_exception("a callback", type(bug), bug, bug.__traceback__)
    check_line(lines, bug_number(bug))


def test_the_same_bug_has_one_number_and_another_one_another() -> None:
    first, same, other = (bug_number(bug_of(code)) for code in (fail, fail, lambda: {}[0]))
    assert first == same != other


def test_lines_of_one_bug_are_limited_and_hide_no_other_bug(lines: Lines) -> None:
    for code in (*[fail] * 100, lambda: {}[0]):
        assert isinstance(report_bug(lines.log, "a test", bug_of(code)), InternalError)
    written = lines.read()
    assert 0 < written.count("IndexError('list") < 50
    assert written.count("KeyError(0) - a test") == 1


def test_an_error_that_was_never_raised_has_a_number_too() -> None:
    assert len(bug_number(ValueError("x"))) == 6
