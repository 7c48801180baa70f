"""The log of a topic: its files, reading from anywhere."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nsqd_py.diskqueue.files.log_file import LogFile, log_file_name, parse_log_file_name, run_to_end
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES, FileHeader
from tests.unit.fakes import make_batch, refuse
from tests.unit.log_bench import TOPIC, Disk, append_to, close_log, fill, flip, never, sync_log

# --- names


@pytest.mark.parametrize(
    "name", ["a.log", "a.12.log", "a.00000000000000000012.log.damaged", "a.cursor", "nsqd.dat"]
)
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
    # Allocated space is given back.
    assert sizes == [FILE_HEADER_BYTES + per_file * record_bytes] * len(sizes)
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


def test_a_thread_that_is_late_does_not_remove_the_next_spare_file(disk: Disk) -> None:
    """The next new file could not be made from it, and a publish was refused."""
    fill(disk, 3)
    late = []
    disk.log._in_background = late.append
    disk.log.drop_unneeded(never)
    disk.log.free_spare()
    for _ in range(2):
        disk.append(b"x" * 100)
    disk.log.drop_unneeded(never)
    spare = disk.directory / f"{TOPIC}.spare"
    assert spare.exists()
    for work in late:
        work()
    assert spare.exists()
    disk.log.free_spare()
    late[-1]()
    assert not [path for path in disk.directory.iterdir() if "spare" in path.name]


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
        monkeypatch.setattr(disk.log._spare, "_path", disk.directory / "there is one")
    closed = []
    renamed = []
    real_close, real_rename = os.close, os.rename

    def rename(source: str, target: str) -> None:
        renamed.append(source)
        if len(renamed) >= first_failure:
            raise OSError(errno.EIO, "input/output error")
        real_rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", lambda fd: closed.append(fd) or real_close(fd))
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


# --- a disk that fails


def short_write(keep: int) -> Callable[..., int]:
    """A write, of one or several buffers, that takes only the first `keep` bytes."""
    real = os.pwrite
    return lambda fd, data, offset: real(
        fd, (data if isinstance(data, bytes) else b"".join(data))[:keep], offset
    )


@pytest.mark.parametrize("size", [10, 100_000, 3_000_000], ids=["pwrite", "pwritev", "several calls"])
@pytest.mark.parametrize("keep", [None, 0, 1, 30, RECORD_HEADER_BYTES, RECORD_HEADER_BYTES + 8, 100])
def test_a_failed_write_leaves_the_log_as_it_was(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, size: int, keep: int | None
) -> None:
    disk.append(b"before")
    next_seq, used_id = disk.log.next_seq, disk.log.used_id
    failing = [make_batch(1, b"f" * size), make_batch(2, b"g" * size)]
    with monkeypatch.context() as patch:
        write = refuse if keep is None else short_write(keep)
        for name in ("pwrite", "pwritev"):
            patch.setattr(os, name, write)
        with pytest.raises(OSError) as caught:
            append_to(disk.log, *failing)
    assert caught.value.errno == errno.ENOSPC
    assert (disk.log.next_seq, disk.log.used_id) == (next_seq, used_id)
    assert disk.read_all() == disk.written

    disk.append(b"after" * size, b"and more")
    assert disk.read_all() == disk.written
    disk.reopen()
    assert disk.read_all() == disk.written
    assert disk.log.next_seq == 3
    disk.append(b"in the end")
    assert disk.read_all() == disk.written
    assert disk.damage == []


@pytest.mark.parametrize("with_spare", [False, True])
@pytest.mark.parametrize("call", ["open", "pwrite", "rename", "posix_fallocate"])
def test_a_new_file_that_cannot_be_made(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, call: str, with_spare: bool
) -> None:
    fill(disk, 2)
    if with_spare:
        assert disk.log.drop_unneeded(never) == 1
    del disk.written[: 2 * with_spare]
    before = len(os.listdir("/proc/self/fd"))
    is_needed_to_append = call in ("open", "pwrite") or (call == "rename" and with_spare)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        if is_needed_to_append:
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                append_to(disk.log, disk.batch(b"x" * 100))
            assert len(os.listdir("/proc/self/fd")) == before
        else:
            disk.append(b"x" * 100)
    assert disk.read_all() == disk.written
    disk.append(b"after")
    assert disk.read_all() == disk.written
    disk.reopen()
    assert disk.read_all() == disk.written


# --- damage that comes while it runs


@pytest.mark.parametrize(
    "field",
    ["magic 0", "length 4", "length 7", "checksum 8", "version 12", "first_seq 16", "count 48", "body 58"],
)
@pytest.mark.parametrize("victim", [0, 5, 9])
def test_only_the_damaged_record_is_lost(disk: Disk, field: str, victim: int) -> None:
    for i in range(10):
        disk.append(b"message %d" % i)
    place = int(field.split()[1])
    flip(
        disk.paths()[0],
        FILE_HEADER_BYTES + victim * (RECORD_HEADER_BYTES + 4 + len(b"message 0")) + place,
        0x40,
    )
    expected = [message for message in disk.written if message[0] != victim]
    for seq in range(10):
        assert disk.read_all(seq) == [message for message in expected if message[0] >= seq]
    assert disk.damage
