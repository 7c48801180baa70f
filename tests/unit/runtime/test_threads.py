"""Work in a thread: its errors belong to whoever waits, and are printed by nobody else."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import gevent
import pytest
from gevent.event import Event
from gevent.threadpool import ThreadPool

from nsqd_py.diskqueue.compaction import Unmovable
from nsqd_py.runtime.threads import DiskThreads, in_thread, in_thread_while
from tests.support.nsqd_process import wait_until
from tests.support.together import join_greenlets


def serving(most: int) -> DiskThreads:
    threads = DiskThreads(most)
    threads.serve()
    return threads


def task_count() -> int:
    return len(os.listdir("/proc/self/task"))


def apply_all(threads: DiskThreads, work: Callable[[int], int], count: int) -> list[int]:
    calls = [gevent.spawn(threads.apply, work, (number,)) for number in range(count)]
    return join_greenlets(calls)


def test_before_it_serves_work_is_done_in_place() -> None:
    threads = DiskThreads(2)
    assert threads.apply(threading.get_ident) == threading.get_ident()
    threads.serve()
    assert threads.apply(threading.get_ident) != threading.get_ident()


def test_calls_run_side_by_side_in_no_more_threads_than_allowed() -> None:
    threads = serving(3)
    met = threading.Barrier(3, timeout=40)

    def meet(number: int) -> int:
        met.wait()  # ends only when three of them run
        return number

    assert apply_all(threads, meet, 9) == list(range(9))
    assert apply_all(threads, int, 50) == list(range(50))


def test_a_stop_ends_the_threads_after_their_calls() -> None:
    before = task_count()
    threads = serving(3)
    gate = threading.Event()
    calls = [gevent.spawn(threads.apply, gate.wait, (40,)) for _ in range(5)]
    gevent.sleep(0)
    threads.stop()
    assert threads.apply(threading.get_ident) == threading.get_ident()
    gate.set()
    assert all(join_greenlets(calls))
    wait_until(lambda: task_count() == before)


def test_a_greenlet_that_is_killed_ends_after_its_thread() -> None:
    """Else it would close what the thread reads, and the thread would read another file with the same descriptor."""
    threads = serving(1)
    begun, gate = threading.Event(), threading.Event()
    ended = []

    def work() -> None:
        begun.set()
        gate.wait(40)
        ended.append("thread")

    def call() -> None:
        try:
            threads.apply(work)
        finally:
            ended.append("greenlet")

    calling = gevent.spawn(call)
    gevent.sleep(0)
    assert begun.wait(40)
    calling.kill(block=False)
    calling.kill(block=False)
    gevent.sleep(0)
    assert not calling.dead
    gate.set()
    calling.join(40)
    assert ended == ["thread", "greenlet"]
    assert isinstance(calling.value, gevent.GreenletExit)
    assert threads.apply(lambda: 1) == 1


# Three nsqds, one after the other in one process, as after changes of role. A new topic is written in a thread.
ROLES = """
import gevent, os, sys
from nsqd_py.server.daemon import Daemon
from nsqd_py.server.options import read_options
from nsqd_py.runtime.logs.daemon_log import Log

def count():
    return len(os.listdir("/proc/self/task"))

def use(daemon, number):
    while not os.path.exists(f"http{number}"):
        gevent.sleep(0.01)
    with gevent.socket.socket(gevent.socket.AF_UNIX) as sock:
        sock.connect(f"http{number}")
        sock.sendall(b"POST /topic/create?topic=t%d HTTP/1.0\\r\\n\\r\\n" % number)
        while count() == before:
            gevent.sleep(0.01)
    daemon.yield_role()

before = count()
for number in range(3):
    options = [f"--http-unix-socket=http{number}", "--http-address=", "--tcp-address=127.0.0.1:0"]
    daemon = Daemon(read_options(options), Log("[nsqd] "))
    gevent.spawn(use, daemon, number)
    assert daemon.run() == 0
    with gevent.Timeout(40):
        while count() > before:
            gevent.sleep(0.01)
"""


# The disk stalls in the check of the lock until the next nsqd has the lock, and the descriptors of the last one.
LATE_CHECK = """
import gevent, os, threading
from nsqd_py.server.daemon import Daemon
from nsqd_py.server.options import read_options
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.private_files import lock_directory

real_stat, gate, checks = os.stat, threading.Event(), []

def stat(path, *arguments, **named):
    if path == ".":
        checks.append(path)
        assert gate.wait(40)
    return real_stat(path, *arguments, **named)

os.stat = stat
before = len(os.listdir("/proc/self/task"))
daemon = Daemon(read_options(["--http-address=", "--tcp-address=127.0.0.1:0"]), Log("[nsqd] "))

def end():
    while not checks:
        gevent.sleep(0.01)
    daemon.yield_role()

gevent.spawn(end)
assert daemon.run() == 0
others = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
lock = lock_directory(".")
gate.set()
with gevent.Timeout(40):
    while len(os.listdir("/proc/self/task")) > before:
        gevent.sleep(0.01)
gevent.sleep(0.01)
assert checks == ["."]
"""


@pytest.mark.parametrize("script", [ROLES, LATE_CHECK], ids=["changes of role", "a check that ends late"])
def test_an_nsqd_that_ends_leaves_no_threads_behind(tmp_path: Path, script: str) -> None:
    """And a check of the lock that ends after its nsqd does nothing."""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=120)


@pytest.mark.parametrize(
    "error", [OSError("no such disk"), Unmovable("message 5 is missing"), KeyError("a bug")]
)
def test_an_error_of_a_thread_is_raised_and_not_printed(
    error: Exception, capfd: pytest.CaptureFixture[str]
) -> None:
    threads, fail = serving(1), Mock(side_effect=error)
    for call in (threads.apply, partial(in_thread, threads), partial(in_thread, ThreadPool(1))):
        with pytest.raises(type(error)) as raised:
            call(fail)
        assert raised.value is error
    assert capfd.readouterr() == ("", "")


def test_without_room_for_a_thread_work_fails_and_is_done_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = serving(2)

    refuse = Mock(side_effect=RuntimeError("can't start new thread"))
    with monkeypatch.context() as patch:
        patch.setattr("nsqd_py.runtime.threads.start_new_thread", refuse)
        for _ in range(3):
            with pytest.raises(RuntimeError, match="start new thread"):
                threads.apply(threading.get_ident)
    for _ in range(2):
        assert apply_all(threads, int, 5) == list(range(5))
        monkeypatch.setattr("nsqd_py.runtime.threads.start_new_thread", refuse)


def test_hand_overs_at_a_hostile_schedule_answer_each_call_once() -> None:
    """Ten million in `make stress`; this many find the race of a shared queue, and of its list of idle threads, in each run."""
    drive = [sys.executable, "-m", "tests.support.handovers", "--count=60000", "--seed=7"]
    done = subprocess.run(drive, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "60000 hand-overs to 16 threads" in done.stdout


def test_threads_serve_again_after_a_stop() -> None:
    threads = DiskThreads(3)
    for _ in range(3):
        threads.serve()
        assert apply_all(threads, int, 20) == list(range(20))
        threads.stop()
        wait_until(lambda: threads.thread_count == 0)


def test_a_call_wakes_one_thread_the_one_that_was_used_last() -> None:
    threads = serving(3)
    met = threading.Barrier(3, timeout=40)
    assert len({*apply_all(threads, lambda _: met.wait() * 0 + threading.get_ident(), 3)}) == 3
    assert len({threads.apply(threading.get_ident) for _ in range(20)}) == 1


@pytest.mark.usefixtures("quiet_hub")
def test_a_bug_after_a_call_does_not_stop_the_calls_after_it() -> None:
    threads = serving(1)
    ended = []

    def end(number: int) -> None:
        ended.append(number)
        if number == 0:
            raise ZeroDivisionError

    for number in range(3):
        threads.begin(int, (), lambda _, number=number: end(number))
    wait_until(lambda: gevent.sleep(0.001) or len(ended) == 3)  # the loop polls
    assert ended == [0, 1, 2]


# ---- work that may take too long


class Waiting:
    """`in_thread_while` in a greenlet; the work ends when it may."""

    def __init__(self, threads: DiskThreads) -> None:
        self.may_end = threading.Event()
        self.reason = ""
        self.ended: list[str] = []
        self._greenlet = gevent.spawn(in_thread_while, threads, self._check, self._work, self._end)

    def _check(self) -> None:
        if self.reason:
            raise TimeoutError(self.reason)

    def _work(self) -> None:
        self.may_end.wait(40)
        self.ended.append("work")

    def _end(self) -> None:
        self.ended.append("end")

    def result(self) -> None:
        self._greenlet.get(timeout=40)


def test_a_wait_ends_before_its_work_if_a_check_fails() -> None:
    waiting = Waiting(serving(1))
    gevent.sleep(0)
    waiting.reason = "too long"
    with pytest.raises(TimeoutError, match="too long"):
        waiting.result()
    assert waiting.ended == []  # the thread still uses what it got
    waiting.may_end.set()
    wait_until(lambda: gevent.sleep(0.001) or waiting.ended == ["work", "end"])


def test_a_wait_ends_with_its_work() -> None:
    waiting = Waiting(serving(1))
    waiting.may_end.set()
    waiting.result()
    assert waiting.ended == ["work", "end"]


def test_work_does_not_begin_after_a_check_that_fails() -> None:
    waiting = Waiting(serving(1))
    waiting.reason = "too long"
    with pytest.raises(TimeoutError):
        waiting.result()
    assert waiting.ended == ["end"]


def test_who_waits_gets_the_error_of_the_work() -> None:
    with pytest.raises(ZeroDivisionError):
        in_thread_while(serving(1), lambda: None, lambda: 1 // 0)


class Read:
    """What a thread has read, some MB."""


@pytest.mark.parametrize("is_left", [False, True])
@pytest.mark.parametrize("is_error", [False, True])
def test_a_wait_leaves_no_reference_cycle(*, is_left: bool, is_error: bool) -> None:
    """What a thread has read, some MB, must be free at once. (Not counted: others in this process leave cycles, too.)"""
    threads = serving(1)
    held: list[weakref.ref[Any]] = []

    def wait_once() -> None:
        begun, may_end = threading.Event(), threading.Event()
        ended = Event()

        def check() -> None:
            if is_left and begun.is_set():
                raise TimeoutError

        def work() -> Read:
            begun.set()
            may_end.wait(40)
            read = Read()
            held.append(weakref.ref(read))
            if is_error:
                raise OSError(read)
            return read

        held.extend([weakref.ref(check), weakref.ref(work)])
        if not is_left:
            may_end.set()
        with suppress(TimeoutError, OSError):
            in_thread_while(threads, check, work, ended.set)
        assert is_left == (not ended.is_set())
        may_end.set()
        while not ended.wait(0.01):
            pass

    gc.disable()
    try:
        wait_once()
        wait_until(lambda: not any(reference() for reference in held))
        assert len(held) == 3
    finally:
        gc.enable()
