"""The messages in the log files of a copy that some channel has not finished, by the cursors in the copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nsqd_py.diskqueue.files import LogFile, parse_log_file_name
from nsqd_py.diskqueue.journal import decode_journal, journal_name
from nsqd_py.diskqueue.ranges import Range, SeqRanges, common, count_of
from nsqd_py.diskqueue.records import Damaged, NewerFormat
from nsqd_py.diskqueue.recovery import recover_file
from nsqd_py.runtime.private_files import read_bytes


class Leaving(NamedTuple):
    """Messages in a file that was set aside, and that a channel had not finished.

    kept     the file
    topic    of the log
    channel  name of its journal; empty if the channel or the whole log is gone, so that nothing can finish them
    ranges   of the messages; (0, 1) if the file cannot be read
    """

    kept: Path
    topic: str
    channel: str
    ranges: list[Range]


class Unfinished:
    """Compares log files with cursors; `logs` and `journals` have the names of the files by topic, as they change."""

    def __init__(self, directory: Path, logs: Mapping[str, Mapping[str, Any]], journals: Mapping[str, set[str]]) -> None:
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
            found = {name: read for name in names if ":" in name and (read := finished_in(self._directory / name))}
            held = journal_name(topic)
            self._finished[topic] = found = found or {held: finished_in(self._directory / held) or SeqRanges(0)}
        return found

    def left(self, leaving: Leaving) -> list[Range]:
        """Return those of the messages that are not in the directory, and that no cursor has finished since."""
        ranges, topic = leaving.ranges, leaving.topic
        finished = self._channels(topic).get(leaving.channel)
        if finished is None:
            return ranges
        ranges = without(ranges, finished)
        for name in self._logs.get(topic, ()) if ranges else ():
            low, high = self.bounds(topic, name)
            if any(low < end and start < high for start, end in ranges):
                ranges = minus(ranges, ranges_in(self._directory / name) or [])
        return ranges


def finished_in(path: Path) -> SeqRanges | None:
    """Return what a channel has finished; None if it is deleted, or has no journal."""
    try:
        saved, _ = decode_journal(read_bytes(path), with_waiting=False)
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


def count_in(path: Path, limit: int) -> int:
    """Return the number of messages of a log file with numbers from `limit` on; 1 if it cannot be read."""
    ranges = ranges_in(path)
    return 1 if ranges is None else count_of((max(low, limit), high) for low, high in ranges if high > limit)
