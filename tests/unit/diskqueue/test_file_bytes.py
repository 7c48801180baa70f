"""The bytes of a file, read in pieces: as the whole file in memory, and with an error where the disk cannot read."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.diskqueue.files.file_bytes import FileBytes
from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.files.open_files import OPEN_FILES
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.recovery import recover_file
from nsqd_py.errors import StartError
from tests.support.disk_calls import watched
from tests.unit.fakes import World, close_descriptors, make_batch, start_broker
from tests.unit.log_bench import TOPIC, append_to

SIZE = 700_000
MARK = b"NSQL"
_CONTENT = bytearray(os.urandom(SIZE).replace(MARK, b"...."))
for _place in (0, 4093, 4096 * 3 - 2, 262_142, 262_144 + 4096, SIZE - 4):  # on the borders of pieces, too
    _CONTENT[_place : _place + 4] = MARK
CONTENT = bytes(_CONTENT)
PLACES = st.integers(0, SIZE + 10)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "bytes"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture(scope="module")
def fd(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY)
    yield fd
    os.close(fd)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["slice", "find", "window"]), PLACES, st.sampled_from([0, 1, 64, 5000, 300_000])
        ),
        max_size=12,
    )
)
def test_it_is_as_the_whole_file(fd: int, steps: list[tuple[str, int, int]]) -> None:
    data = FileBytes(fd, SIZE)
    for step, start, size in steps:
        if step == "slice":
            assert data[start : start + size] == CONTENT[start : start + size]
        elif step == "find":
            assert data.find(MARK, start) == CONTENT.find(MARK, start)
        elif start < SIZE:
            window, begin = data.window(start, size)
            assert begin <= start and window == CONTENT[begin : begin + len(window)]
            assert begin + len(window) >= min(start + size, SIZE)
    assert data[:10] == CONTENT[:10] and data[SIZE - 9 :] == CONTENT[-9:] and len(data) == SIZE


def test_what_is_cut_off_in_the_meantime_is_zeros(tmp_path: Path) -> None:
    """If it were mapped, nsqd would end with SIGBUS."""
    path = tmp_path / "cut"
    path.write_bytes(CONTENT)
    with path.open("rb", buffering=0) as file:
        data = FileBytes(file.fileno(), SIZE)
        os.truncate(path, 10_000)
        assert data[9_000:20_000] == CONTENT[9_000:10_000] + bytes(10_000)
        assert data.find(MARK, 262_000) == -1


def unreadable_from(bad: int) -> Callable[..., Any]:
    """The disk cannot read the sector in which this byte of a log is, nor what follows."""

    def instead(name: str, path: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name != "pread" or not path.endswith(".log"):
            return real(*arguments)
        fd, size, offset = arguments
        if offset >= bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, min(size, bad - offset), offset)

    return instead


def write_log(directory: Path, count: int) -> Path:
    written = TopicLog(directory, TOPIC, 10_000_000, pytest.fail)
    for seq in range(count):
        append_to(written, make_batch(seq, b"%0100d" % seq))
    close_descriptors(directory)
    (path,) = directory.glob("*.log")
    return path


def test_a_start_says_what_it_cannot_read_and_changes_nothing(directory: Path) -> None:
    world = World()
    log = write_log(directory, 100)
    before = log.read_bytes()
    refusal = rf"failed to read topic {TOPIC} - .*Input/output error at byte 4096: '{log}'"
    with watched(directory, unreadable_from(4096)), pytest.raises(StartError, match=refusal):
        start_broker(world, directory)
    close_descriptors(directory)
    assert log.read_bytes() == before
    assert start_broker(world, directory).topics[TOPIC].next_seq == 100


def test_a_walk_keeps_its_file_open(tmp_path: Path) -> None:
    """nsqd may have too few descriptors, and close files that nothing uses."""
    file = LogFile.open(write_log(tmp_path, 3000))
    file.mark_clean()

    def close_and_read(name: str, path: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name == "pread":
            OPEN_FILES.make_room()
        return real(*arguments)

    with watched(tmp_path, close_and_read):
        recover_file(file, is_last=True)
    assert file.end_seq == 3000
    file.close()
