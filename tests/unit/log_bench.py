"""The log of a topic in a test, and what is read of it by others."""

from __future__ import annotations

from pathlib import Path

from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES
from nsqd_py.diskqueue.recovery import recover_file
from nsqd_py.diskqueue.syncing import sync_and_release, sync_directories
from nsqd_py.protocol.batch import Batch
from tests.unit.fakes import close_descriptors, make_batch, messages_of

TOPIC = "orders"


def append_to(log: TopicLog, *batches: Batch) -> None:
    size = sum(RECORD_HEADER_BYTES + len(batch.body) for batch in batches)
    if not log.append_at_once([*batches], size):
        appending = log.begin_append([*batches])
        try:
            appending.write()
        finally:
            log.end_append(appending)


def sync_log(log: TopicLog) -> list[Path]:
    """Sync the log, and return what was synced."""
    taken = log.syncs.take()
    paths = [unsynced.file.path if unsynced.file is not None else unsynced.directory for unsynced in taken]
    sync_and_release(taken)
    assert log.note_synced(taken) is None
    return paths


def close_log(log: TopicLog) -> None:
    """Sync and close, as a clean stop does."""
    taken = log.syncs.take()
    log.sync_to_end(taken)
    sync_directories(unsynced for unsynced in taken if unsynced.file is None)
    log.end(taken)


def flip(path: Path, offset: int, bits: int = 0x10) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= bits
    path.write_bytes(data)


def read_all(log: TopicLog, seq: int = 0) -> list[tuple[int, bytes]]:
    """(sequence number, body) of all messages from `seq` on."""
    messages = []
    while chunk := log.read(seq):
        messages += [(number, body) for number, body in messages_of(chunk) if number >= seq]
        assert chunk[-1].end_seq > seq
        seq = chunk[-1].end_seq
    return messages


def adopt(directory: Path, max_file_bytes: int, damage: list[str]) -> TopicLog:
    """A log made of the files that are there."""
    log = TopicLog(directory, TOPIC, max_file_bytes, damage.append)
    paths = sorted(directory.glob("*.log"))
    for path in paths:
        is_last = path == paths[-1]
        log.adopt(recover_file(LogFile.open(path), is_last=is_last), is_last=is_last)
    return log


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
        append_to(self.log, batch)
        self.written += messages_of([batch])
        return batch

    def paths(self) -> list[Path]:
        return sorted(self.directory.glob("*.log"))

    def read_all(self, seq: int = 0) -> list[tuple[int, bytes]]:
        """All messages from `seq` on, in as many reads as it takes."""
        return read_all(self.log, seq)

    def reopen(self) -> None:
        """As after a crash."""
        close_descriptors(self.directory)
        self.log = adopt(self.directory, 1 << 20, self.damage)


def clear(directory: Path) -> None:
    """Begin again, with an empty directory."""
    close_descriptors(directory)
    for path in directory.iterdir():
        path.unlink()


def never(low: int, high: int) -> bool:
    return False


def fill(disk: Disk, files: int) -> None:
    """So many files of two messages each."""
    disk.new_log(max_file_bytes=FILE_HEADER_BYTES + 2 * (RECORD_HEADER_BYTES + 104))
    for i in range(2 * files):
        disk.append(b"%04d" % i * 25)
    assert len(disk.log.files) == files
