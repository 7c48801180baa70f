"""Facts about a file in the files next to it: later files of its topic's log, and the manifest of nsq-to-file."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

import orjson

from nsq_spark.archive.splits import LINE_FORMATS, Compression, FileInfo, Format, Names, Requested, Span
from nsq_spark.archive.storage import Entry, Storage, directory_of, name_of
from nsqd_py.diskqueue.files.log_file import parse_log_file_name
from nsqd_py.stores.directories import MANIFESTS, directories_above
from nsqd_py.stores.formats import name_without_compression


@dataclass
class Companions:
    """Adds to a FileInfo what the files next to a log say. Each directory is listed once."""

    _storage: Storage
    _last_numbers: dict[str, dict[str, int]] = field(default_factory=dict)

    def topic_log(self, info: FileInfo) -> FileInfo:
        """nsqd may be writing to the last file of a topic."""
        name = name_without_compression(name_of(info.path))
        parsed = parse_log_file_name(name)
        if parsed is None:
            return info
        topic, first_seq = parsed
        directory = directory_of(info.path)
        if directory not in self._last_numbers:
            names = map(name_without_compression, self._storage.names(directory))
            numbered = filter(None, map(parse_log_file_name, names))
            self._last_numbers[directory] = dict(sorted(numbered))  # the highest number of each topic
        is_last = first_seq >= self._last_numbers[directory].get(topic, first_seq)
        return replace(info, topic=topic, is_live=is_last and info.compression is Compression.NONE)


# ---- the manifest of nsq-to-file: what messages of `lines` do not have; of others, it saves work


class NsqdPart(NamedTuple):
    """The messages of one nsqd in a part of a file, as nsq-to-file knows them (docs/archives.md); ids are numbers.

    nsqd      as in the column `nsqd`
    messages  their number; a message that is there twice counts twice
    end       last id of the log, and number of its messages, when nsq-to-file last asked: other files may have some of them
    """

    nsqd: str
    first_id: int
    last_id: int
    messages: int
    is_ordered: bool
    epoch: int | None = None
    first_seq: int | None = None
    end: Span | None = None

    @classmethod
    def of_fields(cls, fields: Any) -> NsqdPart:
        """Raises KeyError, TypeError and ValueError."""
        ids = int(fields["first_id"], 16), int(fields["last_id"], 16)
        end_id = fields.get("end_id")  # earlier versions do not have it
        end = None
        if end_id:
            end = (int(end_id, 16), int(fields["end_seq"]))
        epoch = fields["epoch"]
        first_seq = fields["first_seq"]
        return cls(fields["nsqd"], *ids, fields["count"], fields["is_ordered"], epoch, first_seq, end)


class FilePart(NamedTuple):
    """A part of a file, from `offset` on, whose messages have one topic.

    times     the first and the last one, in ns; None if they are not known
    nsqds     empty if the manifest does not say which messages it has
    is_empty  there are no messages in it; compressed, it has some bytes
    """

    offset: int
    size_bytes: int
    format: Format
    compression: Compression
    topic: str
    times: Span | None
    nsqds: tuple[NsqdPart, ...] = ()
    is_empty: bool = False

    @classmethod
    def of_line(cls, fields: Any) -> FilePart:
        """Return what a line of a manifest says. Raises KeyError, TypeError and ValueError."""
        form = Format(fields["format"])
        compression = Compression(fields["compress"])
        topic = fields["topic"]
        numbers = fields["offset"], fields["bytes"]
        if not isinstance(topic, str) or any(type(number) is not int for number in numbers):
            raise TypeError
        times = fields["first_timestamp"], fields["last_timestamp"]
        nsqds = tuple(map(NsqdPart.of_fields, fields.get("nsqds", ())))
        # What damaged messages have is unknown, and who asks for them must hear of the damage.
        is_damaged = bool(fields.get("damaged_bytes"))
        has_times = not is_damaged and all(type(time) is int for time in times)
        is_known = (
            not is_damaged
            and fields.get("crc32c")
            and sum(part.messages for part in nsqds) == fields["messages"]
        )
        whole = compression if form in LINE_FORMATS else Compression.NONE
        is_empty = not is_damaged and fields["messages"] == 0
        return cls(
            *numbers, form, whole, topic, times if has_times else None, nsqds if is_known else (), is_empty
        )

    def may_hold(self, requested: Requested) -> bool:
        """True if a message in it may be requested. Raises ArchiveError for a bad pattern."""
        is_in_time = self.times is None or requested.overlaps(*self.times)
        return is_in_time and not self.is_empty and requested.has_topic(self.topic)


def what_is_cut(entry: Entry, parts: Iterable[FilePart], requested: Requested) -> str:
    """Return a sentence about a file that is smaller than its parts, if something in them is requested; else ""."""
    noted_bytes = max(
        (part.offset + part.size_bytes for part in parts if part.may_hold(requested)), default=0
    )
    if entry.size_bytes >= noted_bytes:
        return ""
    return (
        f"{entry.path} is damaged at {entry.size_bytes}: the end is missing, since the manifest of nsq-to-file has noted "
        f"{noted_bytes} bytes"
    )


@dataclass
class Manifests:
    """The manifests in the directories above files. Each is read once.

    sizes_bytes  of those that were read, by path
    """

    _storage: Storage
    sizes_bytes: dict[str, int] = field(default_factory=dict)
    _read: dict[str, dict[str, list[FilePart]]] = field(default_factory=dict)

    def complete(self, entry: Entry) -> list[FilePart]:
        """Return the parts of a file that nsq-to-file has finished; nothing if they do not make up the whole file."""
        parts = self.parts(entry.path)
        end = 0
        for part in parts:
            if part.offset != end:
                return []
            end += part.size_bytes
        if end == entry.size_bytes:
            return parts
        return []

    def topics(self, path: str) -> Names:
        """Return the topics of a file, also of one that grew behind the described parts; nothing if it is not in a manifest."""
        return tuple(dict.fromkeys(part.topic for part in self.parts(path)))

    def positions(self) -> dict[tuple[str, str, int], NsqdPart]:
        """Return parts with the positions of their first messages in logs, by topic, nsqd and id; also of files that are gone,
        since a table has rewritten them.
        """
        found = {}
        files = chain.from_iterable(manifest.values() for manifest in self._read.values())
        for part in chain.from_iterable(files):
            for nsqd in part.nsqds:
                found[part.topic, nsqd.nsqd, nsqd.first_id] = nsqd
        return found

    def parts(self, path: str) -> list[FilePart]:
        """Return all parts of a file that are described: from the manifest nearest to the root that names the file, since it
        mostly is there, and one serves all files.
        """
        for directory in reversed(list(directories_above(path))):
            if directory not in self._read:
                self._read[directory] = self._manifest(directory)
            found = self._read[directory].get(path.removeprefix(f"{directory}/"))
            if found:
                return found
        return []

    def _manifest(self, directory: str) -> dict[str, list[FilePart]]:
        """Return the parts of each file in order; a file that begins again replaces the earlier one of its name."""
        found: dict[str, list[FilePart]] = {}
        lines: list[bytes] = []
        for path in (f"{directory}/{name}" for name in MANIFESTS):
            text = self._storage.head(path, sys.maxsize)
            if text:
                self.sizes_bytes[path] = len(text)
                lines += text.splitlines()
        for line in lines:
            try:
                fields = orjson.loads(line)
                path = str(fields["path"])
                part = FilePart.of_line(fields)
            except (ValueError, KeyError, TypeError):
                continue  # torn by a kill, or of a later version
            if part.offset == 0:
                found[path] = []
            found.setdefault(path, []).append(part)
        return found
