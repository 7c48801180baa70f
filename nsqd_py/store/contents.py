"""The messages of a store as parts of log files, for programs that read them in place, without nsqd.

A part has the messages of one object below `files/`, or those of a tail, which only rounds have. Where a file is stored up to a
byte, its tail begins there. A compaction makes one sparse file of several, of which the store may have some as they were: each
message is then taken from the file that begins last. So no message is in two parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nsqd_py.diskqueue.files.log_file import parse_log_file_name
from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.diskqueue.messages import record_positions
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FileHeader
from nsqd_py.store.image import LogSource, StoreImage, StoreReader
from nsqd_py.store.layout import HEAD_NAME, StoredFile, round_name


class LogPart(NamedTuple):
    """Messages of a topic that follow each other.

    local_name  name of the file in a data path that they are in
    stored      the object that has them; None for a tail
    data        a tail as a file: a header and records
    size_bytes  of the object, or of the tail as a file
    is_sealed   True if all messages that this log file will ever have are in this part
    first_seq, end_seq  the number of the first message, and the number after the last one
    is_cut      True if the object or tail has other messages too, which are in other parts
    first_id, last_id   ids of the first and of the last message of the object or tail
    first_ns, last_ns   the earliest and the latest timestamp in it, in ns since the epoch
    """

    topic: str
    local_name: str
    stored: StoredFile | None
    data: bytes
    size_bytes: int
    is_sealed: bool
    first_seq: int
    end_seq: int
    is_cut: bool
    first_id: int
    last_id: int
    first_ns: int
    last_ns: int


class Gap(NamedTuple):
    """Bytes of a log file that neither an object nor a round has; `first_seq` is that of the file."""

    local_name: str
    first_seq: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"bytes {self.start} to {self.end} of {self.local_name} are missing in the store"


def incomplete_base(reader: StoreReader) -> str:
    """Return a sentence if the base that the head names is missing or damaged; "" if the state is that of a whole one."""
    head = reader.head
    if head is None or reader.image.base >= head.base:
        return ""
    return f"the base that begins with {round_name(head.base)}, which {HEAD_NAME} names, is not complete"


def topics_of(image: StoreImage) -> list[str]:
    """Return the topics with messages in a store, by name."""
    found = {file.topic for file in image.all_files()}
    for name in image.tails:
        parsed = parse_log_file_name(name)
        if parsed is not None:
            found.add(parsed[0])
    return sorted(found)


def parts_of(image: StoreImage, topic: str) -> list[LogPart | Gap]:
    """Return the messages of a topic in order, and what is missing between them."""
    found: list[LogPart | Gap] = []
    cut = False
    later: list[Range] = []  # the numbers in files that begin later
    for source in reversed(image.log_files(topic)):
        of_file = list(_parts_of_file(topic, source))
        for one in reversed(of_file):
            if isinstance(one, Gap):
                found.append(one)
                continue
            whole = one.first_seq, one.end_seq
            for low, high in reversed(_without(whole, later)):
                is_cut = (low, high) != whole
                found.append(one._replace(first_seq=low, end_seq=high, is_cut=is_cut))
                cut |= is_cut
        later += [(one.first_seq, one.end_seq) for one in of_file if isinstance(one, LogPart)]
    found.reverse()
    if cut:  # what is left of a file may be behind files that begin later
        found.sort(key=lambda one: one.first_seq)
    return found


def _without(whole: Range, others: Iterable[Range]) -> list[Range]:
    """Return the numbers of a range that are in no other one, in order."""
    left = [whole]
    for low, high in others:
        pieces = []
        for begin, end in left:
            pieces.append((begin, min(end, low)))
            pieces.append((max(begin, high), end))
        left = sorted(pair for pair in pieces if pair[0] < pair[1])
    return left


def _parts_of_file(topic: str, source: LogSource) -> Iterator[LogPart | Gap]:
    stored, tail = source.stored, source.tail
    if stored is not None and stored.end_seq > stored.first_seq:
        yield LogPart(
            topic=topic,
            local_name=source.name,
            stored=stored,
            data=b"",
            size_bytes=stored.size_bytes,
            is_sealed=stored.is_sealed,
            first_seq=stored.first_seq,
            end_seq=stored.end_seq,
            is_cut=False,
            first_id=stored.first_id,
            last_id=stored.last_id,
            first_ns=stored.first_ns,
            last_ns=stored.last_ns,
        )
    # A tail without bytes says only that nsqd has the file: retention may have dropped its object.
    if tail is None or not tail.chunks:
        return
    end = stored.size_bytes if stored is not None else 0
    if tail.start_offset > end:
        yield Gap(source.name, source.first_seq, end, tail.start_offset)
    if part := _tail_part(topic, source):
        yield part


def tail_file(source: LogSource) -> bytes:
    """Return the tail of a log file as a file of records, without what the stored object has; b"" if there is none."""
    tail = source.tail
    if tail is None:
        return b""
    begin = 0
    if source.stored is not None:
        begin = source.stored.size_bytes
    records = b"".join(tail.chunks)[max(0, begin - tail.start_offset) :]
    if max(begin, tail.start_offset):
        return FileHeader(source.salt, source.first_seq, 0).encode() + records
    return records


def _tail_part(topic: str, source: LogSource) -> LogPart | None:
    """Return the tail of a log file as a part; None if it has no message."""
    data = tail_file(source)
    headers = [header for _, header in record_positions(data, FILE_HEADER_BYTES, source.salt)]
    if not headers:
        return None
    first, last = headers[0], headers[-1]
    times_ns = [header.timestamp_ns for header in headers]
    return LogPart(
        topic=topic,
        local_name=source.name,
        stored=None,
        data=data,
        size_bytes=len(data),
        is_sealed=False,
        first_seq=first.first_seq,
        end_seq=last.end_seq,
        is_cut=False,
        first_id=first.base_id,
        last_id=last.base_id + last.count - 1,
        first_ns=min(times_ns),
        last_ns=max(times_ns),
    )
