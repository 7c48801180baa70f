"""A write in a thread that fails, at any step and with any error, or whose end is not known: no acknowledged message is lost."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import gevent
import pytest

from nsqd_py.diskqueue.files import log_file as files
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.recovery import find_topic_files, read_log
from nsqd_py.runtime.threads import DiskThreads
from tests.support.background import DEADLINE_S
from tests.support.nsqd_process import wait_until
from tests.unit.fakes import close_descriptors, disk_threads, refuse
from tests.unit.topic_bench import SlowBench

pytestmark = pytest.mark.usefixtures("quiet_hub")

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
            self.monkeypatch.setattr(os, name, partial(self._make, getattr(os, name)))
        self.monkeypatch.setattr(files, "open_file", partial(self._make, files.open_file))

    def _make(self, call: Callable[..., Any], *arguments: Any) -> Any:
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


def _half(target: Any, data: Any = b"", *others: Any) -> tuple[Any, ...]:
    if isinstance(data, bytes):
        data = data[: len(data) // 2]
    return (target, data, *others)


class SlowTopic(SlowBench):
    """A topic of a slow disk, with real threads."""

    def __init__(self, directory: Path, max_bytes_per_file: int = 1 << 20) -> None:
        super().__init__(directory, disk_threads(), max_bytes_per_file)
        self.acknowledged = self.bodies()

    def is_taken(self, message: bytes) -> bool:
        """Publish, and return True if the message was acknowledged."""
        publisher = self.put(message)
        with gevent.Timeout(DEADLINE_S):
            self.writer.join()
        assert publisher.holds == 0, "neither acknowledged nor refused"
        if publisher.failures:
            return False
        self.acknowledged.append(message)
        return True

    def check(self) -> None:
        """Each acknowledged message is there, once, and nothing else: now, and after a kill."""
        assert self.bodies() == self.acknowledged
        assert self.of_slow.depth == len(self.acknowledged)
        names = [file.path.name for file in self.log.files]
        found = read_log(find_topic_files(self.directory)[0][self.slow.name].logs, None)
        damage = []
        self.log = TopicLog(self.directory, self.slow.name, 1 << 20, damage.append)
        for each in found.files:
            self.log.adopt(each, is_last=each is found.files[-1])
        assert self.bodies() == self.acknowledged
        assert (found.holes, found.damaged_holes, found.unreadable) == ([], [], []), names
        assert not [text for text in damage if "damaged" in text]
        assert not list(self.directory.glob("*.damaged")), damage
        self.threads.stop()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> FailingCalls:
    return FailingCalls(monkeypatch)


@pytest.mark.parametrize("max_bytes", [1 << 20, SMALL_FILE], ids=["same file", "new files"])
@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("moment", [BEFORE, HALF, AFTER])
def test_an_error_at_any_step_of_a_write(
    tmp_path: Path, calls: FailingCalls, moment: str, kind: str, max_bytes: int
) -> None:
    calls.moment, calls.error = moment, ERRORS[kind]
    most_calls = refused = 0
    for failing in range(12):
        directory = tmp_path / str(failing)
        directory.mkdir()
        calls.failing = -1
        bench = SlowTopic(directory, max_bytes)
        assert all(bench.is_taken(b"%d" % number * LARGE) for number in range(2))
        calls.made, calls.failing = 0, failing
        refused += not bench.is_taken(b"third" * (LARGE // 5))
        most_calls = max(most_calls, calls.made)
        calls.failing = -1
        assert all(map(bench.is_taken, (b"x", b"fourth" * 30, b"fifth")))
        bench.check()
        close_descriptors(directory)
    assert refused >= 1, "no call failed"
    assert most_calls < 12, "some calls were not tried"


@pytest.mark.parametrize("max_bytes", [1 << 20, SMALL_FILE], ids=["same file", "new files"])
def test_a_write_that_goes_on_after_its_publisher_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_bytes: int
) -> None:
    """The thread writes again after the next messages were acknowledged: they are not where it writes."""
    bench = SlowTopic(tmp_path, max_bytes)
    assert all(bench.is_taken(b"%d" % number * LARGE) for number in range(2))
    home, gate, begun = threading.get_ident(), threading.Event(), threading.Event()
    real = os.pwrite

    def late(fd: int, data: bytes, offset: int) -> int:
        if threading.get_ident() != home and b"stray" in data:
            begun.set()
            assert gate.wait(DEADLINE_S)
        return real(fd, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", late)
        stray = bench.put(b"stray" * (LARGE // 5))
        assert begun.wait(DEADLINE_S)
        bench.writer._greenlet.kill()
        assert stray.failures
        assert all(map(bench.is_taken, (b"after one", b"after two" * 20)))
        gate.set()
        threads = bench.threads
        wait_until(
            lambda: gevent.sleep(0.001) or threads.idle_count == threads.thread_count,
            what="the thread to end its write",
        )
    assert all(map(bench.is_taken, (b"three", b"four" * 100, b"five" * 100)))
    bench.check()


def test_a_hand_over_that_fails_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = SlowTopic(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(DiskThreads, "begin", Mock(side_effect=RuntimeError("can't start new thread")))
        assert not bench.is_taken(b"refused")
    assert bench.is_taken(b"after")
    assert [file.first_seq for file in bench.log.files] == [0], "what was never begun leaves no file"
    bench.check()


def test_a_full_disk_leaves_no_row_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = SlowTopic(tmp_path)
    home, real = threading.get_ident(), os.pwrite

    def full(fd: int, data: bytes, offset: int) -> int:
        if threading.get_ident() != home and b"refused" in data:
            refuse()
        return real(fd, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        assert not any(bench.is_taken(b"refused") for _ in range(20))
    assert bench.is_taken(b"after")
    assert [file.first_seq for file in bench.log.files] == [0, 1]
    assert len(list(tmp_path.glob("*.log*"))) == 2
    bench.check()
