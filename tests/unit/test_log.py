"""The log of a topic: its files, reading from anywhere, what a failing disk leaves behind."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqd_py.batch import Batch
from nsqd_py.diskqueue.files import LogFile, log_file_name, parse_log_file_name
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES
from nsqd_py.diskqueue.recovery import recover_file
from tests.unit.fakes import close_descriptors, make_batch, messages_of

TOPIC = "orders"


class Disk:
    """A log in a directory, and what is read of it by others."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.damage: list[str] = []
        self.log = self.new_log()
        self.written: list[tuple[int, bytes]] = []

    def new_log(self, max_file_bytes: int = 1 << 20) -> TopicLog:
        self.log = TopicLog(self.directory, TOPIC, max_file_bytes, self.damage.append)
        return self.log

    def batch(self, *messages: bytes) -> Batch:
        return make_batch(self.log.next_seq, *messages)

    def append(self, *messages: bytes) -> Batch:
        batch = self.batch(*messages)
        self.log.append([batch])
        self.written += messages_of([batch])
        return batch

    def paths(self) -> list[Path]:
        return sorted(self.directory.glob("*.log"))

    def read_all(self, seq: int = 0) -> list[tuple[int, bytes]]:
        """All messages from `seq` on, in as many reads as it takes."""
        messages = []
        while chunk := self.log.read(seq):
            messages += [(number, body) for number, body in messages_of(chunk) if number >= seq]
            assert chunk[-1].end_seq > seq
            seq = chunk[-1].end_seq
        return messages

    def reopen(self) -> None:
        """As after a crash."""
        close_descriptors(self.directory)
        self.new_log()
        paths = self.paths()
        for path in paths:
            is_last = path == paths[-1]
            self.log.adopt(recover_file(LogFile.open(path), is_last=is_last), is_last=is_last)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    yield Disk(tmp_path)
    close_descriptors(tmp_path)


def never(low: int, high: int) -> bool:
    return False


# --- names


def test_file_names() -> None:
    assert log_file_name("a.b", 12) == "a.b.00000000000000000012.log"
    assert parse_log_file_name("a.b.00000000000000000012.log") == ("a.b", 12)
    topic_like_a_file = log_file_name("x.00000000000000000001.log", 7)
    assert parse_log_file_name(topic_like_a_file) == ("x.00000000000000000001.log", 7)


@pytest.mark.parametrize("name", ["a.log", "a.12.log", "a.00000000000000000012.log.damaged", "a.cursor", "nsqd.dat"])
def test_other_file_names(name: str) -> None:
    assert parse_log_file_name(name) is None


# --- append and read


def test_an_empty_log(disk: Disk) -> None:
    assert disk.log.read(0) == []
    assert (disk.log.next_seq, disk.log.first_seq, disk.log.file_count) == (0, 0, 0)
    assert disk.paths() == []


def test_what_was_written_is_read_from_any_number(disk: Disk) -> None:
    for i in range(20):
        disk.append(*[b"%d-%d" % (i, j) for j in range(3)])
    for seq in range(60):
        assert disk.read_all(seq) == disk.written[seq:]
    assert disk.log.read(60) == []
    assert disk.log.next_seq == 60


def test_a_batch_comes_back_as_it_was(disk: Disk) -> None:
    batch = make_batch(0, b"one", b"three", due_ns=99)
    disk.log.append([batch])
    (read,) = disk.log.read(1)
    assert read is not batch
    for field in ("first_seq", "base_id", "timestamp_ns", "due_ns", "count", "stride", "body"):
        assert getattr(read, field) == getattr(batch, field)


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


def test_a_batch_larger_than_a_file_gets_one_of_its_own(disk: Disk) -> None:
    disk.new_log(max_file_bytes=1_000)
    disk.append(b"small")
    disk.append(b"x" * 5_000)
    disk.append(b"small again")
    assert disk.log.file_count == 3
    assert disk.read_all() == disk.written


def test_several_batches_in_one_write(disk: Disk) -> None:
    batches = [make_batch(i, b"%d" % i) for i in range(700)]  # more buffers than one call takes
    disk.log.append(batches)
    assert disk.read_all() == messages_of(batches)
    assert disk.log.used_id == batches[-1].base_id


def test_large_bodies_are_read_in_chunks(disk: Disk) -> None:
    for i in range(8):
        disk.append(bytes([i]) * 400_000)
    disk.append(b"y" * 3_000_000)
    disk.append(b"z")
    for seq in (0, 3, 7, 8, 9):
        assert disk.read_all(seq) == disk.written[seq:]
    assert len(disk.log.read(0)) < 8


def test_readers_at_one_place_share_a_chunk(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(20):
        disk.append(b"%d" % i)
    reads: list[int] = []
    real = os.pread

    def count(fd: int, size: int, offset: int) -> bytes:
        reads.append(offset)
        return real(fd, size, offset)

    monkeypatch.setattr(os, "pread", count)
    first = disk.log.read(3)
    assert disk.log.read(15) is first
    assert disk.log.read(3) is first
    assert len(reads) == 1


def test_a_shared_chunk_does_not_hide_what_was_appended_since(disk: Disk) -> None:
    disk.append(b"one")
    disk.log.read(0)
    disk.append(b"two")
    assert disk.read_all(1) == [(1, b"two")]
    assert disk.read_all(0) == [(0, b"one"), (1, b"two")]


# --- files that nobody needs


def fill(disk: Disk, files: int) -> None:
    """So many files of two messages each."""
    disk.new_log(max_file_bytes=FILE_HEADER_BYTES + 2 * (RECORD_HEADER_BYTES + 104))
    for i in range(2 * files):
        disk.append(b"%04d" % i * 25)
    assert disk.log.file_count == files


def test_the_last_file_is_never_dropped(disk: Disk) -> None:
    fill(disk, 3)
    assert disk.log.drop_unneeded(never) == 2
    assert disk.read_all() == disk.written[4:]
    assert disk.log.drop_unneeded(never) == 0
    assert disk.log.first_seq == 4


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


def test_nobody_is_asked_about_the_wrong_messages(disk: Disk) -> None:
    fill(disk, 3)
    asked: list[tuple[int, int]] = []
    disk.log.drop_unneeded(lambda low, high: asked.append((low, high)) is None)
    assert asked == [(0, 2), (2, 4)]


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


def test_roll_lets_the_last_file_go(disk: Disk) -> None:
    disk.append(b"one")
    disk.log.roll()
    assert disk.log.drop_unneeded(never) == 1
    assert disk.log.read(0) == []
    disk.append(b"two")
    assert disk.read_all() == [(1, b"two")]
    disk.reopen()
    assert disk.log.next_seq == 2
    assert disk.log.used_id == 0x1000 + 1


# --- a disk that fails


def short_pwrite(keep: int) -> Callable[..., int]:
    """A write that takes only the first `keep` bytes."""
    real = os.pwrite
    return lambda fd, data, offset: real(fd, data[:keep], offset)


def short_pwritev(keep: int) -> Callable[..., int]:
    real = os.pwrite
    return lambda fd, buffers, offset: real(fd, b"".join(buffers)[:keep], offset)


def refuse(*_: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("size", [10, 100_000], ids=["pwrite", "pwritev"])
@pytest.mark.parametrize("keep", [None, 0, 1, 30, RECORD_HEADER_BYTES, RECORD_HEADER_BYTES + 8, 100])
def test_a_failed_write_leaves_the_log_as_it_was(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, size: int, keep: int | None
) -> None:
    disk.append(b"before")
    next_seq, used_id = disk.log.next_seq, disk.log.used_id
    failing = [make_batch(1, b"f" * size), make_batch(2, b"g" * size)]
    with monkeypatch.context() as patch:
        writev = refuse if keep is None else short_pwritev(keep)
        patch.setattr(os, "pwrite", refuse if keep is None else short_pwrite(keep))
        patch.setattr(os, "pwritev", writev)
        with pytest.raises(OSError) as caught:
            disk.log.append(failing)
    assert caught.value.errno == errno.ENOSPC
    assert (disk.log.next_seq, disk.log.used_id) == (next_seq, used_id)
    assert disk.read_all() == disk.written

    disk.append(b"after", b"and more")
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
    kept = disk.written[2:] if with_spare else disk.written[:]
    before = len(os.listdir("/proc/self/fd"))
    is_needed_to_append = call in ("open", "pwrite") or (call == "rename" and with_spare)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        if is_needed_to_append:
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                disk.log.append([disk.batch(b"x" * 100)])
            assert len(os.listdir("/proc/self/fd")) == before
        else:
            disk.append(b"x" * 100)
            kept = [*kept, disk.written[-1]]
    assert disk.read_all() == kept
    disk.append(b"after")
    kept = [*kept, disk.written[-1]]
    assert disk.read_all() == kept
    disk.reopen()
    assert disk.read_all() == kept


def test_a_failed_read_says_so_and_can_be_tried_again(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.append(b"one")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", refuse)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            disk.log.read(0)
    assert disk.read_all() == disk.written


# --- damage that comes while it runs

FIELDS = {"magic": 0, "length": 4, "length, high": 7, "checksum": 8, "version": 12, "first_seq": 16, "count": 48, "body": 58}


@pytest.mark.parametrize("place", FIELDS.values(), ids=FIELDS.keys())
@pytest.mark.parametrize("victim", [0, 5, 9])
def test_only_the_damaged_record_is_lost(disk: Disk, place: int, victim: int) -> None:
    for i in range(10):
        disk.append(b"message %d" % i)
    offset = FILE_HEADER_BYTES + victim * (RECORD_HEADER_BYTES + 4 + len(b"message 0")) + place
    flip(disk.paths()[0], offset, 0x40)
    expected = [message for message in disk.written if message[0] != victim]
    for seq in range(10):
        assert disk.read_all(seq) == [message for message in expected if message[0] >= seq]
    assert disk.damage


def test_damage_is_counted_once_and_kept_aside(disk: Disk) -> None:
    for i in range(3):
        disk.append(b"message %d" % i)
    record_bytes = RECORD_HEADER_BYTES + 4 + len(b"message 0")
    flip(disk.paths()[0], FILE_HEADER_BYTES + record_bytes + 60, 0xFF)
    for _ in range(3):
        assert [seq for seq, _ in disk.read_all()] == [0, 2]
        disk.log._chunks.clear()  # readers that come later than chunks are kept
    assert disk.log.damaged_bytes == record_bytes
    (aside,) = disk.directory.glob("*.damaged")
    assert len(aside.read_bytes()) == record_bytes


def flip(path: Path, offset: int, bits: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        (old,) = file.read(1)
        file.seek(offset)
        file.write(bytes([old ^ bits]))


# --- syncing and the end


def test_what_no_sync_has_covered(disk: Disk) -> None:
    fill(disk, 2)
    descriptors = disk.log.take_unsynced()
    names = sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in descriptors)
    assert names == sorted(map(str, [disk.directory, *disk.paths()]))
    for fd in descriptors:
        os.close(fd)
    assert disk.log.take_unsynced() == []
    disk.append(b"z")
    assert disk.log.file_count == 3
    assert len(taken := disk.log.take_unsynced()) == 2  # the new file and the directory
    for fd in taken:
        os.close(fd)
    disk.log.sync_failed()
    assert disk.paths()[-1] in {Path(os.readlink(f"/proc/self/fd/{fd}")) for fd in disk.log.take_unsynced()}


def test_descriptors_that_run_out_are_not_leaked(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(disk, 3)
    before = len(os.listdir("/proc/self/fd"))
    real = os.dup
    calls: list[int] = []

    def dup(fd: int) -> int:
        calls.append(fd)
        if len(calls) == 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(fd)

    monkeypatch.setattr(os, "dup", dup)
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        disk.log.take_unsynced()
    assert len(os.listdir("/proc/self/fd")) == before


def test_close_gives_back_what_was_allocated(disk: Disk) -> None:
    disk.append(b"one")
    (path,) = disk.paths()
    assert path.stat().st_size > 10_000
    disk.log.close()
    assert path.stat().st_size == FILE_HEADER_BYTES + RECORD_HEADER_BYTES + 4 + 3


def test_close_and_remove_take_the_spare_with_them(disk: Disk) -> None:
    fill(disk, 3)
    disk.log.drop_unneeded(never)
    disk.log.close()
    assert [path.name for path in disk.directory.iterdir()] == [log_file_name(TOPIC, 4)]
    disk.reopen()
    disk.log.remove()
    assert list(disk.directory.iterdir()) == []
