"""The log of a topic: its files, reading from anywhere."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from nsqd_py.diskqueue.files import LogFile, log_file_name, parse_log_file_name, run_to_end
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES, FileHeader
from tests.unit.log_bench import TOPIC, Disk, close_log, fill, never, sync_log

# --- names


@pytest.mark.parametrize("name", ["a.log", "a.12.log", "a.00000000000000000012.log.damaged", "a.cursor", "nsqd.dat"])
def test_other_file_names(name: str) -> None:
    assert parse_log_file_name(name) is None


# --- append and read


def test_files_roll_at_their_size(disk: Disk) -> None:
    disk.new_log(max_file_bytes=1_000)
    for i in range(30):
        disk.append(b"%03d" % i * 30)
    record_bytes = RECORD_HEADER_BYTES + 4 + 90
    per_file = (1_000 - FILE_HEADER_BYTES) // record_bytes
    firsts = [parse_log_file_name(path.name) for path in disk.paths()]
    assert firsts == [(TOPIC, seq) for seq in range(0, 30, per_file)]
    sizes = [path.stat().st_size for path in disk.paths()[:-1]]
    assert sizes == [FILE_HEADER_BYTES + per_file * record_bytes] * len(sizes)  # allocated space is given back
    assert disk.read_all() == disk.written


def test_a_shared_chunk_does_not_hide_what_was_appended_since(disk: Disk) -> None:
    disk.append(b"one")
    disk.log.read(0)
    disk.append(b"two")
    assert disk.read_all(1) == [(1, b"two")]
    assert disk.read_all(0) == [(0, b"one"), (1, b"two")]


# --- files that nobody needs


def test_files_in_the_middle_are_dropped(disk: Disk) -> None:
    fill(disk, 6)
    disk.log.read(4)  # a chunk of what goes
    assert disk.log.drop_unneeded(lambda low, high: low in (0, 8)) == 3
    assert [parse_log_file_name(path.name) for path in disk.paths()] == [(TOPIC, 0), (TOPIC, 8), (TOPIC, 10)]
    assert disk.read_all(0) == disk.written[:2] + disk.written[8:]
    for seq in range(2, 9):
        assert disk.log.read(seq)[0].first_seq == 8
    disk.append(b"goes on")
    assert disk.read_all(10) == disk.written[10:]


def test_a_dropped_file_becomes_the_next_one(disk: Disk) -> None:
    fill(disk, 3)
    inode = disk.paths()[0].stat().st_ino
    assert disk.log.drop_unneeded(never) == 2
    assert (disk.directory / f"{TOPIC}.spare").stat().st_ino == inode
    disk.append(b"x" * 100)
    assert disk.paths()[-1].stat().st_ino == inode
    assert not (disk.directory / f"{TOPIC}.spare").exists()
    assert disk.read_all(4) == disk.written[4:]


@pytest.mark.parametrize("has_spare", [False, True])
def test_a_file_that_is_there_is_not_written_over(tmp_path: Path, has_spare: bool) -> None:
    """The log does not know it: an operator has put it there, say."""
    path, spare = tmp_path / log_file_name(TOPIC, 5), tmp_path / f"{TOPIC}.spare"
    path.write_bytes(b"kept")
    spare.write_bytes(b"used")
    with pytest.raises(FileExistsError):
        run_to_end(LogFile.creating(path, FileHeader(1, 5, 0), spare if has_spare else None))
    assert (path.read_bytes(), spare.read_bytes()) == (b"kept", b"used")


@pytest.mark.parametrize("first_failure", [1, 2, 3])
@pytest.mark.parametrize("has_spare", [False, True])
def test_a_drop_that_fails_can_be_tried_again(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, first_failure: int, has_spare: bool
) -> None:
    """A descriptor that is closed twice may be somebody's socket by then."""
    fill(disk, 4)
    if has_spare:
        monkeypatch.setattr(disk.log, "_spare", disk.directory / "there is one")
    closed: list[int] = []
    renamed: list[str] = []
    real_close, real_rename = os.close, os.rename

    def close(fd: int) -> None:
        closed.append(fd)
        real_close(fd)

    def rename(source: str, target: str) -> None:
        renamed.append(source)
        if len(renamed) >= first_failure:
            raise OSError(errno.EIO, "input/output error")
        real_rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", close)
        patch.setattr(os, "rename", rename)
        with pytest.raises(OSError, match="input/output"):
            disk.log.drop_unneeded(never)
        patch.setattr(os, "rename", real_rename)
        disk.log.drop_unneeded(never)
    assert len(closed) == len(set(closed))
    assert disk.paths()[1:] == []
    assert disk.read_all() == disk.written[6:]


# --- syncing and the end


def test_what_no_sync_has_covered(disk: Disk) -> None:
    fill(disk, 2)
    assert sorted(sync_log(disk.log)) == sorted([disk.directory, *disk.paths()])
    assert sync_log(disk.log) == []
    disk.append(b"z")
    assert len(disk.log.files) == 3
    assert sync_log(disk.log) == [disk.paths()[-1], disk.directory]


def test_close_and_remove_take_the_spare_with_them(disk: Disk) -> None:
    fill(disk, 3)
    disk.log.drop_unneeded(never)
    close_log(disk.log)
    assert [path.name for path in disk.directory.iterdir()] == [log_file_name(TOPIC, 4)]
    disk.reopen()
    disk.log.remove()
    assert list(disk.directory.iterdir()) == []
