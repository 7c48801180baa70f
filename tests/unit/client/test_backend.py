"""The queues between a consumer's connections and the greenlets or threads that handle messages."""

from __future__ import annotations

import threading
from collections.abc import Callable

import gevent
import pytest
from gevent.event import Event

from nsqd_py.client.blocking.backend import THREADS, WorkerThread, WorkQueue
from nsqd_py.client.gevent import Greenlets
from tests.support.nsqd_process import wait_until


class Interrupted(Exception):
    """Stands for KeyboardInterrupt, which would end the tests."""


def turn() -> None:
    """Let every greenlet run that can, also those that wait for a timer of no time, as a `take` does."""
    for _ in range(5):
        gevent.sleep(0.001)


@pytest.mark.parametrize("wake", [WorkQueue.close, lambda queue: queue.put_all([1])], ids=["close", "put"])
def test_a_greenlet_that_was_interrupted_is_not_woken_elsewhere(wake: Callable[[WorkQueue[int]], None]) -> None:
    """As when Ctrl-C ends a loop over a consumer, which then waits for the connections to close."""
    queue: WorkQueue[int] = WorkQueue(Greenlets())
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
    queue: WorkQueue[int] = WorkQueue(Greenlets())
    taken: list[int | None] = []

    def work() -> None:
        taken.append(queue.take())

    interrupted = gevent.spawn(work)
    turn()
    other = gevent.spawn(work)
    turn()
    gevent.get_hub().loop.run_callback(interrupted.throw, gevent.GreenletExit)
    queue.put_all([7])
    other.join(timeout=40)
    assert other.ready()
    assert taken == [7]


def test_a_worker_waits_on_when_another_one_was_faster() -> None:
    """The queue is waited for until it is empty, or for as long as is allowed."""
    items: WorkQueue[int] = WorkQueue(THREADS)
    taken: list[int] = []

    def work() -> None:
        while (item := items.take()) is not None:
            taken.append(item)

    items.put_all([-1])
    items.wait_until_empty(0.001)
    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for number in range(2000):
        items.put_all([number])
    items.wait_until_empty(40)
    assert len(taken) >= 2001 - len(workers)
    assert all(worker.is_alive() for worker in workers)
    items.close()
    for worker in workers:
        worker.join()
    assert sorted(taken) == list(range(-1, 2000))


def test_the_result_of_a_killed_call_is_dropped() -> None:
    may_end = threading.Event()
    dropped: list[bool] = []
    early = WorkerThread(THREADS, THREADS.make_poller(), lambda: may_end.wait(40), dropped.append)
    early.kill()
    assert dropped == []
    may_end.set()
    wait_until(lambda: dropped == [True])
    late = WorkerThread(THREADS, THREADS.make_poller(), lambda: False, dropped.append)
    wait_until(lambda: late.is_done)
    late.kill()
    assert dropped[:2] == [True, False]
