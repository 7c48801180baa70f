"""The Date header of responses, which is prepared for a second at a time."""

from __future__ import annotations

import time

import pytest

from nsqd_py.net.http import answers


def date_sent() -> str:
    reply = answers.encode(answers.OK, is_http_1_0=False, keep_alive=True).decode("latin-1")
    return next(line for line in reply.split("\r\n") if line.startswith("Date: ")).removeprefix("Date: ")


def test_a_clock_that_is_set_back_changes_the_date_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, monotonic_s = 1_000_000_000.0, time.monotonic() + 10
    monkeypatch.setattr(answers, "PREPARED", answers.PreparedAnswer())
    monkeypatch.setattr(time, "time", lambda: now_s)
    monkeypatch.setattr(time, "monotonic", lambda: monotonic_s)
    assert date_sent() == answers.http_date(1_000_000_000)
    now_s, monotonic_s = now_s - 3600, monotonic_s + 1
    assert date_sent() == answers.http_date(1_000_000_000 - 3600)


def test_the_date_is_prepared_until_the_end_of_its_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, monotonic_s = 1_000_000_000.25, time.monotonic() + 20
    monkeypatch.setattr(time, "time", lambda: now_s)
    monkeypatch.setattr(time, "monotonic", lambda: monotonic_s)
    prepared = answers.PreparedAnswer()
    assert prepared.valid_until_s == monotonic_s + 0.75
