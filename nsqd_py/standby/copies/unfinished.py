"""The unfinished messages in a standby's log files: `Unfinished` compares the files with the cursors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from nsqd_py.diskqueue.files.file_bytes import FileBytes
from nsqd_py.diskqueue.files.log_file import LogFile, parse_log_file_name
from nsqd_py.diskqueue.journals.journal import journal_name, read_journal
from nsqd_py.diskqueue.journals.ranges import Range, SeqRanges, common, count_of, minus, union
from nsqd_py.diskqueue.records import (
    FILE_HEADER_BYTES,
    Damaged,
    FileHeader,
    NewerFormat,
    decode_header,
    next_record,
)
from nsqd_py.diskqueue.recovery import recover_file
from nsqd_py.runtime.private_files import opened, read_bytes


@dataclass(eq=False, repr=False)
class Unfinished:
    """Compares log files with cursors; `_logs` and `_journals` have the names of the files by topic, as they change."""

    _directory: Path
    _logs: Mapping[str, Mapping[str, Any]]
    _journals: Mapping[str, set[str]]
    _finished: dict[str, dict[str, SeqRanges]] = field(
        default_factory=dict
    )  # by topic and name of the journal

    def changed(self, topic: str | None = None) -> None:
        """Read the journals of a topic again, or those of all."""
        if topic is None:
            self._finished.clear()
        else:
            self._finished.pop(topic, None)

    def in_file(self, topic: str, name: str) -> dict[str, list[Range]]:
        """Return the messages of a log file that channels have not finished, by the name of the journal of each such channel.

        A file that cannot be read has one message, which nothing finishes.
        """
        low, high = self.bounds(topic, name)
        if low >= high and name not in self._logs.get(topic, {}):
            return {"": [(0, 1)]}
        found = {}
        for channel, finished in self._channels(topic).items():
            ranges = list(finished.gaps(low, high))
            if ranges:
                found[channel] = ranges
        return found

    def bounds(self, topic: str, name: str) -> Range:
        """Return the first number of a log file, and the one after its last; a sparse file does not have all."""
        names = sorted(self._logs.get(topic, ()))
        parsed = parse_log_file_name(name)
        assert parsed is not None
        later = [other for other in names if other > name]
        if later and name in names:
            following = parse_log_file_name(later[0])
            assert following is not None
            return parsed[1], following[1]
        ranges = ranges_in(self._directory / name) or ()
        return parsed[1], max((high for _, high in ranges), default=parsed[1])

    def _channels(self, topic: str) -> dict[str, SeqRanges]:
        """Return the messages that the channels of a topic have finished; without channels, those that it does not hold back."""
        found = self._finished.get(topic)
        if found is None:
            names = self._journals.get(topic, set())
            of_channels = ((name, finished_in(self._directory / name)) for name in names if ":" in name)
            found = {name: read for name, read in of_channels if read}
            if not found:
                own = journal_name(topic)
                found = {own: finished_in(self._directory / own) or SeqRanges(0)}
            self._finished[topic] = found
        return found

    def left(self, file: Path, unfinished: Mapping[str, list[Range]], topic: str) -> list[Range]:
        """Return those messages of a file that was set aside which are in no file here, and which no cursor has finished.

        unfinished  the messages that were not finished when the file left, by the name of the journal of their channel
        """
        found = []
        channels = self._channels(topic)
        for channel, ranges in unfinished.items():
            finished = channels.get(channel)
            if finished is None:
                found += ranges
            else:
                found += self._in_no_file(file, finished.gaps_in(ranges), topic)
        return union(found)

    def _in_no_file(self, file: Path, ranges: list[Range], topic: str) -> list[Range]:
        """Return those messages of a file that was set aside which are in no file of its log here."""
        if not ranges:
            return []
        # A compaction may have put messages of the next file into the successor of this one.
        readable = ranges_in(file)
        if readable is not None:
            ranges = common(ranges, readable)
        if not ranges:
            return []
        for name in self._logs.get(topic, ()):
            low, high = self.bounds(topic, name)
            if any(low < end and start < high for start, end in ranges):
                ranges = minus(ranges, same_messages(file, self._directory / name))
        return ranges


# ---- the messages of log files, and of cursors


def finished_in(path: Path) -> SeqRanges | None:
    """Return what a channel has finished; None if it is deleted, or has no journal."""
    try:
        saved = read_journal(read_bytes(path), with_waiting=False).saved
    except FileNotFoundError:
        return None
    except NewerFormat:
        return SeqRanges(0)
    return None if saved.is_deleted else saved.finished


def ranges_in(path: Path) -> list[Range] | None:
    """Return the messages of a log file; None if it cannot be read."""
    try:
        file = LogFile.open(path)
    except (Damaged, FileNotFoundError):
        return None
    try:
        return recover_file(file, is_last=True).readable
    finally:
        file.close()


def same_messages(path: Path, other: Path) -> list[Range]:
    """Return the numbers of the messages that are in both log files, with the same ids.

    After a log has lost its end, other messages get the numbers of those that were there.
    """
    found = []
    left = _records_in(path)
    right = _records_in(other)
    mine = next(left, None)
    theirs = next(right, None)
    while mine is not None and theirs is not None:
        low = max(mine.low, theirs.low)
        high = min(mine.high, theirs.high)
        if low < high and mine.id_of_0 == theirs.id_of_0:
            found.append((low, high))
        if mine.high <= theirs.high:
            mine = next(left, None)
        else:
            theirs = next(right, None)
    return union(found)


class _Identified(NamedTuple):
    """The messages low..high (not included) of a record; the number plus `id_of_0` is the id of each."""

    low: int
    high: int
    id_of_0: int


def _records_in(path: Path) -> Iterator[_Identified]:
    """Yield the readable records of a log file; none if it cannot be read."""
    with suppress(FileNotFoundError, Damaged), opened(path, os.O_RDONLY) as descriptor:
        data = FileBytes(descriptor, os.fstat(descriptor).st_size)
        salt = FileHeader.decode(data[:FILE_HEADER_BYTES]).salt
        offset = next_record(data, FILE_HEADER_BYTES, salt)
        while offset is not None:
            header = decode_header(data, offset)
            yield _Identified(header.first_seq, header.end_seq, header.base_id - header.first_seq)
            offset = next_record(data, offset + header.record_bytes, salt)


def count_in(path: Path, limit: int) -> int:
    """Return the number of messages of a log file with numbers from `limit` on; 1 if it cannot be read."""
    ranges = ranges_in(path)
    if ranges is None:
        return 1
    return count_of((max(low, limit), high) for low, high in ranges if high > limit)
