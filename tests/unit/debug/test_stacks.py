"""Stacks of greenlets and threads, the profile, and the slices of long work."""

from __future__ import annotations

import re
import signal
import socket
import threading
import time

import gevent
import gevent.event
import pytest

from nsqd_py.debug.stacks import Profiler, ProfileUnderWay, stacks_text
from nsqd_py.runtime.pacing import SLICE_S, WorkSlices


def wait_for(event: gevent.event.Event) -> None:
    event.wait()


def test_equal_stacks_are_one_paragraph() -> None:
    event = gevent.event.Event()
    waiting = [gevent.spawn(wait_for, event) for _ in range(3000)]
    while any(one.gr_frame is None for one in waiting):  # not started
        gevent.sleep(0.001)
    later = gevent.Greenlet(wait_for, event)
    may_end = threading.Event()
    thread = threading.Thread(target=may_end.wait, name="a-thread-of-this-test")
    thread.start()
    text = stacks_text(WorkSlices())
    event.set()
    may_end.set()
    gevent.joinall(waiting)
    thread.join()
    assert not later.started
    assert (
        len(re.findall(rf"^    {re.escape(__name__)}\.wait_for  {re.escape(__file__)}:\d+$", text, re.M)) == 1
    )
    assert re.search(r"^3000 greenlet waiting\n(    gevent\..*\n)*    .*\.wait_for ", text, re.M)
    assert re.search(r"^\d+ greenlet not started\n", text, re.M)
    assert re.search(r"^1 greenlet running\n", text, re.M)
    assert re.search(r"^1 thread a-thread-of-this-test\n    threading\.", text, re.M)
    assert "thread MainThread\n" in text


def test_sockets_are_served_between_slices() -> None:
    """With gevent.sleep(0) in place of the pause they are served once in 50."""
    ours, theirs = socket.socketpair()
    served = []
    watcher = gevent.get_hub().loop.io(theirs.fileno(), 1)

    def on_readable() -> None:
        served.append(theirs.recv(1))
        ours.send(b"x")

    watcher.start(on_readable)
    ours.send(b"x")
    slices = WorkSlices()
    for _ in range(20):
        end_s = time.perf_counter() + SLICE_S
        while time.perf_counter() < end_s:
            pass
        slices.sleep_if_due()
    watcher.close()
    ours.close()
    theirs.close()
    assert len(served) >= 15


def test_one_profile_at_a_time_and_a_signal_after_its_end_does_no_harm() -> None:
    profiler = Profiler()
    first = gevent.spawn(profiler.profile, 0.1)
    gevent.sleep(0.01)
    with pytest.raises(ProfileUnderWay):
        profiler.profile(0.1)
    first.join()
    profiler.profile(0.01)
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    signal.raise_signal(signal.SIGPROF)
