"""Facts about a file in the files next to it: positions of Go's disk queues, and the manifest of nsq-to-file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from nsq_spark.archive.splits import (
    ArchiveError,
    Compression,
    FileInfo,
    Format,
    Wanted,
    name_without_compression,
    parse_go_queue_name,
)
from nsq_spark.archive.storage import Entry, Storage, directory_of, name_of
from nsqd_py.diskqueue.files import parse_log_file_name
from nsqd_py.go_import.go_files import GO_POSITION_SUFFIX, GoPosition, parse_go_position

Topic = tuple[str, str]  # a directory, and a topic in it


class Companions:
    """Adds to a FileInfo what the files next to a log or queue say. Each directory is listed once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._last_numbers: dict[str, dict[str, int]] = {}

    def topic_log(self, info: FileInfo) -> FileInfo:
        """nsqd may be writing to the last file of a topic."""
        parsed = parse_log_file_name(name_without_compression(name_of(info.path)))
        if parsed is None:
            return info
        return replace(info, topic=parsed[0], is_live=self._is_last(info.path) and info.compression is Compression.NONE)

    def go_queue(self, info: FileInfo, channels: Mapping[Topic, str], *, unread_only: bool) -> FileInfo | None:
        """Return None for a file of which nothing is read. The topic's own queue is read from where messages have not
        been copied to the channels yet, if one of the `channels` is read.
        """
        name = name_without_compression(name_of(info.path))
        parsed = parse_go_queue_name(name)
        if parsed is None:
            return info
        topic, channel, number = parsed
        chosen = channels.get((directory_of(info.path), topic))
        if chosen is not None and channel not in (None, chosen):
            return None
        info = replace(info, topic=topic, channel=channel)
        position = self._go_position(f"{directory_of(info.path)}/{_queue_in(name)}{GO_POSITION_SUFFIX}")
        if position is None:
            return replace(info, is_live=self._is_last(info.path))
        info = replace(
            info,
            is_live=number >= position.write_number,
            settled_bytes=position.write_offset if number == position.write_number else 0,
        )
        if not unread_only and (chosen is None or channel is not None):
            return info
        if number < position.read_number:
            return None
        start = position.read_offset if number == position.read_number else 0
        return replace(info, start=min(start, info.size_bytes))

    def _go_position(self, path: str) -> GoPosition | None:
        try:
            with self._storage.open(path) as file:
                return parse_go_position(file.read_at(0, file.size_bytes))
        except (ArchiveError, OSError):
            return None

    def _is_last(self, path: str) -> bool:
        """True if no file next to it, of the same log or queue, has a higher number."""
        directory = directory_of(path)
        if directory not in self._last_numbers:
            last: dict[str, int] = {}
            for series, number in filter(None, map(_numbered, self._storage.names(directory))):
                last[series] = max(number, last.get(series, 0))
            self._last_numbers[directory] = last
        series, number = _numbered(name_without_compression(name_of(path))) or ("", 0)
        return number >= self._last_numbers[directory].get(series, number)


def _numbered(name: str) -> tuple[str, int] | None:
    """Return the log or queue that a file belongs to, and the file's number in it; None for another file."""
    if log := parse_log_file_name(name):
        return f"{log[0]}.log", log[1]
    queue = parse_go_queue_name(name)
    return (f"{_queue_in(name)}.diskqueue", queue[2]) if queue else None


def _queue_in(name: str) -> str:
    return name.partition(".diskqueue.")[0]


# ---- which queues of a Go data directory are read, so that each message is read once

ALL_QUEUES = "all"


def channels_in(entries: Iterable[Entry]) -> dict[Topic, Counter[str]]:
    """Return the bytes of the files of each channel, by topic."""
    found: dict[Topic, Counter[str]] = {}
    for entry in entries:
        topic, channel, _ = parse_go_queue_name(name_without_compression(name_of(entry.path))) or ("", None, 0)
        if channel is not None:
            found.setdefault((directory_of(entry.path), topic), Counter())[channel] += entry.size_bytes
    return found


def chosen_channels(entries: Iterable[Entry], wanted: str | None) -> dict[Topic, str]:
    """Return the channel of each topic that is read: the wanted one, or the largest; empty if all are read."""
    if wanted == ALL_QUEUES:
        return {}
    channels = channels_in(entries)
    if wanted:
        return dict.fromkeys(channels, wanted)
    return {topic: min(sizes, key=lambda name: (-sizes[name], name)) for topic, sizes in channels.items()}


def copies_text(entries: Iterable[Entry], chosen: Mapping[Topic, str]) -> list[str]:
    """Return a sentence for each topic with several channels: which one is read."""
    lines = []
    for topic, sizes in channels_in(entries).items():
        others = sorted(name for name in sizes if name != chosen.get(topic, name))
        if others:
            lines.append(
                f"topic {topic[1]}: read from the queue of channel {chosen[topic]} and from the topic's own; "
                f"left out, as copies: {', '.join(others)}"
            )
    return lines


# ---- the manifest of nsq-to-file: it only saves work; a file that it does not describe completely is opened

_MANIFEST = "_manifest.jsonl"
# These formats are compressed as a whole; the others compress parts of a file.
_COMPRESSED_AS_A_WHOLE = (Format.LINES, Format.JSONL)


class Stretch(NamedTuple):
    """A part of a file, from `offset` on, whose messages have one topic; times in ns, None where they are not known."""

    offset: int
    size_bytes: int
    format: Format
    compression: Compression
    topic: str
    first_ns: int | None
    last_ns: int | None

    @classmethod
    def of_line(cls, fields: Any) -> Stretch:
        """Return what a line of a manifest says. Raises KeyError, TypeError and ValueError."""
        form, compression, topic = Format(fields["format"]), Compression(fields["compress"]), fields["topic"]
        numbers = (fields["offset"], fields["bytes"])
        times = (fields["first_timestamp"], fields["last_timestamp"])
        if not isinstance(topic, str) or any(type(number) is not int for number in numbers):
            raise TypeError
        if any(type(time) is not int for time in times):
            times = None, None
        whole = compression if form in _COMPRESSED_AS_A_WHOLE else Compression.NONE
        return cls(*numbers, form, whole, topic, *times)

    def may_hold(self, wanted: Wanted) -> bool:
        """True if a message in it may be wanted. Raises ArchiveError for a bad pattern."""
        if not wanted.has_topic(self.topic):
            return False
        return self.first_ns is None or self.last_ns is None or wanted.overlaps(self.first_ns, self.last_ns)


class Manifests:
    """The manifests in the directories above files. Each is read once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._read: dict[str, dict[str, list[Stretch]]] = {}

    def complete(self, entry: Entry) -> list[Stretch]:
        """Return the parts of a file that nsq-to-file has finished; nothing if they do not make up the whole file."""
        stretches = self._stretches(entry.path)
        end = 0
        for stretch in stretches:
            if stretch.offset != end:
                return []
            end += stretch.size_bytes
        return stretches if end == entry.size_bytes else []

    def unwanted(self, entry: Entry, wanted: Wanted, topic_in_name: str) -> Stretch | None:
        """Return the first part of a file in which nothing is wanted; None if something may be, or nobody knows.

        Files of `lines` are read as messages of the topic in their names, so that one counts. Raises ArchiveError for a
        bad pattern.
        """
        stretches = [
            stretch._replace(topic=topic_in_name) if stretch.format is Format.LINES else stretch
            for stretch in self.complete(entry)
        ]
        return None if any(stretch.may_hold(wanted) for stretch in stretches) else next(iter(stretches), None)

    def _stretches(self, path: str) -> list[Stretch]:
        """From the manifest nearest to the root that names the file: it mostly is there, and one serves all files."""
        for directory in _directories(path):
            if directory not in self._read:
                self._read[directory] = self._manifest(directory)
            if found := self._read[directory].get(path.removeprefix(f"{directory}/")):
                return found
        return []

    def _manifest(self, directory: str) -> dict[str, list[Stretch]]:
        """Return the parts of each file in order; a file that begins again replaces the earlier one of its name."""
        found: dict[str, list[Stretch]] = {}
        try:
            with self._storage.open(f"{directory}/{_MANIFEST}") as file:
                data = file.read_at(0, file.size_bytes)
        except (ArchiveError, OSError, pa.ArrowException):
            return found
        for line in data.splitlines():
            try:
                fields = orjson.loads(line)
                path, stretch = fields["path"], Stretch.of_line(fields)
            except (ValueError, KeyError, TypeError):
                continue  # torn by a kill, or of a later version
            if stretch.offset == 0:
                found[path] = []
            found.setdefault(path, []).append(stretch)
        return found


def _directories(path: str) -> Iterator[str]:
    """Yield the directories above a file, the root (or the bucket) first, without a slash at the end."""
    scheme, separator, rest = path.rpartition("://")
    names = directory_of(rest).split("/")
    for count in range(1, len(names) + 1):
        yield scheme + separator + "/".join(names[:count])
