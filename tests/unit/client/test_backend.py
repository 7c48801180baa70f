"""The queues between a consumer's connections and the greenlets or threads that handle messages."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import gevent
import pytest
from gevent.event import Event

from nsqd_py.client.blocking.backend import THREADS, Poller, Waiters, WorkerThread, WorkQueue
from nsqd_py.client.gevent import Greenlets, WaitLock
from tests.support.hostile_schedule import run_hostile
from tests.support.nsqd_process import wait_until
from tests.support.together import wait_for_event


class Interrupted(Exception):
    """Stands for KeyboardInterrupt, which would end the tests."""


def turn() -> None:
    """Let every greenlet run that can, also those that wait for a timer of no time, as a `take` does."""
    for _ in range(5):
        gevent.sleep(0.001)


@pytest.mark.parametrize("wake", [WorkQueue.close, lambda queue: queue.put_all([1])], ids=["close", "put"])
def test_a_greenlet_that_was_interrupted_is_not_woken_elsewhere(
    wake: Callable[[WorkQueue[int]], None],
) -> None:
    """As when Ctrl-C ends a loop over a consumer, which then waits for the connections to close."""
    queue = WorkQueue(Greenlets())
    elsewhere = Event()

    def work() -> str:
        with pytest.raises(Interrupted):
            queue.take()
        elsewhere.wait()
        return "left alone"

    worker = gevent.spawn(work)
    turn()
    worker.kill(Interrupted, block=False)
    turn()
    wake(queue)
    turn()
    elsewhere.set()
    assert worker.get(timeout=40) == "left alone"


def test_another_greenlet_takes_what_an_interrupted_one_was_woken_for() -> None:
    queue = WorkQueue(Greenlets())
    interrupted = gevent.spawn(queue.take)
    turn()
    other = gevent.spawn(queue.take)
    turn()
    gevent.get_hub().loop.run_callback(interrupted.throw, gevent.GreenletExit)
    queue.put_all([7])
    assert other.get(timeout=40) == 7


class Noted(WaitLock):
    """A lock of greenlets that notes how long it is waited for."""

    limits: ClassVar[list[float]] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not self._is_free.is_set():
            self.limits.append(timeout)
        return super().acquire(blocking, timeout)


def test_greenlets_wait_in_one_piece() -> None:
    """The loop of gevent sees signals by itself."""
    waiters = Waiters(Noted)
    waiting = gevent.spawn(waiters.wait, lambda: False, 20.0)
    turn()
    waiters.wake()
    assert waiting.get(timeout=40)
    assert Noted.limits == [20.0]


def test_a_lock_of_greenlets_is_waited_for_until_its_time_is_over() -> None:
    lock = WaitLock()
    assert lock.acquire() and not lock.acquire(blocking=False)
    began_s = time.monotonic()
    assert not lock.acquire(timeout=0.05) and time.monotonic() - began_s >= 0.05
    several = [gevent.spawn(lock.acquire, timeout=40.0) for _ in range(3)]
    for left in (2, 1, 0):
        turn()
        lock.release()
        turn()
        assert sum(not one.ready() for one in several) == left
    assert all(one.get(timeout=40) for one in several)


def test_what_interrupts_a_wait_for_a_lock_leaves_nothing_behind() -> None:
    """As Ctrl-C; a time-out of gevent would be raised later, somewhere else."""
    lock = WaitLock()
    lock.acquire()
    seen = []

    def wait() -> None:
        try:
            lock.acquire(timeout=0.1)
        except Interrupted:
            seen.append("interrupted")
        gevent.sleep(0.3)
        seen.append("slept")

    waiting = gevent.spawn(wait)
    turn()
    waiting.kill(Interrupted, block=False)
    waiting.get(timeout=40)
    assert seen == ["interrupted", "slept"]
    assert not lock._is_free.linkcount()


def test_a_worker_waits_on_when_another_one_was_faster() -> None:
    """The queue is waited for until it is empty, or for as long as is allowed."""
    items = WorkQueue(THREADS)
    taken = []

    def work() -> None:
        while (item := items.take()) is not None:
            taken.append(item)

    items.put_all([-1])
    items.wait_until_empty(0.001)
    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(work) for _ in range(4)]
        for number in range(2000):
            items.put_all([number])
        items.wait_until_empty(40)
        assert len(taken) >= 2001 - len(workers)
        assert not any(worker.done() for worker in workers)
        items.close()
    assert sorted(taken) == list(range(-1, 2000))


def test_the_result_of_a_killed_call_is_dropped() -> None:
    may_end = threading.Event()
    dropped = []
    early = WorkerThread(
        THREADS, THREADS.make_poller(), lambda: wait_for_event(may_end, "the kill") is None, dropped.append
    )
    early.kill()
    assert dropped == []
    may_end.set()
    wait_until(lambda: dropped == [True])
    late = WorkerThread(THREADS, THREADS.make_poller(), lambda: False, dropped.append)
    wait_until(lambda: late.is_done)
    late.kill()
    assert dropped[:2] == [True, False]


class HeldSocket:
    """A socket on which a thread is about to send: the interpreter lock is free, and the descriptor is chosen."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.begun = threading.Event()
        self.gate = threading.Event()

    def send(self, data: bytes) -> int:
        descriptor = self._sock.fileno()
        self.begun.set()
        self.gate.wait(40)
        return os.write(descriptor, data)

    def close(self) -> None:
        self._sock.close()


def test_a_wake_does_not_write_to_the_next_socket_with_its_descriptor() -> None:
    """As when a handler ends while its consumer closes, and the program opens its next connection."""
    poller = Poller()
    held = HeldSocket(poller._writer)
    poller._writer = held  # type: ignore[assignment]
    waking = threading.Thread(target=poller.wake)
    waking.start()
    assert held.begun.wait(40)
    pairs = []

    def close_and_connect() -> None:
        poller.close()
        pairs.extend((*socket.socketpair(), *socket.socketpair()))

    closing = threading.Thread(target=close_and_connect)
    closing.start()
    closing.join(0.2)  # a poller that closes at once has done so by then, and fails below
    held.gate.set()
    waking.join(40)
    closing.join(40)
    assert len(pairs) == 4
    for sock in pairs:
        with pytest.raises(BlockingIOError):
            sock.recv(1, socket.MSG_DONTWAIT)
    for sock in pairs:
        sock.close()


TASKS_AND_A_THREAD = """
import asyncio, threading
from nsqd_py.client.aio.consumer import TaskQueue

COUNT = 5000

async def main():
    queue = TaskQueue()
    taken, cleared = [], []
    is_over = threading.Event()

    def clear():
        while not is_over.is_set():
            cleared.extend(queue.clear())

    thread = threading.Thread(target=clear)
    thread.start()
    try:
        for number in range(COUNT):
            queue.put_all([number])
            item = await queue.take(0)
            taken += [] if item is None else [item]
    finally:
        is_over.set()
        thread.join()
    assert sorted(taken + cleared + queue.clear()) == list(range(COUNT))

asyncio.run(main())
"""


def test_tasks_go_on_when_the_thread_of_a_stop_takes_what_they_were_about_to_take() -> None:
    run_hostile(TASKS_AND_A_THREAD)
