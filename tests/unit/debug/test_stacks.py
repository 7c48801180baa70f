"""Stacks of greenlets and threads, and the pace of long work."""

from __future__ import annotations

import re
import socket
import threading
import time

import gevent
import gevent.event

from nsqd_py.debug.stacks import greenlets_text, threads_text
from nsqd_py.runtime.pacing import SLICE_S, Pace


def wait_for(event: gevent.event.Event) -> None:
    event.wait()


def test_thousands_at_one_place_are_one_paragraph() -> None:
    event = gevent.event.Event()
    waiting = [gevent.spawn(wait_for, event) for _ in range(3000)]
    while any(one.gr_frame is None for one in waiting):  # not started
        gevent.sleep(0.001)
    text = greenlets_text(Pace(), each=False)
    event.set()
    gevent.joinall(waiting)
    assert len(re.findall(rf"^    {re.escape(__name__)}\.wait_for  {re.escape(__file__)}:\d+$", text, re.M)) == 1
    assert re.search(r"^3000 waiting\n(    gevent\..*\n)*    .*\.wait_for ", text, re.M)
    total = re.match(r"greenlets: (\d+)\n", text)
    assert total is not None
    assert int(total[1]) >= 3002  # with this one and the hub


def test_one_by_one() -> None:
    event = gevent.event.Event()
    waiting = [gevent.spawn(wait_for, event) for _ in range(3)]
    begun_later = gevent.Greenlet(wait_for, event)
    gevent.sleep(0.001)
    text = greenlets_text(Pace(), each=True)
    event.set()
    gevent.joinall(waiting)
    for one in waiting:
        assert f"\nGreenlet {id(one):#x} waiting\n" in text
    assert f"\nGreenlet {id(begun_later):#x} not started\n" in text
    assert " running\n" in text


def test_threads_by_name() -> None:
    may_end = threading.Event()
    thread = threading.Thread(target=may_end.wait, name="a-thread-of-this-test")
    thread.start()
    text = threads_text(Pace())
    may_end.set()
    thread.join()
    assert re.search(r"\nthread \d+ a-thread-of-this-test running\n    threading\.", text)
    assert " MainThread running\n" in text


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
    pace = Pace()
    for _ in range(20):
        end_s = time.perf_counter() + SLICE_S
        while time.perf_counter() < end_s:
            pass
        pace.rest_if_due()
    watcher.close()
    ours.close()
    theirs.close()
    assert len(served) >= 15
