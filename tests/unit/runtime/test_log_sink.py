"""A log file on a disk that is slow: whoever logs does not wait for it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from nsqd_py.runtime import logs
from nsqd_py.runtime.logs import LineSink
from tests.support.nsqd_process import wait_until


class SlowFile:
    """A file; a write by a thread waits for `gate`."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.gate = threading.Event()
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT)
        self.sink = LineSink(self.fd)
        self._real = os.write
        monkeypatch.setattr(os, "write", self._write)

    def _write(self, fd: int, data: bytes) -> int:
        if fd == self.fd and threading.current_thread() is not threading.main_thread():
            self.gate.wait(40)
        return self._real(fd, data)

    def is_written(self) -> bool:
        return not self.sink.is_clogged


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlowFile:
    return SlowFile(tmp_path / "log", monkeypatch)


def test_after_a_slow_write_a_thread_writes(file: SlowFile, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        times = iter((0.0, 1.0))
        patch.setattr(logs, "monotonic", lambda: next(times))
        file.sink.write(b"slow\n")
    for number in range(100):
        file.sink.write(b"%d\n" % number)
    assert file.sink.is_clogged
    assert file.path.read_bytes() == b"slow\n"
    file.gate.set()
    wait_until(file.is_written)
    assert file.path.read_bytes() == b"slow\n" + b"".join(b"%d\n" % number for number in range(100))
    assert file.sink.lost_count == 0
