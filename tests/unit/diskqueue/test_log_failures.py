"""The log of a topic on a disk that fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES
from tests.unit.fakes import make_batch, refuse
from tests.unit.log_bench import Disk, append_to, fill, flip, never

# --- a disk that fails


def short_pwrite(keep: int) -> Callable[..., int]:
    """A write that takes only the first `keep` bytes."""
    real = os.pwrite
    return lambda fd, data, offset: real(fd, data[:keep], offset)


def short_pwritev(keep: int) -> Callable[..., int]:
    real = os.pwrite
    return lambda fd, buffers, offset: real(fd, b"".join(buffers)[:keep], offset)


@pytest.mark.parametrize("size", [10, 100_000, 3_000_000], ids=["pwrite", "pwritev", "several calls"])
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
def test_a_new_file_that_cannot_be_made(disk: Disk, monkeypatch: pytest.MonkeyPatch, call: str, with_spare: bool) -> None:
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
                append_to(disk.log, disk.batch(b"x" * 100))
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
