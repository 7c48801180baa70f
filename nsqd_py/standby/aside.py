"""Sets aside what leaves the data path of a standby in the name of its primary and was not finished.

    standby-alone-<UTC>    what this nsqd wrote as a primary, unless a later epoch of the new primary proves that it has
                           that too: log files and cursors. Only an operator removes it.
    standby-removed-<UTC>  log files that left although a channel had not finished them, and cursors; of an nsqd that
                           was a primary, also everything that it had not finished when it began to follow. They are
                           kept for a week.

Log files are hard links, which take no space while the data path has the same file.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from nsqd_py.diskqueue.files.file_bytes import FileBytes
from nsqd_py.diskqueue.files.log_file import LogFile, parse_log_file_name, sync_directory
from nsqd_py.diskqueue.journals.journal import journal_name, read_journal
from nsqd_py.diskqueue.journals.ranges import Range, SeqRanges, common, count_of, union
from nsqd_py.diskqueue.records import (
    FILE_HEADER_BYTES,
    Damaged,
    FileHeader,
    NewerFormat,
    decode_header,
    next_record,
)
from nsqd_py.diskqueue.recovery import recover_file
from nsqd_py.runtime.private_files import make_directory, open_file, read_bytes, write_bytes


class Leaving(NamedTuple):
    """A log file that was set aside.

    kept        the file
    topic       of the log
    unfinished  the messages that a channel had not finished, by the name of its journal; empty if the channel or the
                whole log is gone, so that nothing can finish them. (0, 1) if the file cannot be read
    """

    kept: Path
    topic: str
    unfinished: dict[str, list[Range]]


class Unfinished:
    """Compares log files with cursors; `logs` and `journals` have the names of the files by topic, as they change."""

    def __init__(
        self, directory: Path, logs: Mapping[str, Mapping[str, Any]], journals: Mapping[str, set[str]]
    ) -> None:
        self._directory = directory
        self._logs = logs
        self._journals = journals
        self._finished: dict[str, dict[str, SeqRanges]] = {}  # by topic and name of the journal

    def changed(self, topic: str | None = None) -> None:
        """Read the journals of a topic again, or those of all."""
        if topic is None:
            self._finished.clear()
        else:
            self._finished.pop(topic, None)

    def in_file(self, topic: str, name: str) -> dict[str, list[Range]]:
        """Return what each channel has not finished in a log file, by the name of its journal; only if there is some.

        A file that cannot be read has one message, which nothing finishes.
        """
        low, high = self.bounds(topic, name)
        if low >= high and name not in self._logs.get(topic, {}):
            return {"": [(0, 1)]}
        found: dict[str, list[Range]] = {}
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
        ranges = ranges_in(self._directory / name)
        return parsed[1], max((high for _, high in ranges or ()), default=parsed[1])

    def _channels(self, topic: str) -> dict[str, SeqRanges]:
        """Return what the channels of a topic have finished; of a topic without channels, what it has not held back."""
        found = self._finished.get(topic)
        if found is None:
            names = self._journals.get(topic, set())
            found = {
                name: read for name in names if ":" in name and (read := finished_in(self._directory / name))
            }
            held = journal_name(topic)
            self._finished[topic] = found = found or {
                held: finished_in(self._directory / held) or SeqRanges(0)
            }
        return found

    def left(self, leaving: Leaving) -> list[Range]:
        """Return those of the messages that are in no file here, and that no cursor has finished since."""
        found: list[Range] = []
        topic, channels = leaving.topic, self._channels(leaving.topic)
        for channel, ranges in leaving.unfinished.items():
            finished = channels.get(channel)
            if finished is None:
                found += ranges
                continue
            ranges = without(ranges, finished)
            if ranges:  # a compaction may have put messages of the next file into the successor of this one
                in_kept = ranges_in(leaving.kept)
                ranges = ranges if in_kept is None else common(ranges, in_kept)
            for name in self._logs.get(topic, ()) if ranges else ():
                low, high = self.bounds(topic, name)
                if any(low < end and start < high for start, end in ranges):
                    ranges = minus(ranges, same_messages(leaving.kept, self._directory / name))
            found += ranges
        return union(found)


def finished_in(path: Path) -> SeqRanges | None:
    """Return what a channel has finished; None if it is deleted, or has no journal."""
    try:
        saved = read_journal(read_bytes(path), with_waiting=False).saved
    except FileNotFoundError:
        return None
    except NewerFormat:
        return SeqRanges(0)
    return None if saved.is_deleted else saved.finished


def without(ranges: list[Range], finished: SeqRanges) -> list[Range]:
    """Return what of these messages is not finished."""
    return [gap for low, high in ranges for gap in finished.gaps(low, high)]


def minus(ranges: list[Range], others: Iterable[Range]) -> list[Range]:
    """Return the messages of `ranges` that are not in `others`."""
    found = SeqRanges(0)
    for low, high in common(ranges, others):
        found.add_missing(low, high)
    return without(ranges, found)


def ranges_in(path: Path) -> list[Range] | None:
    """Return the messages of a log file; None if it cannot be read."""
    try:
        file = LogFile.open(path)
    except (Damaged, FileNotFoundError):
        return None
    try:
        present = SeqRanges(0)
        for low, high in recover_file(file, is_last=True).gaps:
            present.add_missing(low, high)
        return list(present.gaps(file.first_seq, file.end_seq))
    finally:
        file.close()


def same_messages(path: Path, other: Path) -> list[Range]:
    """Return the numbers of the messages that are in both log files, with the same ids.

    After a log has lost its end, other messages get the numbers of those that were there.
    """
    found: list[Range] = []
    left, right = _records_in(path), _records_in(other)
    mine, theirs = next(left, None), next(right, None)
    while mine is not None and theirs is not None:
        low, high = max(mine.low, theirs.low), min(mine.high, theirs.high)
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
    try:
        descriptor = open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        data = FileBytes(descriptor, os.fstat(descriptor).st_size)
        salt = FileHeader.decode(data[:FILE_HEADER_BYTES]).salt
        position = next_record(data, FILE_HEADER_BYTES, salt)
        while position is not None:
            header = decode_header(data, position)
            yield _Identified(header.first_seq, header.end_seq, header.base_id - header.first_seq)
            position = next_record(data, position + header.record_bytes, salt)
    except Damaged:
        return
    finally:
        os.close(descriptor)


def count_in(path: Path, limit: int) -> int:
    """Return the number of messages of a log file with numbers from `limit` on; 1 if it cannot be read."""
    ranges = ranges_in(path)
    return 1 if ranges is None else count_of((max(low, limit), high) for low, high in ranges if high > limit)


ALONE_PREFIX = "standby-alone-"
REMOVED_PREFIX = "standby-removed-"
_KEPT_S = 7 * 24 * 3600
_DAY = "%Y%m%d"


class Aside:
    """The directories for what is set aside; `name` is the UTC time at which this nsqd began to follow.

    alone    the directory for what is kept for good
    removed  the directory for what an old primary had not finished when it began to follow
    leaving  since the last complete round
    unsure   earlier ones that were not finished by then, with the time of that round
    counted  the messages in kept files that were counted
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self.alone = directory / f"{ALONE_PREFIX}{name}"
        self.removed = directory / f"{REMOVED_PREFIX}{name}"
        self.leaving: list[Leaving] = []
        self.unsure: deque[tuple[float, Leaving]] = deque()
        self.counted: dict[Path, list[Range]] = {}

    def has_alone(self, path: Path) -> bool:
        """True if the file is kept in `standby-alone-`."""
        kept = self.alone / path.name
        return kept.exists() and kept.samefile(path)

    def keep_removed(self, paths: list[Path], topic: str, unfinished: dict[str, list[Range]]) -> None:
        """Keep a log file and its cursors for a week. Raises OSError."""
        path, day = paths[0], time.strftime(_DAY, time.gmtime())
        for number in count():
            kept = self._directory / (f"{REMOVED_PREFIX}{day}" + f".{number}" * bool(number)) / path.name
            if not kept.exists() or kept.samefile(path):
                break
        self.keep(kept.parent, paths)
        self.leaving.append(Leaving(kept, topic, unfinished))

    def keep(self, target: Path, paths: Iterable[Path]) -> None:
        """Keep files in one of the directories. Raises OSError."""
        if not target.exists():
            self._forget_old()
        make_directory(target)
        for path in paths:
            kept = target / path.name
            with suppress(FileExistsError, FileNotFoundError):  # it was kept before; it is gone
                if parse_log_file_name(path.name) is not None:
                    os.link(path, kept)
                elif not kept.exists():
                    write_bytes(kept, read_bytes(path))  # a journal is appended to in its place
        sync_directory(target)
        sync_directory(self._directory)

    def _forget_old(self) -> None:
        oldest = REMOVED_PREFIX + time.strftime(_DAY, time.gmtime(time.time() - _KEPT_S))
        for path in self._directory.glob(f"{REMOVED_PREFIX}*"):
            if path.name < oldest:
                shutil.rmtree(path, ignore_errors=True)

    def drop(self, path: Path) -> None:
        """Forget a kept log file that is not needed, and the directory with its last one."""
        path.unlink(missing_ok=True)
        if not any(path.parent.glob("*.log")):
            shutil.rmtree(path.parent, ignore_errors=True)
