"""Which files are open, when there are more than may be."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from nsqd_py.diskqueue.files import open_files
from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.files.open_files import OPEN_FILES
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES
from tests.support.hostile_schedule import run_hostile
from tests.support.together import run_in_threads
from tests.unit.fakes import make_batch
from tests.unit.log_bench import append_to, close_log, read_all, sync_log

MOST = 4


@pytest.fixture(autouse=True)
def few() -> Iterator[None]:
    """Only four files may be open."""
    files = OPEN_FILES._files
    OPEN_FILES.use_limit()
    OPEN_FILES.most, OPEN_FILES._files = MOST, type(files)()
    yield
    OPEN_FILES._files = files
    OPEN_FILES.use_limit()
    OPEN_FILES.is_full = False


def make_log(directory: Path, topic: str) -> TopicLog:
    return TopicLog(directory, topic, 1 << 20, pytest.fail)


def append(log: TopicLog, body: bytes = b"x" * 8) -> None:
    append_to(log, make_batch(log.next_seq, body))


def synced_log(directory: Path, topic: str = "t") -> TopicLog:
    """A log of one message, which is on the disk."""
    log = make_log(directory, topic)
    append(log)
    sync_log(log)
    return log


def synced_logs(directory: Path, count: int) -> list[TopicLog]:
    return [synced_log(directory, f"t{place}") for place in range(count)]


def open_count(logs: list[TopicLog]) -> int:
    return sum(file.is_open for log in logs for file in log.files)


def bodies(log: TopicLog) -> list[bytes]:
    return [body for _, body in read_all(log)]


def test_files_that_are_synced_are_closed_and_opened_again(tmp_path: Path) -> None:
    logs = [make_log(tmp_path, f"t{place}") for place in range(20)]
    for round_ in range(3):
        for log in logs:
            append(log, b"%08d" % round_)
            sync_log(log)
            assert open_count(logs) <= MOST + 1
            assert open_count(logs) == len(OPEN_FILES)
    assert not OPEN_FILES.is_full
    assert [bodies(log) for log in logs] == [[b"00000000", b"00000001", b"00000002"]] * 20
    for log in logs:
        close_log(log)
    assert len(OPEN_FILES) == 0
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {
        FILE_HEADER_BYTES + 3 * (RECORD_HEADER_BYTES + 12)
    }


def test_what_waits_for_a_sync_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [make_log(tmp_path, f"t{place}") for place in range(8)]
    asked = []
    monkeypatch.setattr(OPEN_FILES, "on_full", lambda: asked.append(1))
    for log in logs:
        append(log)
    assert open_count(logs) == 8
    assert OPEN_FILES.is_full
    assert asked
    assert not OPEN_FILES.has_room()
    for log in logs[:4]:
        sync_log(log)
    assert not OPEN_FILES.has_room()
    sync_log(logs[4])
    assert OPEN_FILES.has_room()
    assert [log.files[0].is_open for log in logs] == [*[False] * 5, *[True] * 3]


def test_a_held_file_stays_open(tmp_path: Path) -> None:
    log = synced_log(tmp_path, "held")
    (held,) = log.files
    held.pin()
    synced_logs(tmp_path, 8)
    assert held.is_open
    descriptor = held.fileno()
    log.remove()
    assert os.fstat(descriptor).st_size, "a thread may use it"
    held.unpin()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(descriptor)


def test_allocated_space_is_used_again_and_given_back(tmp_path: Path) -> None:
    log = synced_log(tmp_path)
    (file,) = log.files
    allocated = file.path.stat().st_size
    assert allocated > file.end_offset
    assert file.close_for_now()
    append(log)
    assert file.is_open
    assert file.path.stat().st_size == allocated
    sync_log(log)
    assert file.close_for_now()
    close_log(log)
    assert file.path.stat().st_size == file.end_offset


def test_a_file_that_was_removed_or_replaced_while_it_was_closed(tmp_path: Path) -> None:
    log = synced_log(tmp_path)
    (file,) = log.files
    assert file.close_for_now()
    file.path.unlink()
    with pytest.raises(FileNotFoundError):
        append(log)
    file.path.write_bytes(b"mine")
    with pytest.raises(OSError, match="the file was replaced by another one"):
        append(log)
    assert file.path.read_bytes() == b"mine"
    log.leave_last_file()
    append(log)
    assert len(log.files) == 2


def test_a_removed_file_is_not_closed(tmp_path: Path) -> None:
    log = synced_log(tmp_path)
    (file,) = log.files
    file.path.unlink()
    assert not file.close_for_now()
    assert bodies(log) == [b"x" * 8]


def test_room_is_made_where_the_system_has_no_descriptor_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = synced_logs(tmp_path, 3)
    path = logs[0].files[0].path
    real = os.open
    calls = []

    def scarce(*arguments: object, **more: object) -> int:
        calls.append(arguments)
        if open_count(logs) == 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", scarce)
    LogFile.open(path).close()
    assert len(calls) == 2
    assert open_count(logs) < 3


LOOKED_AT_BY_TWO_THREADS = """
import sys, threading
from pathlib import Path
from nsqd_py.diskqueue.files.log_file import LogFile, run_to_end
from nsqd_py.diskqueue.records import FileHeader

file = run_to_end(LogFile.creating(Path(sys.argv[1]) / "t.00000000000000000000.log", FileHeader(1, 0, 0)))

def allocate_and_cut():
    for _ in range(500):
        file.allocate(100)
        file.cut()

writer = threading.Thread(target=allocate_and_cut)
writer.start()
looks = 0
while writer.is_alive():
    assert not file.is_cut(), (file.end_offset, file.allocated, file.path.stat().st_size)
    looks += 1
assert looks > 10
"""


def test_a_file_whose_space_a_thread_changes_is_not_taken_for_cut(tmp_path: Path) -> None:
    run_hostile(LOOKED_AT_BY_TWO_THREADS, str(tmp_path))


class SlowDisk:
    """Calls of one kind that do not return before `go_on`, in all threads but the one that made this."""

    def __init__(self, patch: pytest.MonkeyPatch, module: object, name: str) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()
        self._real = getattr(module, name)
        self._home = threading.get_ident()
        patch.setattr(module, name, self._slow)

    def _slow(self, *arguments: object) -> object:
        if threading.get_ident() != self._home:
            self.began.set()
            assert self.go_on.wait(60)
        return self._real(*arguments)


DEADLINE_S = 5.0


def test_an_open_that_takes_long_in_a_thread_does_not_stop_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = synced_logs(tmp_path, 2)
    slow, other = (log.files[0] for log in logs)
    assert slow.close_for_now()
    disk = SlowDisk(monkeypatch, open_files, "open_file")
    with ThreadPoolExecutor(2) as pool:
        try:
            reading = pool.submit(pinned_read, slow)
            assert disk.began.wait(60)
            pool.submit(use, other).result(DEADLINE_S)
            assert not reading.done()
            assert pinned_read(slow) == slow.header.encode(), "the event loop opens it in the meantime"
            open_files_before = len(os.listdir("/proc/self/fd"))
        finally:
            disk.go_on.set()
        assert reading.result(60) == slow.header.encode()
    assert len(os.listdir("/proc/self/fd")) <= open_files_before, (
        "the second descriptor of the file is closed"
    )
    assert slow._pin_count == 0
    for log in logs:
        close_log(log)
    assert len(OPEN_FILES) == 0


def pinned_read(file: LogFile) -> bytes:
    file.pin()
    try:
        return os.pread(file.fileno(), FILE_HEADER_BYTES, 0)
    finally:
        file.unpin()


def use(file: LogFile) -> None:
    """All that takes the lock."""
    file.pin()
    file.unpin()
    OPEN_FILES.add(file)
    OPEN_FILES.make_room()
    file.close()


def test_a_file_that_is_closed_for_good_while_a_thread_opens_it_is_closed_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = synced_log(tmp_path)
    (file,) = log.files
    assert file.close_for_now()
    disk = SlowDisk(monkeypatch, open_files, "open_file")
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(pinned_read, file)
        assert disk.began.wait(60)
        file.close()
        disk.go_on.set()
        assert reading.result(60) == file.header.encode()
    assert not file.is_open
    assert len(OPEN_FILES) == 0
    assert log.files == [file]


def test_a_close_that_takes_long_in_a_thread_does_not_stop_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last close of a removed file frees all of it."""
    slow_log, other_log = synced_logs(tmp_path, 2)
    with monkeypatch.context() as patch:
        disk = SlowDisk(patch, os, "close")
        with ThreadPoolExecutor(1) as pool:
            closing = pool.submit(slow_log.files[0].close)
            try:
                assert disk.began.wait(60)
                run_in_threads([partial(pinned_read, other_log.files[0])], DEADLINE_S)
            finally:
                disk.go_on.set()
            closing.result(60)
    assert not slow_log.files[0].is_open
    close_log(other_log)


def test_a_thread_that_opens_one_too_many_has_the_event_loop_close_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is slow: threads read. They close no file, as the event loop may be using it."""
    asked = []
    monkeypatch.setattr(OPEN_FILES, "on_crowded", lambda: asked.append(threading.get_ident()))
    logs = synced_logs(tmp_path, 2 * MOST)

    def read_all_in_a_thread() -> None:
        assert open_count(logs) == 0
        run_in_threads([lambda: [log.files[0].read(0, FILE_HEADER_BYTES) for log in logs]])

    OPEN_FILES.most = 0
    OPEN_FILES.make_room()
    OPEN_FILES.most = MOST
    read_all_in_a_thread()
    assert len(asked) == 1 and asked[0] != threading.get_ident(), "it is asked once until it has done so"
    assert open_count(logs) == 2 * MOST
    OPEN_FILES.make_room()
    read_all_in_a_thread()
    assert len(asked) == 2
    for log in logs:
        close_log(log)
