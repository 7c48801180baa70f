"""A write in a thread that fails, at any step and with any error, or whose end is not known: no acknowledged message is lost."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns
from typing import Any

import gevent
import pytest

from nsqd_py.broker.disk_io import SlowWriter
from nsqd_py.diskqueue import files
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.recovery import RecoveredLog, find_topic_files, read_log
from nsqd_py.runtime.disk_speed import DiskSpeed
from nsqd_py.runtime.threads import DiskThreads
from tests.support.background import DEADLINE_S
from tests.support.nsqd_process import wait_until
from tests.unit.fakes import FakePublisher, close_descriptors, disk_threads
from tests.unit.log_bench import read_all
from tests.unit.topic_bench import Bench

ERRORS = {
    "EIO": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    "ENOSPC": lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "bug": lambda: IndexError("pop from an empty deque"),
    "memory": MemoryError,
    "killed": gevent.GreenletExit,
}
# Where in a system call the error comes.
BEFORE, HALF, AFTER = "before", "half", "after"
# The bytes that a file takes: the third message of LARGE bytes needs a new one.
LARGE = 400
SMALL_FILE = 1200


@dataclass
class FailingCalls:
    """Makes one system call fail, counted in the order in which threads make them; the event loop's never do."""

    monkeypatch: pytest.MonkeyPatch
    failing: int = -1
    moment: str = BEFORE
    error: Callable[[], BaseException] = MemoryError
    made: int = 0

    def __post_init__(self) -> None:
        self._home = threading.get_ident()
        self._open_file = files.open_file
        for name in ("pwrite", "pwritev", "ftruncate", "rename", "posix_fallocate"):
            self.monkeypatch.setattr(os, name, self._wrapped(getattr(os, name)))
        self.monkeypatch.setattr(files, "open_file", self._wrapped(files.open_file))

    def _wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            if threading.get_ident() == self._home:
                return call(*arguments)
            number, self.made = self.made, self.made + 1
            if number != self.failing:
                return call(*arguments)
            if self.moment == HALF:
                arguments = _half(*arguments)
            if self.moment != BEFORE:
                result = call(*arguments)
                if call is self._open_file:  # the error hides the descriptor
                    os.close(result)
            raise self.error()

        return wrapped


def _half(target: Any, data: Any = b"", *others: Any) -> tuple[Any, ...]:
    if isinstance(data, bytes):
        data = data[: len(data) // 2]
    return (target, data, *others)


class SlowTopic(Bench):
    """A topic of a slow disk, with real threads."""

    def __init__(self, directory: Path, max_bytes_per_file: int) -> None:
        super().__init__(directory)
        self.threads = disk_threads()
        self.slow = self.topic(max_bytes_per_file=max_bytes_per_file)
        self.of_slow = self.channel(self.slow)
        assert self.slow.log is not None
        self.disk_speed = self.slow.disk_speed = DiskSpeed(self.world.alarms, self.world.clock, monotonic_ns)
        self.writer = self.slow.slow_writer = SlowWriter(self.slow, self.slow.log, self.threads, self.disk_speed)
        self.disk_speed.stall(self)

    @property
    def log(self) -> TopicLog:
        assert isinstance(self.slow.log, TopicLog)
        return self.slow.log

    def begin_put(self, message: bytes) -> FakePublisher:
        publisher = self.publish(self.slow, message)
        self.world.run()
        gevent.sleep(0)
        return publisher

    def put(self, message: bytes) -> bool:
        """Publish, and return True if the message was acknowledged."""
        publisher = self.begin_put(message)
        with gevent.Timeout(DEADLINE_S):
            self.writer.join()
        assert publisher.holds == 0, "neither acknowledged nor refused"
        return not publisher.failures


def bodies(log: TopicLog) -> list[bytes]:
    messages = read_all(log)
    assert [seq for seq, _ in messages] == list(range(len(messages))), "numbers without a gap"
    return [body for _, body in messages]


def recovered(directory: Path, topic: str) -> tuple[list[bytes], RecoveredLog, list[str]]:
    """Return the messages that the next start finds, what it found, and the damage that it reports."""
    found = read_log(find_topic_files(directory)[0][topic].logs, None)
    damage: list[str] = []
    log = TopicLog(directory, topic, 1 << 20, damage.append)
    for each in found.files:
        log.adopt(each, is_last=each is found.files[-1])
    return bodies(log), found, damage


@pytest.fixture(autouse=True)
def quiet_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gevent.get_hub(), "handle_error", lambda *_: None)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[FailingCalls]:
    yield FailingCalls(monkeypatch)


def check(bench: SlowTopic, acknowledged: list[bytes]) -> None:
    """Each acknowledged message is there, once, and nothing else: now, and after a kill."""
    assert bodies(bench.log) == acknowledged
    assert bench.of_slow.depth == len(acknowledged)
    names = [file.path.name for file in bench.log.files]
    after_kill, found, damage = recovered(bench.directory, bench.slow.name)
    assert after_kill == acknowledged
    assert (found.holes, found.damaged_holes, found.unreadable) == ([], [], []), names
    assert not [text for text in damage if "damaged" in text]
    assert not list(bench.directory.glob("*.damaged")), damage


@pytest.mark.parametrize("max_bytes", [1 << 20, SMALL_FILE], ids=["same file", "new files"])
@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("moment", [BEFORE, HALF, AFTER])
def test_an_error_at_any_step_of_a_write(tmp_path: Path, calls: FailingCalls, moment: str, kind: str, max_bytes: int) -> None:
    calls.moment, calls.error = moment, ERRORS[kind]
    most_calls = refused = 0
    for failing in range(12):
        directory = tmp_path / str(failing)
        directory.mkdir()
        bench = SlowTopic(directory, max_bytes)
        calls.made, calls.failing = 0, -1
        written = [b"%d" % number * LARGE for number in range(2)]
        assert all(map(bench.put, written))
        calls.made, calls.failing = 0, failing
        third = b"third" * (LARGE // 5)
        if bench.put(third):
            written.append(third)
        else:
            refused += 1
        most_calls = max(most_calls, calls.made)
        calls.failing = -1
        for message in (b"x", b"fourth" * 30, b"fifth"):
            assert bench.put(message)
            written.append(message)
        check(bench, written)
        bench.threads.stop()
        close_descriptors(directory)
    assert refused >= 1, "no call failed"
    assert most_calls < 12, "some calls were not tried"


@pytest.mark.parametrize("max_bytes", [1 << 20, SMALL_FILE], ids=["same file", "new files"])
def test_a_write_that_goes_on_after_its_publisher_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    """The thread writes again after the next messages were acknowledged: they are not where it writes."""
    bench = SlowTopic(tmp_path, max_bytes)
    written = [b"%d" % number * LARGE for number in range(2)]
    assert all(map(bench.put, written))
    home, gate, begun = threading.get_ident(), threading.Event(), threading.Event()
    real = os.pwrite

    def late(fd: int, data: bytes, offset: int) -> int:
        if threading.get_ident() != home and b"stray" in data:
            begun.set()
            assert gate.wait(DEADLINE_S)
        return real(fd, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", late)
        stray = bench.begin_put(b"stray" * (LARGE // 5))
        assert begun.wait(DEADLINE_S)
        bench.writer._greenlet.kill()
        assert stray.failures
        for message in (b"after one", b"after two" * 20):
            assert bench.put(message)
            written.append(message)
        gate.set()
        threads = bench.threads
        wait_until(lambda: gevent.sleep(0) or threads.idle_count == threads.thread_count, what="the thread to end its write")
    for message in (b"three", b"four" * 100, b"five" * 100):
        assert bench.put(message)
        written.append(message)
    check(bench, written)
    bench.threads.stop()


def test_a_hand_over_that_fails_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = SlowTopic(tmp_path, 1 << 20)
    assert bench.put(b"before")

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(DiskThreads, "begin", refuse)
        assert not bench.put(b"refused")
    assert bench.put(b"after")
    assert [file.first_seq for file in bench.log.files] == [0], "what was never begun leaves no file"
    check(bench, [b"before", b"after"])


def test_a_full_disk_leaves_no_row_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = SlowTopic(tmp_path, 1 << 20)
    assert bench.put(b"before")
    home, real = threading.get_ident(), os.pwrite

    def full(fd: int, data: bytes, offset: int) -> int:
        if threading.get_ident() != home and b"refused" in data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        for _ in range(20):
            assert not bench.put(b"refused")
    assert bench.put(b"after")
    assert [file.first_seq for file in bench.log.files] == [0, 1]
    assert len(list(tmp_path.glob("*.log*"))) == 2
    check(bench, [b"before", b"after"])
