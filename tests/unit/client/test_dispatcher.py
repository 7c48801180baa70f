"""Which publish goes to which nsqd, and what becomes of it."""

from __future__ import annotations

from functools import partial
from typing import Any

from nsqd_py.client.blocking.publishing_core import NonBlockingProducer
from nsqd_py.client.errors import ConnectionFailed, NoNsqd, NsqClientError, PublishFailed
from nsqd_py.client.publishing.dispatcher import MAX_LOSSES, ConnectionWriter, Dispatcher, WindowLimits
from nsqd_py.client.publishing.publish import PendingPublish
from nsqd_py.runtime.logs.outages import Backoff

A, B = "a:4150", "b:4150"


def test_the_error_is_there_before_the_publish_is_over() -> None:
    """A thread that waits for the result looks at both without a lock; without the error, it would report success."""
    seen = []

    class Watched(PendingPublish):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name == "state" and self.is_over:
                seen.append(self.error)

    publish = Watched(b"x", b"", 1.0)
    error = NoNsqd("none")
    publish.fail(error)
    assert seen == [error]


class Harness:
    """A dispatcher with the time, which is 0 until it is set, and open writers."""

    def __init__(self, *addresses: str, window: int = 100, **settings: Any) -> None:
        settings = {"retry_unknown": True, "answer_timeout_s": 10.0, **settings}
        self.dispatcher = Dispatcher(WindowLimits(window, 1 << 20), **settings)
        self.now_s = 0.0
        for address in addresses:
            self.dispatcher.opened(self.add(address))

    def add(self, address: str) -> ConnectionWriter:
        return self.dispatcher.add_writer(address, Backoff(1.0, 16.0, lambda: 0.0))

    def writer(self, address: str) -> ConnectionWriter:
        return self.dispatcher.writers[address]

    def send(self, count: int = 1, deadline_s: float = 100.0) -> list[PendingPublish]:
        """Publishes, each in a turn of its own."""
        publishes = [PendingPublish(b"x" * 10, b"", deadline_s) for _ in range(count)]
        for publish in publishes:
            self.dispatcher.submit(publish)
            self.pump()
        return publishes

    def pump(self) -> list[PendingPublish]:
        """Return what is sent now."""
        sent = []
        while (order := self.dispatcher.next_to_send(self.now_s)) is not None:
            sent += order.publishes
        return sent

    def ok(self, address: str, count: int = 1) -> list[PendingPublish]:
        return self.dispatcher.answered_ok(self.writer(address), count, self.now_s)

    def refuse(self, address: str, code: str, text: str = "because") -> list[PendingPublish]:
        return self.dispatcher.answered_error(self.writer(address), code, text, self.now_s)

    def lose(self, address: str) -> list[PendingPublish]:
        return self.dispatcher.closed(self.writer(address), "gone", self.now_s)

    def reopen(self, address: str) -> list[PendingPublish]:
        self.dispatcher.opened(self.writer(address))
        return self.pump()

    def fail_to_open(self, address: str) -> list[PendingPublish]:
        return self.dispatcher.not_opened(
            self.writer(address), ConnectionFailed(address, "refused"), self.now_s
        )


# ---- answers


STANDBY = "PUB failed nsqd is a standby of a:4150"


def test_what_standbys_refuse_waits_until_one_is_the_primary() -> None:
    harness = Harness(B, retry_unknown=False)
    harness.add(A)
    harness.fail_to_open(A)
    publishes = harness.send(3, deadline_s=9.0)
    for _ in range(2 * MAX_LOSSES):
        assert harness.refuse(B, "E_PUB_FAILED", STANDBY) == []
        assert harness.lose(B) == []
        assert set(harness.reopen(B)) == set(publishes)
    assert set(harness.ok(B, 3)) == set(publishes)


def test_what_standbys_refuse_until_its_time_is_over_says_so() -> None:
    harness = Harness(B)
    harness.add(A)
    harness.fail_to_open(A)
    (publish,) = harness.send(1, deadline_s=9.0)
    harness.refuse(B, "E_PUB_FAILED", STANDBY)
    harness.lose(B)
    assert harness.dispatcher.expire(9.0)[0] == [publish]
    assert str(publish.error) == f"b:4150: E_PUB_FAILED {STANDBY}; a:4150: refused"


def test_the_only_nsqd_is_a_standby() -> None:
    harness = Harness(B)
    (publish,) = harness.send(1)
    assert harness.refuse(B, "E_PUB_FAILED", STANDBY) == [publish]
    assert isinstance(publish.error, PublishFailed)


# ---- lost connections


def test_an_nsqd_that_fails_is_left_alone_for_longer_each_time() -> None:
    harness = Harness(A)
    waits = []
    for errors in (0, 10, 0, 1):
        for _ in range(errors):  # they answer nothing
            assert harness.refuse(A, "E_INVALID") == []
        harness.lose(A)
        waits.append(harness.writer(A).pause.wait_s(0.0))
        harness.reopen(A)
    assert waits == [1.0, 2.0, 4.0, 8.0]
    harness.send(1)
    harness.ok(A)
    harness.lose(A)
    assert harness.writer(A).pause.wait_s(0.0) == 1.0


def test_while_no_nsqd_is_connected_each_is_tried_soon() -> None:
    harness = Harness(A, B)
    for _ in range(4):
        harness.lose(A)
        harness.reopen(A)
    harness.lose(A)
    pause_s = partial(harness.dispatcher.pause_s, harness.writer(A))
    assert pause_s(0.0) == 16.0
    harness.lose(B)
    assert list(map(pause_s, (0.0, 0.75, 2.0))) == [1.0, 0.25, 0.0]
    harness.reopen(B)
    assert pause_s(2.0) == 14.0


# ---- none at all


def test_errors_say_why_no_nsqd_is_connected() -> None:
    harness = Harness(A)
    harness.lose(A)
    harness.fail_to_open(A)
    why = str(harness.dispatcher.writers[A].failure)
    assert str(harness.dispatcher.not_connected(3)) == f"no nsqd could be connected for 3s: {why}"
    assert str(harness.dispatcher.still_open(2)).endswith(f"2 publishes are open; {why}")
    unknown = Harness().dispatcher
    assert str(unknown.not_connected(3)).endswith("3s: no nsqd is known: no nsqlookupd names one")
    unknown.lookup_failures["lookupd:4161"] = NsqClientError("lookupd:4161: refused")
    assert str(unknown.no_nsqd()) == "no nsqd is known: nsqlookupd lookupd:4161: refused"


def test_errors_name_what_was_configured() -> None:
    """Also before anything was tried."""
    direct = NonBlockingProducer("h:4150")._core.dispatcher
    assert str(direct.still_open(2)) == "h:4150: 2 publishes are open; h:4150: not connected yet"
    found = NonBlockingProducer(lookupd_http_addresses="h:4161")._core.dispatcher
    assert (
        str(found.still_open(1))
        == "1 publish is open; no nsqd is known: nsqlookupd h:4161: has not answered yet"
    )
