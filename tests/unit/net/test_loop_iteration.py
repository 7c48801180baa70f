"""Deliveries that wait for the end of other input."""

from __future__ import annotations

import os
from unittest.mock import Mock

import gevent
import pytest

from nsqd_py.net import loop_iteration
from nsqd_py.net.loop_iteration import LoopIteration
from tests.unit.fakes import MS, FakeClock, FakeLog


class BusyLoop:
    """An iteration whose loop has other input, or none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = FakeClock()
        self.has_input = True
        monkeypatch.setattr(loop_iteration, "monotonic_ns", self.clock)
        log = FakeLog()
        self.iteration = LoopIteration(gevent.get_hub(), log)
        self.iteration._poll_loop = lambda timeout_ms: [(0, 1)] * self.has_input


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> BusyLoop:
    return BusyLoop(monkeypatch)


def test_a_deferred_delivery_waits_while_other_input_is_ready(loop: BusyLoop) -> None:
    deferred, other = Mock(), Mock()
    loop.iteration.add_deferred_deliverer(deferred)
    loop.iteration.add_deliverer(other)
    loop.iteration.end()
    assert (deferred.deliver.call_count, other.deliver.call_count) == (0, 1)
    loop.has_input = False
    for _ in range(2):
        loop.iteration.end()
        assert deferred.deliver.call_count == 1


def test_it_waits_for_a_millisecond_at_most(loop: BusyLoop) -> None:
    deferred = Mock()
    for _ in range(2):
        loop.iteration.add_deferred_deliverer(deferred)
        loop.iteration.end()
        loop.clock.now_ns += MS - 1
        loop.iteration.end()
        deferred.deliver.assert_not_called()
        loop.clock.now_ns += 1
        loop.iteration.end()
        deferred.deliver.assert_called_once()
        deferred.reset_mock()


def test_the_order_within_an_iteration(loop: BusyLoop) -> None:
    """Publishers are answered between the write and the release, and what must be checked before that is."""
    all_of_them = Mock()
    loop.has_input = False
    loop.iteration.add_deferred_deliverer(all_of_them.deferred)
    loop.iteration.before_output = all_of_them.check
    loop.iteration.add_committer(all_of_them.topic)
    loop.iteration.add_flusher(all_of_them.publisher)
    loop.iteration.end()
    names = [name for name, _, _ in all_of_them.mock_calls]
    assert list(dict.fromkeys(names)) == [
        "topic.write",
        "check",
        "publisher.flush",
        "topic.accept",
        "deferred.deliver",
    ]


def test_input_that_stays_ready_ends_the_wait_in_a_real_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    log = FakeLog()
    hub = gevent.get_hub()
    monkeypatch.setattr(loop_iteration, "_LONGEST_POSTPONEMENT_NS", 50 * MS)
    iteration, deferred = LoopIteration(hub, log), Mock()
    reader, writer = os.pipe()
    watcher = hub.loop.io(reader, 1)
    reads = []

    def on_readable() -> None:
        if not reads:
            iteration.add_deferred_deliverer(deferred)
        reads.append(deferred.deliver.call_count)

    watcher.start(on_readable)
    os.write(writer, b"x")
    try:
        with gevent.Timeout(40):
            while not deferred.deliver.called:
                gevent.sleep(0)
    finally:
        watcher.stop()
        watcher.close()
        os.close(reader)
        os.close(writer)
    assert reads.count(0) > 1
