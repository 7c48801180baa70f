"""Deliveries that wait for the end of other input."""

from __future__ import annotations

import os
from typing import Any

import gevent
import pytest

from nsqd_py.net import loop_iteration
from nsqd_py.net.loop_iteration import LoopIteration
from tests.unit.fakes import MS, FakeClock, FakeLog


class Worker:
    """Counts its calls."""

    def __init__(self) -> None:
        self.deliveries = self.flushes = 0

    def deliver(self) -> None:
        self.deliveries += 1

    def flush(self) -> None:
        self.flushes += 1


class BusyLoop:
    """An iteration whose loop has other input, or none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = FakeClock()
        self.has_input = True
        monkeypatch.setattr(loop_iteration, "monotonic_ns", self.clock)
        log: Any = FakeLog()
        self.iteration = LoopIteration(gevent.get_hub(), log)
        self.iteration._poll_loop = lambda timeout_ms: [(0, 1)] * self.has_input


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> BusyLoop:
    return BusyLoop(monkeypatch)


def test_a_patient_delivery_waits_while_other_input_is_ready(loop: BusyLoop) -> None:
    patient, other = Worker(), Worker()
    loop.iteration.add_patient_deliverer(patient)
    loop.iteration.add_deliverer(other)
    loop.iteration.end()
    assert (patient.deliveries, other.deliveries) == (0, 1)
    loop.has_input = False
    loop.iteration.end()
    assert patient.deliveries == 1
    loop.iteration.end()
    assert patient.deliveries == 1


def test_it_waits_for_a_millisecond_at_most(loop: BusyLoop) -> None:
    patient = Worker()
    for _ in range(2):
        loop.iteration.add_patient_deliverer(patient)
        loop.iteration.end()
        loop.clock.now_ns += MS - 1
        loop.iteration.end()
        before = patient.deliveries
        loop.clock.now_ns += 1
        loop.iteration.end()
        assert patient.deliveries == before + 1


def test_answers_are_sent_before_it(loop: BusyLoop) -> None:
    publisher = Worker()

    class Patient(Worker):
        def deliver(self) -> None:
            super().deliver()
            self.flushed_before = publisher.flushes

    patient = Patient()
    loop.has_input = False
    loop.iteration.add_patient_deliverer(patient)
    loop.iteration.add_flusher(publisher)
    loop.iteration.end()
    assert patient.flushed_before == 1


def test_publishers_are_answered_between_the_write_and_the_release(loop: BusyLoop) -> None:
    publisher = Worker()
    flushed: list[int] = []

    class Topic:
        def write(self) -> None:
            flushed.append(publisher.flushes)

        accept = write

    loop.iteration.add_committer(Topic())
    loop.iteration.add_flusher(publisher)
    loop.iteration.end()
    assert flushed == [0, 1]


def test_input_that_stays_ready_ends_the_wait_in_a_real_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    log: Any = FakeLog()
    hub = gevent.get_hub()
    monkeypatch.setattr(loop_iteration, "_LONGEST_POSTPONEMENT_NS", 50 * MS)
    iteration, patient = LoopIteration(hub, log), Worker()
    reader, writer = os.pipe()
    watcher = hub.loop.io(reader, 1)
    reads: list[int] = []

    def on_readable() -> None:
        if not reads:
            iteration.add_patient_deliverer(patient)
        reads.append(patient.deliveries)

    watcher.start(on_readable)
    os.write(writer, b"x")
    try:
        with gevent.Timeout(40):
            while not patient.deliveries:
                gevent.sleep(0)
    finally:
        watcher.stop()
        watcher.close()
        os.close(reader)
        os.close(writer)
    assert reads.count(0) > 1


def test_what_must_be_checked_before_output_leaves_is_checked_after_the_log_is_written(loop: BusyLoop) -> None:
    happened: list[str] = []

    class Both:
        def write(self) -> None:
            happened.append("write")

        def accept(self) -> None:
            happened.append("accept")

        def flush(self) -> None:
            happened.append("flush")

    loop.iteration.before_output = lambda: happened.append("check")
    loop.iteration.add_committer(Both())
    loop.iteration.add_flusher(Both())
    loop.iteration.end()
    assert happened[:3] == ["write", "check", "flush"]
