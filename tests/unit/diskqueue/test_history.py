"""Files of a log that are only in a store: what they cost to find something in, and what is damaged in them."""

from __future__ import annotations

import pytest

from nsqd_py.diskqueue import history
from nsqd_py.diskqueue.history import HistoryFile, LogHistory
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES
from tests.support.stored_logs import AWAY, StoredLog
from tests.unit.fakes import messages_of
from tests.unit.log_bench import Disk, append_to, fill

RECORD_BYTES = RECORD_HEADER_BYTES + 104  # of the messages of `fill`


def store_all_but_the_last(disk: Disk) -> StoredLog:
    """Store the files, and drop them from the disk."""
    stored = StoredLog()
    for file in disk.log.files[:-1]:
        stored.put_file(disk.log, file)
    disk.log.history = LogHistory(stored, disk.log.damage)
    assert disk.log.drop_unneeded(lambda _low, _high: False) == len(stored.segments())
    return stored


def test_a_message_is_found_with_few_reads(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "BLOCK_BYTES", 4096)
    disk.new_log(max_file_bytes=FILE_HEADER_BYTES + 3000 * RECORD_BYTES)
    for seq in range(3001):
        append_to(disk.log, disk.batch(b"%05d" % seq * 20))
    stored = store_all_but_the_last(disk)
    (segment,) = stored.segments()
    file = HistoryFile(segment, stored.read_at)
    offset = file.offset_before(2000)
    assert FILE_HEADER_BYTES + 1950 * RECORD_BYTES < offset <= FILE_HEADER_BYTES + 2000 * RECORD_BYTES
    blocks = {place // 4096 for _, place, _ in stored.reads}
    assert file.block_count > 100
    assert len(blocks) <= 8
    stored.reads.clear()
    assert file.offset_before(2001) <= FILE_HEADER_BYTES + 2001 * RECORD_BYTES
    assert not stored.reads
    assert file.offset_before(0) == FILE_HEADER_BYTES


def test_a_reader_that_goes_on_searches_nothing(disk: Disk) -> None:
    fill(disk, 3)
    stored = store_all_but_the_last(disk)
    assert disk.read_all(2) == disk.written[2:]
    name = stored.segments()[1].name
    assert stored.reads == [(name, FILE_HEADER_BYTES, 2 * RECORD_BYTES)]


def test_damage_is_passed_over_and_reported_once(disk: Disk) -> None:
    fill(disk, 3)
    stored = store_all_but_the_last(disk)
    name = stored.segments()[0].name
    stored.flip(name, FILE_HEADER_BYTES + RECORD_BYTES + RECORD_HEADER_BYTES + 10)
    assert disk.read_all() == [pair for pair in disk.written if pair[0] != 1]
    disk.log.history.chunks.forget()
    assert disk.read_all(1) == disk.written[2:]
    start = FILE_HEADER_BYTES + RECORD_BYTES
    assert disk.damage == [f"{name}: {RECORD_BYTES} damaged bytes at {start} passed over"]
    assert disk.log.damage.bytes_found == RECORD_BYTES
    assert not list(disk.directory.glob("*.damaged"))


def test_damage_on_the_disk_is_read_from_the_store(disk: Disk) -> None:
    fill(disk, 2)
    stored = StoredLog()
    stored.put_file(disk.log, disk.log.files[0])
    path = disk.log.files[0].path
    data = bytearray(path.read_bytes())
    data[FILE_HEADER_BYTES + RECORD_BYTES + RECORD_HEADER_BYTES + 10] ^= 1
    path.write_bytes(data)
    assert dict(messages_of(disk.log.read(1))).get(1) is None
    disk.log.history = LogHistory(stored, disk.log.damage)
    assert disk.read_all() == disk.written


def test_a_store_that_is_away_is_an_error(disk: Disk) -> None:
    fill(disk, 2)
    stored = store_all_but_the_last(disk)
    stored.is_away = True
    for read in (
        lambda: disk.log.read(0),
        lambda: disk.log.seq_at(0),
        lambda: disk.log.seq_after_id(0),
        lambda: disk.log.read_retained(0, 100, lambda work: work()),
    ):
        with pytest.raises(OSError, match=AWAY):
            read()
    assert disk.read_all(2) == disk.written[2:]
    assert disk.log.earliest_seq == 0


def test_a_file_that_may_not_be_dropped_stays(disk: Disk) -> None:
    fill(disk, 3)
    kept = disk.log.files[1]
    disk.log.may_drop = lambda file: file is not kept
    assert disk.log.drop_unneeded(lambda _low, _high: False) == 1
    assert kept in disk.log.files
    disk.log.may_drop = lambda _file: True
    assert disk.log.drop_unneeded(lambda _low, _high: False) == 1


def test_nothing_of_a_deleted_log_is_remembered(disk: Disk) -> None:
    fill(disk, 2)
    store_all_but_the_last(disk)
    disk.log.read(0)
    chunks = disk.log.history.chunks
    assert chunks.memory_bytes
    disk.log.remove()
    assert not chunks.memory_bytes
    assert disk.log.history is None


def test_files_that_lack_messages_are_not_whole(disk: Disk) -> None:
    fill(disk, 5)
    stored = store_all_but_the_last(disk)
    segments = list(stored.segments())
    log = disk.log
    segments[1] = segments[1]._replace(is_whole=False)
    stored._segments = segments
    assert log.earliest_seq == 4
    assert log.history.has_all(4, 8)
    assert not log.history.has_all(3, 8)
    assert not log.history.has_all(4, 9)
    assert log.not_stored([(0, 9)]) == [(8, 9)]
