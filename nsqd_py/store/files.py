"""The log files that the store has as objects of their own, and those that must go up.

A file goes up whole when it is sealed, or in part, at a base, while it still grows. What nsqd then does to its own file
(drops it, or replaces it by a sparse one) changes nothing in the store: the original has all messages, and the journals
say which are finished.
"""

from __future__ import annotations

import os
from bisect import bisect_left, insort
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from google_crc32c import extend

from nsqd_py.broker.services import Topic
from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.journals.ranges import SeqRanges
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.records import (
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    Damaged,
    Incomplete,
    decode_header,
)
from nsqd_py.feed.pieces import CHECKED_BYTES, OfferedFile, OfferedLog
from nsqd_py.protocol.message_ids import id_time_ns
from nsqd_py.runtime.private_files import open_file
from nsqd_py.runtime.threads import in_slices
from nsqd_py.server.options import NsqdOptions
from nsqd_py.store.layout import StoredFile
from nsqd_py.store.log_bytes import crc_of

# A file that grows goes up as an object at a base if at least this much of it is only in rounds.
PREFIX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Upload:
    """A log file that must go up, as it is now: its first `size_bytes`, with all messages before `end_seq`."""

    topic: Topic
    log: TopicLog
    file: LogFile
    size_bytes: int
    end_seq: int
    last_id: int
    last_ns: int
    is_sealed: bool

    @property
    def is_current(self) -> bool:
        """False if the file was dropped or replaced in the meantime: then another one may have its name."""
        return not self.topic.is_closed and self.file in self.log.files

    def describe(self, epoch: int) -> StoredFile:
        """Read the file, and return it as one of the store. May run in a thread. Raises OSError."""
        with open(self.file.path, "rb", opener=open_file) as file:
            front = file.read(min(self.size_bytes, FILE_HEADER_BYTES + RECORD_HEADER_BYTES))
            file.seek(0)
            crc = crc_of(file, self.size_bytes)
        first_id, first_ns = _first_in(front)
        return StoredFile(
            self.topic.name,
            self.file.first_seq,
            self.file.salt,
            self.size_bytes,
            crc,
            self.is_sealed,
            self.end_seq,
            first_id,
            self.last_id,
            first_ns,
            self.last_ns,
            epoch,
            self.file.is_whole,
        )


def _first_in(front: bytes) -> tuple[int, int]:
    """Return the id and the timestamp of the first message of a file, of which this is the beginning; zeros without one."""
    try:
        record = decode_header(front, FILE_HEADER_BYTES)
    except (Damaged, Incomplete):
        return 0, 0
    return record.base_id, record.timestamp_ns


class Replacing(NamedTuple):
    """A new version of a log file, which compaction has made.

    replaced    the stored files whose messages it has
    is_covered  True if sealed files have all of its messages, so that the store does not need it
    """

    replaced: list[StoredFile]
    is_covered: bool


class Retention(NamedTuple):
    """How long, and how much, the store keeps of a topic after all channels have finished it; 0 turns a rule off."""

    time_ns: int
    size_bytes: int

    def __bool__(self) -> bool:
        return bool(self.time_ns or self.size_bytes)

    @classmethod
    def of(cls, options: NsqdOptions, topic: str) -> Retention:
        """Return that of a topic: not less than nsqd itself keeps."""
        own_ns = options.retention_time_ns.of(topic)
        own_bytes = options.retention_bytes.of(topic)
        return cls(
            max(own_ns, options.store_retention_time_ns.of(topic)),
            max(own_bytes, options.store_retention_bytes.of(topic)),
        )

    def keeps(self, file: StoredFile, newer_bytes: int, now_ns: int, steady_ns: int) -> bool:
        """True if the file must stay; `newer_bytes` are those of the newer files.

        `now_ns` is the wall clock, `steady_ns` the clock of ids: the one that keeps more decides, so that setting a clock
        drops nothing too early.
        """
        age_ns = min(now_ns - file.last_ns, steady_ns - id_time_ns(file.last_id))
        is_young = self.time_ns > 0 and age_ns < self.time_ns
        return is_young or newer_bytes < self.size_bytes


def _has_messages(file: StoredFile) -> bool:
    return file.end_seq > file.first_seq


class _SealedRanges:
    """The messages of sealed files. A file that compaction has made of such files is covered by them.

    They are counted when somebody asks, since 100,000 files take 0.3 s: only sparse files that are not stored need it.
    """

    def __init__(self, files: Iterable[StoredFile]) -> None:
        self._files = list(files)
        self._ranges: SeqRanges | None = None

    def gaps(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Yield those of these messages that they lack (`high` not included), in rising order."""
        if self._ranges is None:
            self._ranges = SeqRanges(0)
            sealed = [each for each in self._files if each.is_sealed]
            self._ranges.add_all_missing((each.first_seq, each.end_seq) for each in sealed)
        return self._ranges.gaps(low, high)


@dataclass(slots=True)
class _Log:
    """The stored files of one log, by first sequence number.

    log         None until nsqd's own log is known
    topic       None until it was asked what must go up or stay
    first_seqs  the numbers of `files`, in rising order
    seen        the files of nsqd's log when it was last asked which must go up, and their number
    """

    log: TopicLog | None = None
    topic: Topic | None = None
    files: dict[int, StoredFile] = field(default_factory=dict)
    seen: tuple[list[LogFile], int] | None = None
    first_seqs: list[int] = field(default_factory=list)
    _readable: list[StoredFile] | None = None

    def add(self, file: StoredFile) -> StoredFile | None:
        """Add a file, and return the one that had its number."""
        before = self.files.get(file.first_seq)
        is_last = not self.first_seqs or file.first_seq > self.first_seqs[-1]
        self.files[file.first_seq] = file
        if before is None:
            insort(self.first_seqs, file.first_seq)
        if is_last and self._readable is not None and _has_messages(file):
            self._readable = [*self._readable, file]
        else:
            self._readable = None
        return before

    def remove(self, file: StoredFile) -> bool:
        """Remove a file; False if it is not there."""
        if self.files.get(file.first_seq) != file:
            return False
        del self.files[file.first_seq]
        del self.first_seqs[bisect_left(self.first_seqs, file.first_seq)]
        self._readable = None
        return True

    def readable(self) -> list[StoredFile]:
        """Return the files that have messages, in their order; another list after a change."""
        if self._readable is None:
            ordered = map(self.files.__getitem__, self.first_seqs)
            self._readable = [file for file in ordered if _has_messages(file)]
        return self._readable

    def sealed(self) -> _SealedRanges:
        """Return the messages of the files that are sealed now."""
        return _SealedRanges(self.files.values())

    def local(self, name: str) -> LogFile | None:
        """Return nsqd's file of this name."""
        files = []
        if self.log is not None:
            files = self.log.files
        return next((file for file in files if file.path.name == name), None)

    def has_seen(self, files: list[LogFile]) -> bool:
        """True if this list of nsqd's files has no new one since it was asked which must go up."""
        if self.seen is None:
            return False
        before, count = self.seen
        return before is files and count == len(files)

    def same(self, file: LogFile) -> StoredFile | None:
        """Return what the store has of a file of nsqd, in the version that nsqd has."""
        stored = self.files.get(file.first_seq)
        if stored is not None and stored.salt == file.salt:
            return stored
        return None

    def is_covered(self, file: LogFile, sealed: _SealedRanges) -> bool:
        """True if compaction has made the file of messages that the store has in sealed files.

        The store may have released some of these files, which no channel needed: their messages are not missing.
        """
        if file.is_whole or self.same(file) is not None:
            return False
        gaps = list(sealed.gaps(file.first_seq, file.end_seq))
        if gaps == [(file.first_seq, file.end_seq)]:
            return False
        return not any(self._is_needed(low, high) for low, high in gaps)

    def _is_needed(self, low: int, high: int) -> bool:
        return self.topic is None or self.topic.is_needed(low, high)

    def merged_into(self, file: LogFile) -> list[StoredFile]:
        """Return the stored files whose messages are in this one of nsqd: the older versions, and those merged into it."""
        low = bisect_left(self.first_seqs, file.first_seq)
        end_seq = max(file.end_seq, file.first_seq + 1)
        high = bisect_left(self.first_seqs, end_seq)
        within = map(self.files.__getitem__, self.first_seqs[low:high])
        return [stored for stored in within if stored.salt != file.salt]

    def end_of(self, file: LogFile, sealed: _SealedRanges) -> int:
        """Return the offset up to which the store has the messages of a file of nsqd."""
        stored = self.same(file)
        if stored is not None:
            return stored.size_bytes
        if self.is_covered(file, sealed):
            return file.end_offset
        return 0

    def has_sealed(self, file: LogFile) -> bool:
        """True if the store has all of a sealed file as an object."""
        stored = self.same(file)
        return stored is not None and stored.is_sealed


def _upload(topic: Topic, log: TopicLog, file: LogFile, following: LogFile | None) -> Upload:
    """Return a file of a log, which is sealed if another one follows it."""
    is_sealed = following is not None
    if following is not None:
        last_id = following.header.used_id
    else:
        last_id = log.used_id
    return Upload(topic, log, file, file.end_offset, file.end_seq, last_id, file.newest_ns, is_sealed)


class StoredFiles:
    """The log files of the store, by topic.

    size_bytes  of all of them
    unnamed     the names of those that no round that counts has named yet
    """

    def __init__(self, files: Iterable[StoredFile]) -> None:
        self._logs: dict[str, _Log] = {}
        self.unnamed: set[str] = set()
        self.size_bytes = 0
        for file in files:
            self.add(file)

    def __iter__(self) -> Iterator[StoredFile]:
        for log in self._logs.values():
            yield from log.files.values()

    def __contains__(self, file: StoredFile) -> bool:
        log = self._logs.get(file.topic)
        if log is None:
            return False
        return log.files.get(file.first_seq) == file

    def __len__(self) -> int:
        return sum(len(log.files) for log in self._logs.values())

    def local_file(self, file: StoredFile) -> tuple[TopicLog, LogFile] | None:
        """Return nsqd's own file that has the bytes of a stored one, and the log that it is in."""
        mine = self._logs.get(file.topic)
        if mine is None or mine.log is None:
            return None
        for each in mine.log.files:
            if mine.same(each) == file and each.end_offset >= file.size_bytes:
                return mine.log, each
        return None

    def of_file(self, topic: str, file: LogFile) -> StoredFile | None:
        """Return what the store has of a file of nsqd's log, in the version that nsqd has."""
        log = self._logs.get(topic)
        if log is not None:
            return log.same(file)
        return None

    def add(self, file: StoredFile) -> StoredFile | None:
        """Add a file, and return the one that it replaces."""
        log = self._logs.setdefault(file.topic, _Log())
        before = log.add(file)
        self.size_bytes += file.size_bytes
        if before is not None:
            self.size_bytes -= before.size_bytes
        return before if before != file else None

    def remove(self, file: StoredFile) -> None:
        """Forget a file."""
        if self._logs[file.topic].remove(file):
            self.size_bytes -= file.size_bytes

    def _of_log(self, topic: str, log: TopicLog | None) -> _Log | None:
        """Return what the store has of this log of a topic; None if it knows none, or another one."""
        mine = self._logs.get(topic)
        if mine is not None and mine.log is log:
            return mine
        return None

    def forget_replaced(self, topic: Topic) -> list[StoredFile]:
        """Return the stored files whose messages are in other files of nsqd that the store gets; forget them.

        They are older versions of these, or were merged into them, or are first parts of files that nsqd has no longer.
        """
        log = topic.log
        mine = self._of_log(topic.name, log)
        if log is None or mine is None:
            return []
        mine.topic = topic
        sealed = mine.sealed()
        found: list[StoredFile] = []
        for file in log.files:
            if not mine.is_covered(file, sealed):
                found += self._forget_all(mine.merged_into(file))
        local = {file.first_seq for file in log.files}
        stored = mine.files.values()
        first_parts = [each for each in stored if each.first_seq not in local and not each.is_sealed]
        return found + self._forget_all(first_parts)

    def _forget_all(self, files: list[StoredFile]) -> list[StoredFile]:
        for file in files:
            self.remove(file)
        return files

    def forget_removed(self, topic: str, first_seq: int, covered: Container[str]) -> list[StoredFile]:
        """Return what the store has of a file that nsqd has removed, if other files have its messages; forget it.

        covered  names of nsqd's files that the store does not get, since it has the originals
        """
        mine = self._logs.get(topic)
        if mine is None or mine.log is None:
            return []
        stored = mine.files.get(first_seq)
        if stored is None:
            return []
        before = None
        for file in mine.log.files:
            if file.salt == stored.salt:
                return []
            if file.first_seq <= first_seq:
                before = file
        is_merged = before is not None and before.end_seq > first_seq and before.path.name not in covered
        if is_merged or not stored.is_sealed:
            return self._forget_all([stored])
        return []

    def ends(self, topic: str) -> dict[str, int]:
        """Return the ends of the stored files of a topic, by the names of nsqd's files, as far as these are the same."""
        mine = self._logs.get(topic)
        if mine is None or mine.log is None:
            return {}
        found = {}
        for file in mine.log.files:
            stored = mine.same(file)
            if stored is not None:
                found[file.path.name] = stored.size_bytes
        return found

    def replacing(self, topic: str, name: str) -> Replacing:
        """Return what becomes of a new version of one of nsqd's files, and forget the stored files that it replaces."""
        mine = self._logs.get(topic)
        local = None
        if mine is not None:
            local = mine.local(name)
        if mine is None or local is None:
            return Replacing([], is_covered=False)
        if mine.is_covered(local, mine.sealed()):
            return Replacing([], is_covered=True)
        return Replacing(self._forget_all(mine.merged_into(local)), is_covered=False)

    def forget_others(self, topic: str, log: TopicLog | None) -> list[StoredFile]:
        """Return the files of a topic that were of another log than this one, and forget them; None is a deleted topic.

        The first log of a topic that is asked for is the one that the store had before.
        """
        if log is not None:
            self.attach(topic, log)
        mine = self._logs.get(topic)
        if mine is None or mine.log is log:
            return []
        gone = list(mine.files.values())
        self.size_bytes -= sum(file.size_bytes for file in gone)
        del self._logs[topic]
        if log is not None:
            self.attach(topic, log)
        return gone

    # ---- what must go up

    def lacking_bytes(self, topic: Topic) -> int:
        """Return how many bytes of a topic's log files are in no stored file."""
        log = topic.log
        if log is None:
            return 0
        size_bytes = sum(file.end_offset for file in log.files)
        mine = self._of_log(topic.name, log)
        if mine is None:
            return size_bytes
        sealed = mine.sealed()
        return size_bytes - sum(min(file.end_offset, mine.end_of(file, sealed)) for file in log.files)

    def uploads(self, topic: Topic, *, is_base: bool, is_retained: bool) -> Iterator[Upload]:
        """Yield the files of a topic that must go up now.

        is_base      a base begins, which must not have the bytes of all logs
        is_retained  the store keeps what is finished: each sealed file goes up
        """
        log = topic.log
        if log is None or topic.is_closed:
            return
        mine = self._logs.setdefault(topic.name, _Log(log))
        if mine.log is not log:  # a round must say first that those of the log before are gone
            return
        mine.topic = topic
        files = list(log.files)
        if mine.has_seen(log.files) and not is_base:
            return
        mine.seen = (log.files, len(files))
        sealed = mine.sealed()
        for file, following in zip_longest(files, files[1:]):
            upload = _upload(topic, log, file, following)
            new_bytes = file.end_offset - mine.end_of(file, sealed)
            is_large = new_bytes >= PREFIX_BYTES
            is_complete = upload.is_sealed and file.is_whole and not mine.has_sealed(file)
            if (is_base and is_large) or (is_retained and is_complete):
                yield upload

    def unneeded(
        self, topic: Topic, retention: Retention, now_ns: int, steady_ns: int
    ) -> Iterator[StoredFile]:
        """Yield the files that may go: sealed, finished by all channels, gone from nsqd's disk, and not retained.

        The caller removes each of them at once: other greenlets run in between, and may make the next ones needed.
        """
        log = topic.log
        mine = self._of_log(topic.name, log)
        if log is None or topic.is_closed or mine is None:
            return
        local = {file.first_seq for file in log.files}
        newer_bytes = 0
        for first_seq in in_slices(mine.first_seqs[::-1]):
            file = mine.files.get(first_seq)
            if file is None or self._logs.get(topic.name) is not mine:  # others ran
                continue
            is_free = file.is_sealed and first_seq not in local
            is_retained = retention.keeps(file, newer_bytes, now_ns, steady_ns)
            newer_bytes += file.size_bytes
            may_go = is_free and not is_retained and not topic.is_closed
            if may_go and not topic.is_needed(file.first_seq, file.end_seq):
                yield file

    def stored_ends(self, topic: Topic) -> list[tuple[LogFile, int]]:
        """Return the files of a log of nsqd, and how many bytes of each are in stored files."""
        log = topic.log
        if log is None:
            return []
        mine = self._of_log(topic.name, log)
        if mine is None:
            return [(file, 0) for file in log.files]
        sealed = mine.sealed()
        return [(file, mine.end_of(file, sealed)) for file in in_slices(log.files)]

    # ---- nsqd's own log, beyond its disk

    def attach(self, topic: str, log: TopicLog) -> None:
        """Take a log for that of which the store has the files, unless these are known to be of another one."""
        mine = self._logs.setdefault(topic, _Log())
        if mine.log is None:
            mine.log = log

    def readable(self, topic: str, log: TopicLog) -> Sequence[StoredFile]:
        """Return the files of a log that have messages, in their order; another list after a change."""
        mine = self._of_log(topic, log)
        if mine is not None:
            return mine.readable()
        return ()

    def has_all_of(self, topic: str, file: LogFile) -> bool:
        """True if the store has a sealed file of nsqd's log, also at its next start: a round that counts has named it."""
        mine = self._logs.get(topic)
        if mine is None or not mine.has_sealed(file):
            return False
        return mine.files[file.first_seq].name not in self.unnamed

    # ---- what a feed need not read again

    def offer(self, topics: Iterable[Topic], in_thread: Callable[..., None]) -> dict[str, OfferedLog]:
        """Return what the store has of the logs of nsqd, as a reader offers it to a feed. Raises OSError."""
        offered: dict[str, OfferedLog] = {}
        for topic in topics:
            log = topic.log
            mine = self._of_log(topic.name, log)
            if log is None or mine is None:
                continue
            mine.topic = topic
            sealed = mine.sealed()
            ends = [(file, mine.end_of(file, sealed)) for file in log.files]
            files: dict[str, OfferedFile] = {}
            in_thread(_offer_files, ends, files)
            offered[topic.name] = OfferedLog(log.epochs, files)
        return offered


def _offer_files(ends: Iterable[tuple[LogFile, int]], offered: dict[str, OfferedFile]) -> None:
    """Add the files that end at these offsets to `offered`; runs in a thread. A file that is gone is left out."""
    for file, end in ends:
        path: Path = file.path
        if not end:
            continue
        try:
            descriptor = open_file(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            start = max(0, end - CHECKED_BYTES)
            checksum = extend(0, os.pread(descriptor, end - start, start))
        finally:
            os.close(descriptor)
        offered[path.name] = OfferedFile(file.salt, end, checksum)
