"""Names, ETAs, and the deliveries that a worker knows, without a server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from nsqd_py.celery import Deliveries, Source, eta_of, nsq_name
from nsqd_py.celery import deliveries as of_workers
from nsqd_py.protocol.names import is_valid_name


class FakeMessage:
    """A message whose answers are noted. `connection` says whether nsqd has certainly got a FIN."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.is_live = True
        self.is_open = True
        self.batch = self
        self.connection = self

    def finish(self) -> None:
        self.answers.append("FIN")

    def requeue(self, delay_s: float, *, backoff: bool) -> None:
        self.answers.append(f"REQ {delay_s}")


def source() -> Any:
    return Source("queue", consumer=None, no_ack=False)


@pytest.mark.parametrize(
    ("name", "is_ephemeral", "expected"),
    [
        ("celery", False, "celery"),
        ("celeryev", True, "celeryev#ephemeral"),
        ("celery@host.celery.pidbox", True, "celery-host.celery.pidbox-e79e5ec5#ephemeral"),
        ("a" * 64, False, "a" * 64),
        ("a" * 65, False, "a" * 55 + "-635361c4"),
    ],
)
def test_a_name_stays_if_nsq_takes_it(name, is_ephemeral, expected):
    found = nsq_name(name, is_ephemeral=is_ephemeral)
    assert is_valid_name(found.encode())
    assert found == expected


def test_names_that_differ_only_in_what_nsq_refuses_stay_different():
    names = ["a/b", "a:b", "a b", "a-b", "ä" * 70, "ö" * 70, "x#ephemeral"]
    mapped = {nsq_name(name) for name in names}
    assert len(mapped) == len(names)
    assert all(is_valid_name(name.encode()) and not name.endswith("#ephemeral") for name in mapped)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"eta": "2026-11-29T23:00:00+00:00"}, datetime(2026, 11, 29, 23, tzinfo=UTC)),
        ({"eta": "2026-11-29T23:00:00"}, datetime(2026, 11, 29, 23, tzinfo=UTC)),
        ({"eta": "2026-11-30T00:00:00+01:00"}, datetime(2026, 11, 29, 23, tzinfo=UTC)),
    ],
)
def test_an_eta_without_a_time_zone_is_utc(headers, expected):
    assert eta_of({"headers": headers}) == expected.timestamp()


@pytest.mark.parametrize("headers", [{}, None, {"eta": None}, {"eta": "soon"}])
def test_what_is_no_eta_is_none(headers):
    assert eta_of({"headers": headers}) is None


def test_a_delivery_of_a_message_that_is_here_belongs_to_the_first_one():
    deliveries = Deliveries()
    queue = source()
    first, second = FakeMessage(), FakeMessage()
    assert deliveries.is_new("tag", queue, first)
    first.is_live = False
    assert not deliveries.is_new("tag", queue, second)
    assert queue.held == 1
    deliveries.finish("tag")
    assert (first.answers, second.answers, queue.held) == ([], ["FIN"], 0)


def test_what_was_finished_is_finished_again_only_if_the_fin_may_be_lost(monkeypatch):
    now_s = 100.0
    monkeypatch.setattr(of_workers, "monotonic", lambda: now_s)
    deliveries = Deliveries()
    messages = {tag: FakeMessage() for tag in ("kept", "lost", "fresh")}
    for tag in ("kept", "lost"):
        deliveries.is_new(tag, source(), messages[tag])
        deliveries.finish(tag)
    messages["lost"].is_open = False  # its connection broke
    now_s = 200.0
    deliveries.is_new("fresh", source(), messages["fresh"])
    deliveries.finish("fresh")
    again = FakeMessage()
    assert not deliveries.is_new("lost", source(), again)
    assert again.answers == ["FIN"]
    assert not deliveries.is_new("fresh", source(), FakeMessage())
    assert deliveries.is_new("kept", source(), FakeMessage())  # it was replayed


def test_a_message_that_was_given_back_is_new_when_it_comes_again():
    deliveries = Deliveries()
    first = FakeMessage()
    deliveries.is_new("tag", source(), first)
    deliveries.give_back("tag")
    deliveries.give_back("tag")
    deliveries.finish("tag")
    assert first.answers == ["REQ 0"]
    assert deliveries.is_new("tag", source(), FakeMessage())
