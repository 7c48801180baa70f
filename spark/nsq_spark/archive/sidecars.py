"""Facts about a file in the files next to it: later files of its topic's log, and the manifest of nsq-to-file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from nsq_spark.archive.splits import ArchiveError, Compression, FileInfo, Format, Wanted, name_without_compression
from nsq_spark.archive.storage import Entry, Storage, directory_of, name_of
from nsqd_py.diskqueue.files import parse_log_file_name


class Companions:
    """Adds to a FileInfo what the files next to a log say. Each directory is listed once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._last_numbers: dict[str, dict[str, int]] = {}

    def topic_log(self, info: FileInfo) -> FileInfo:
        """nsqd may be writing to the last file of a topic."""
        parsed = parse_log_file_name(name_without_compression(name_of(info.path)))
        if parsed is None:
            return info
        is_live = info.compression is Compression.NONE and self._is_last(info.path, *parsed)
        return replace(info, topic=parsed[0], is_live=is_live)

    def _is_last(self, path: str, topic: str, first_seq: int) -> bool:
        """True if no file next to it, of the same topic, has a higher number."""
        directory = directory_of(path)
        if directory not in self._last_numbers:
            last: dict[str, int] = {}
            names = map(name_without_compression, self._storage.names(directory))
            for name, number in filter(None, map(parse_log_file_name, names)):
                last[name] = max(number, last.get(name, 0))
            self._last_numbers[directory] = last
        return first_seq >= self._last_numbers[directory].get(topic, first_seq)


# ---- the manifest of nsq-to-file: what messages of `lines` do not have; of others, it saves work

# The first is that of earlier versions; the later one counts.
MANIFESTS = ("_manifest.jsonl", "_nsq_manifest")
# These formats are compressed as a whole; the others compress parts of a file.
_COMPRESSED_AS_A_WHOLE = (Format.LINES, Format.JSONL)


class NsqdPart(NamedTuple):
    """The messages of one nsqd in a part of a file, as nsq-to-file knows them (docs/archives.md); ids are numbers.

    nsqd      as in the column `nsqd`
    messages  their number; a message that is there twice counts twice
    """

    nsqd: str
    first_id: int
    last_id: int
    messages: int
    is_ordered: bool
    epoch: int | None = None
    first_seq: int | None = None

    @classmethod
    def of_fields(cls, fields: Any) -> NsqdPart:
        """Raises KeyError, TypeError and ValueError."""
        ids = int(fields["first_id"], 16), int(fields["last_id"], 16)
        return cls(fields["nsqd"], *ids, *(fields[name] for name in ("count", "is_ordered", "epoch", "first_seq")))


class FilePart(NamedTuple):
    """A part of a file, from `offset` on, whose messages have one topic; times in ns, None where they are not known.

    nsqds  empty if the manifest does not say which messages it has
    """

    offset: int
    size_bytes: int
    format: Format
    compression: Compression
    topic: str
    first_ns: int | None
    last_ns: int | None
    nsqds: tuple[NsqdPart, ...] = ()

    @classmethod
    def of_line(cls, fields: Any) -> FilePart:
        """Return what a line of a manifest says. Raises KeyError, TypeError and ValueError."""
        form, compression, topic = Format(fields["format"]), Compression(fields["compress"]), fields["topic"]
        numbers = (fields["offset"], fields["bytes"])
        times = (fields["first_timestamp"], fields["last_timestamp"])
        if not isinstance(topic, str) or any(type(number) is not int for number in numbers):
            raise TypeError
        if any(type(time) is not int for time in times) or fields.get("damaged_bytes"):
            times = None, None  # those of damaged messages are unknown, and who asks for these must hear of the damage
        whole = compression if form in _COMPRESSED_AS_A_WHOLE else Compression.NONE
        nsqds = tuple(map(NsqdPart.of_fields, fields.get("nsqds", ())))
        is_known = not fields.get("damaged_bytes") and sum(part.messages for part in nsqds) == fields["messages"]
        return cls(*numbers, form, whole, topic, *times, nsqds if is_known and fields.get("crc32c") else ())

    def may_hold(self, wanted: Wanted) -> bool:
        """True if a message in it may be wanted. Raises ArchiveError for a bad pattern."""
        if not wanted.has_topic(self.topic):
            return False
        return self.first_ns is None or self.last_ns is None or wanted.overlaps(self.first_ns, self.last_ns)


class Manifests:
    """The manifests in the directories above files. Each is read once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._read: dict[str, dict[str, list[FilePart]]] = {}

    def complete(self, entry: Entry) -> list[FilePart]:
        """Return the parts of a file that nsq-to-file has finished; nothing if they do not make up the whole file."""
        parts = self._parts(entry.path)
        end = 0
        for part in parts:
            if part.offset != end:
                return []
            end += part.size_bytes
        return parts if end == entry.size_bytes else []

    def topics(self, path: str) -> tuple[str, ...]:
        """Return the topics of a file, also of one that grew behind the described parts; nothing if it is not in a manifest."""
        return tuple(dict.fromkeys(part.topic for part in self._parts(path)))

    def places(self) -> dict[tuple[str, str, int], int | None]:
        """Return how many messages the logs have before the first ones of files, by topic, nsqd and id; also of files that are
        gone, since a table has rewritten them.
        """
        parts = (part for files in self._read.values() for parts in files.values() for part in parts)
        return {(part.topic, nsqd.nsqd, nsqd.first_id): nsqd.first_seq for part in parts for nsqd in part.nsqds}

    def _parts(self, path: str) -> list[FilePart]:
        """From the manifest nearest to the root that names the file: it mostly is there, and one serves all files."""
        for directory in _directories(path):
            if directory not in self._read:
                self._read[directory] = self._manifest(directory)
            if found := self._read[directory].get(path.removeprefix(f"{directory}/")):
                return found
        return []

    def _manifest(self, directory: str) -> dict[str, list[FilePart]]:
        """Return the parts of each file in order; a file that begins again replaces the earlier one of its name."""
        found: dict[str, list[FilePart]] = {}
        lines: list[bytes] = []
        for name in MANIFESTS:
            with suppress(ArchiveError, OSError, pa.ArrowException), self._storage.open(f"{directory}/{name}") as file:
                lines += file.read_at(0, file.size_bytes).splitlines()
        for line in lines:
            try:
                fields = orjson.loads(line)
                path, part = fields["path"], FilePart.of_line(fields)
            except (ValueError, KeyError, TypeError):
                continue  # torn by a kill, or of a later version
            if part.offset == 0:
                found[path] = []
            found.setdefault(path, []).append(part)
        return found


def _directories(path: str) -> Iterator[str]:
    """Yield the directories above a file, the root (or the bucket) first, without a slash at the end."""
    scheme, separator, rest = path.rpartition("://")
    names = directory_of(rest).split("/")
    for count in range(1, len(names) + 1):
        yield scheme + separator + "/".join(names[:count])
