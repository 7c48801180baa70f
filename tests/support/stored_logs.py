"""A store of a test: the bytes of log files in memory, for the logs of a broker or of a test."""

from __future__ import annotations

import errno
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nsqd_py.diskqueue.files.log_file import LogFile, parse_log_file_name
from nsqd_py.diskqueue.history import LogHistory, StoredSegment
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, decode_header
from nsqd_py.diskqueue.recovery import recover_file
from tests.unit.fakes import FakeThreadPool

AWAY = "the store does not answer: it is away"
LOST = "the store has lost a file"


class Segment(NamedTuple):
    """As `nsqd_py.store.layout.StoredFile`."""

    name: str
    first_seq: int
    end_seq: int
    size_bytes: int
    salt: int
    first_ns: int
    first_id: int
    last_id: int
    last_ns: int
    is_whole: bool = True


class StoredLog:
    """The stored files of one log, as a `History`.

    contents  their bytes by name
    is_away   True: every read fails
    lost      names of the files that the store does not have any more
    reads     (name, offset, size) of each read
    """

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.is_away = False
        self.lost: set[str] = set()
        self.reads: list[tuple[str, int, int]] = []
        self._segments: Sequence[StoredSegment] = ()

    def segments(self) -> Sequence[StoredSegment]:
        return self._segments

    def read_at(self, name: str, size_bytes: int, offset: int, size: int) -> bytes:
        self.reads.append((name, offset, size))
        if self.is_away:
            raise OSError(errno.EIO, AWAY)
        if name in self.lost:
            raise FileNotFoundError(errno.ENOENT, f"{LOST}: {name} is missing")
        assert offset >= 0
        assert 0 < size <= size_bytes - offset
        return self.contents[name][offset : offset + size]

    def put(self, path: Path) -> Segment:
        """Store a log file as it is now."""
        file = LogFile.open(path)
        try:
            recovered = recover_file(file, is_last=True)
            content = path.read_bytes()[: file.end_offset]
        finally:
            file.close()
        first = decode_header(content, FILE_HEADER_BYTES)
        segment = Segment(
            f"stored-{path.name}-{file.salt:08x}",
            file.first_seq,
            file.end_seq,
            len(content),
            file.salt,
            first.timestamp_ns,
            first.base_id,
            recovered.used_id,
            file.newest_ns,
            file.is_whole,
        )
        self.contents[segment.name] = content
        self._segments = sorted([*self._segments, segment], key=lambda each: each.first_seq)
        return segment

    def put_file(self, log: TopicLog, file: LogFile) -> Segment:
        """Store a file of a log."""
        assert file in log.files
        assert file.end_offset > FILE_HEADER_BYTES
        return self.put(file.path)

    def flip(self, name: str, offset: int) -> None:
        data = bytearray(self.contents[name])
        data[offset] ^= 0x10
        self.contents[name] = bytes(data)


class MemoryStore:
    """The stored files of all topics, as the `Store` of a broker. Its threads are greenlets of the test."""

    def __init__(self) -> None:
        self.threadpool: Any = FakeThreadPool()
        self.logs: dict[str, StoredLog] = defaultdict(StoredLog)

    def attach(self, topic_name: str, log: TopicLog) -> None:
        log.history = LogHistory(self.logs[topic_name], log.damage)
        log.may_drop = lambda file: self.has(topic_name, file)

    def put_all(self, directory: Path, matches: Callable[[int], bool] = lambda _seq: True) -> None:
        """Store the log files of a directory whose first sequence numbers match."""
        for path in sorted(directory.glob("*.log")):
            self._put(path, matches)

    def _put(self, path: Path, matches: Callable[[int], bool]) -> None:
        parsed = parse_log_file_name(path.name)
        assert parsed is not None
        topic, first_seq = parsed
        if matches(first_seq) and not any(
            each.first_seq == first_seq for each in self.logs[topic].segments()
        ):
            self.logs[topic].put(path)

    def has(self, topic_name: str, file: LogFile) -> bool:
        return any(each.first_seq == file.first_seq for each in self.logs[topic_name].segments())

    def check_answers(self) -> None:
        """These files answer at once."""

    def set_away(self, is_away: bool) -> None:
        for log in self.logs.values():
            log.is_away = is_away


def numbers(segments: Iterable[StoredSegment]) -> list[tuple[int, int]]:
    """The ranges of stored files."""
    return [(segment.first_seq, segment.end_seq) for segment in segments]
