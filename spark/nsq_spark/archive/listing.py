"""Which files there are, and what they are: paths, globs and directories become FileInfos."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import orjson
import pyarrow as pa

from nsq_spark.archive import splits
from nsq_spark.archive.sidecars import MANIFESTS, Companions, Manifests
from nsq_spark.archive.storage import Entry, Storage, directory_of, is_hidden, is_local, local_path, name_of
from nsqd_py.settings.durations import SECOND_NS

_SPECIAL = re.compile(r"[*?\[{]")
_TOKEN = re.compile(r"\*\*/|\*\*|\[(?P<negation>[!^]?)(?P<characters>\]?[^\]]+)\]|.", re.DOTALL)
_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def is_glob(path: str) -> bool:
    return bool(_SPECIAL.search(path))


def base_of(pattern: str) -> str:
    """Return the directory that all matches are in."""
    match = _SPECIAL.search(pattern)
    return pattern[: pattern.rfind("/", 0, match.start()) + 1] if match else pattern


def compiled_glob(pattern: str) -> re.Pattern[str]:
    """Return an expression for the paths of files that the pattern names, and of all files in directories that it
    names.
    """
    parts, open_braces = [], 0
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if text in _WILDCARDS:
            parts.append(_WILDCARDS[text])
        elif token["characters"]:
            escaped = re.sub(r"([\\\[\]])", r"\\\1", token["characters"])
            parts.append(f"(?!/)[{'^' if token['negation'] else ''}{escaped}]")
        elif text == "{" and "}" in pattern[token.end() :]:
            parts.append("(?:")
            open_braces += 1
        elif text == "}" and open_braces:
            parts.append(")")
            open_braces -= 1
        else:
            parts.append("|" if text == "," and open_braces else re.escape(text))
    return re.compile(f"{''.join(parts)}{')' * open_braces}(?:/.*)?", re.DOTALL)


# ---- the time in a file name

_OFFSET = re.compile(r"(?:UTC|GMT)?([+-]\d\d:\d\d)")
_TIME = re.compile(r"(?<!\d)(\d{4}-\d\d-\d\d)(?:[_T](\d\d)(?:[-_:]?(\d\d))?)?(?!\d)")


def zone_of(name: str) -> tzinfo:
    """Return the time zone of a name, or of an offset as Spark writes it: +02:00, UTC+02:00. Raises ArchiveError."""
    if name == "UTC":
        return UTC
    if offset := _OFFSET.fullmatch(name):
        return datetime.strptime(offset[1], "%z").tzinfo or UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # no such zone is a KeyError, and an OSError on some systems
        raise splits.ArchiveError(f"{name!r} is no time zone; it has to be a name such as UTC or Europe/Rome") from None


def time_in(name: str, zone: tzinfo) -> tuple[int, int] | None:
    """Return (first, end) of the last time in a file name, in ns since the epoch, `end` not included; None if there is
    none.
    """
    for day, hour, minute in reversed(_TIME.findall(name)):
        try:
            begin = datetime.fromisoformat(f"{day}T{hour or '00'}:{minute or '00'}").replace(tzinfo=zone)
        except ValueError:
            continue
        if hour:  # where clocks are set back, an hour comes twice: `fold` is the second
            latest = max(begin.astimezone(UTC), begin.replace(fold=1).astimezone(UTC))
            end = latest + (timedelta(minutes=1) if minute else timedelta(hours=1))
        else:
            end = begin + timedelta(days=1)  # of 23 or 25 hours, when clocks change
        return int(begin.timestamp()) * SECOND_NS, int(end.timestamp()) * SECOND_NS
    return None


# nsq_to_file's default names are <TOPIC>.<HOST><REV>.<DATETIME>.log
TOPIC_FROM_NAME = r"(?P<topic>[^/.]+)[^/]*$"
_CLAIM_NAME = re.compile(r"\.nsq_to_file\.[0-9a-f]+\.json")
# The names that nsq-to-file, Go's nsq_to_file and both nsqds give to files with messages, apart from a compression.
_MESSAGE_SUFFIXES = (".log", ".jsonl", ".framed", ".nsqf", ".parquet")
# A queue of Go's nsqd has no magic number, and its messages may hold any.
_GO_QUEUE = re.compile(r"\.diskqueue\.\d+\.dat$")
# What both nsqds keep next to them needs no word.
_COMPANIONS = (".bad", ".crc", ".cursor", ".damaged", ".dat", ".gone", ".moving", ".pid", ".spare", ".tmp", ".clock", ".stop")
_REMOTE_READERS = 16
_TOPICS_SHOWN = 10
# A file that nothing was written to for this time counts as finished.
_SETTLED_NS = 3600 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Hints:
    """Settings that the user knows better.

    format           in place of what is recognised
    topic            of files that do not have it
    topic_from_name  a regular expression with a group `topic`, looked for in the path of such files
    time_zone        of the hours in names of files that keep no times
    """

    format: str | None = None
    topic: str | None = None
    topic_from_name: str = TOPIC_FROM_NAME
    time_zone: str = "UTC"


@dataclass(slots=True)
class Listing:
    """The files below some paths; empty ones are left out.

    in_progress  files that nsq-to-file has not finished, which are left out unless they are named
    skipped      files that are left out because of their names, unless these are given
    topics       of the files, empty ones too; None if only their messages say
    """

    files: list[splits.FileInfo] = field(default_factory=list)
    in_progress: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    topics: set[str] | None = None


def list_files(
    paths: Sequence[str], storage: Storage, hints: Hints | None = None, wanted: splits.Wanted | None = None
) -> list[splits.FileInfo]:
    """Return the files that hold messages, in order of the paths and below each by name; none twice.

    Raises ArchiveError, also if there is none, or none of a topic that is wanted by name.
    """
    found, where = survey(paths, storage, hints, wanted), " ".join(paths)
    left_out = "".join(f" (nsq-to-file still writes {name_of(path)})" for path in found.in_progress[:1])
    if not found.files and not found.topics:
        others = f"; other files are there, such as {name_of(found.skipped[0])}" if found.skipped else ""
        raise splits.ArchiveError(f"there are no files with messages in {where}{left_out}{others}")
    if wanted and wanted.topics and found.topics is not None and (missing := wanted.topics - found.topics):
        there = ", ".join(sorted(found.topics)[:_TOPICS_SHOWN])
        raise splits.ArchiveError(f"there is no topic {min(missing)} in {where}{left_out}; there are {there}")
    return found.files


def survey(paths: Sequence[str], storage: Storage, hints: Hints | None = None, wanted: splits.Wanted | None = None) -> Listing:
    """Return the files of `list_files`, and what was left out. A file is listed as `is_unwanted`, and not opened, if a
    manifest says that nothing in it is `wanted`.
    """
    hints, found = hints or Hints(), Listing()
    everything = _find(paths, storage, found, takes_all=bool(hints.format))
    entries = [entry for entry in everything if entry.size_bytes]
    recogniser = _Recogniser(storage, hints, wanted or splits.Wanted())
    if all(is_local(entry.path) for entry in entries):
        infos = list(map(recogniser.info, entries))
    else:
        with ThreadPoolExecutor(_REMOTE_READERS) as pool:  # each takes a round trip or two
            infos = list(pool.map(recogniser.info, entries))
    found.files = [info for info in infos if info is not None]
    if recogniser.knows_topics:
        found.topics = recogniser.topics.union(recogniser.topic(entry.path) for entry in everything if not entry.size_bytes)
    return found


def _find(paths: Sequence[str], storage: Storage, found: Listing, *, takes_all: bool) -> list[Entry]:
    """Return the files without opening them; with `takes_all`, whatever their names. Raises ArchiveError."""
    entries: dict[str, Entry] = {}
    for path in paths:
        for entry in _entries(path, storage, found, takes_all):
            entries.setdefault(entry.path, entry)
    found.in_progress = [path for path in dict.fromkeys(found.in_progress) if path not in entries]
    found.skipped = [path for path in dict.fromkeys(found.skipped) if path not in entries]
    return list(entries.values())


def entries(paths: Sequence[str], storage: Storage, hints: Hints) -> list[Entry]:
    """Return the files that hold messages, without opening them. Raises ArchiveError, NotThere among them."""
    return [entry for entry in _find(paths, storage, Listing(), takes_all=bool(hints.format)) if entry.size_bytes]


# ---- paths


def _entries(path: str, storage: Storage, found: Listing, takes_all: bool) -> list[Entry]:
    given = storage.resolved(path)
    entry = storage.find(given)
    if entry is not None:
        return [entry]
    if storage.is_directory(given):
        return _with_messages(storage.walk(given), storage, found, takes_all)
    if not is_glob(given):
        raise splits.NotThere(f"{path} is not there")
    matches = compiled_glob(given).fullmatch
    walked = storage.walk(base_of(given))
    matching = [entry for entry in walked if _is_claim(entry.path) or matches(_as_given(entry.path))]
    entries = _with_messages(matching, storage, found, takes_all)
    if not entries:
        left_out = f" with the name of an archive (format takes others): {name_of(found.skipped[0])}" if found.skipped else ""
        raise splits.NotThere(f"{path} matches no file{left_out}")
    return entries


def _as_given(path: str) -> str:
    return local_path(path) if path.startswith("file:") else path


def _with_messages(entries: Iterable[Entry], storage: Storage, found: Listing, takes_all: bool) -> list[Entry]:
    """Return the files with messages; others go to `found`: those still being written, and those with other names."""
    everything = sorted(entries)
    claimed = {_claimed(entry.path, storage) for entry in everything if _is_claim(entry.path)}
    wanted = []
    for entry in everything:
        name = name_of(entry.path)
        # A topic may begin with an underscore.
        if is_hidden(name) and (name.startswith(".") or name in MANIFESTS or not _is_of_messages(name)):
            continue
        if entry.path in claimed:
            found.in_progress.append(entry.path)
        elif takes_all or _is_of_messages(name):
            wanted.append(entry)
        elif entry.size_bytes and not name.endswith(_COMPANIONS):
            found.skipped.append(entry.path)
    return wanted


def _is_of_messages(name: str) -> bool:
    plain = splits.name_without_compression(name)
    return plain.endswith(_MESSAGE_SUFFIXES) or _GO_QUEUE.search(plain) is not None


def _is_claim(path: str) -> bool:
    return _CLAIM_NAME.fullmatch(name_of(path)) is not None


def _claimed(path: str, storage: Storage) -> str | None:
    """Return the file that a claim of nsq-to-file is about; None if the claim is gone by now."""
    try:
        with storage.open(path) as file:
            name = orjson.loads(file.read_at(0, file.size_bytes))["work_name"]
    except (splits.ArchiveError, OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return f"{directory_of(path)}/{name}"


# ---- what they are


class _Recogniser:
    """Says what files are. Its methods raise ArchiveError.

    topics        of the files so far; `knows_topics` False: there may be more
    """

    def __init__(self, storage: Storage, hints: Hints, wanted: splits.Wanted) -> None:
        self._storage = storage
        self._hints = hints
        self._wanted = wanted
        self._companions = Companions(storage)
        self._manifests = Manifests(storage)
        self._asks_manifests = (wanted.has_range or wanted.has_topics) and not hints.format
        self._zone = zone_of(hints.time_zone)
        self._now_ns = time.time_ns()
        self._format = _format(hints.format)
        self._topic_from_name = topic_expression(hints.topic_from_name)
        self.topics: set[str] = set()
        self.knows_topics = True

    def info(self, entry: Entry) -> splits.FileInfo | None:
        """Return what a file is; None if it is gone by now."""
        name, topic = name_of(entry.path), self.topic(entry.path)
        if _GO_QUEUE.search(splits.name_without_compression(name)):
            raise splits.ArchiveError(
                f"{entry.path} is a queue of Go's nsqd: start our nsqd on a copy of this data path, which imports it, and read "
                "its topics (docs/take-over.md)"
            )
        parts = self._manifests.parts(entry, topic) if self._asks_manifests else []
        self.topics.update(part.topic for part in parts)
        if parts and not any(part.may_hold(self._wanted) for part in parts):
            return splits.FileInfo(*entry, parts[0].format, parts[0].compression, parts[0].topic, is_unwanted=True)
        head = self._head(entry)
        if head is None:
            return None
        compression = splits.recognised_compression(name, head)
        form = self._format or splits.recognised_format(name, splits.plain_head(head, compression))
        info = splits.FileInfo(*entry, form, compression, topic)
        if form is splits.Format.TOPIC_LOG:
            info = self._companions.topic_log(info)
        if not parts:
            self.topics.add(info.topic)
            if not info.has_one_topic:
                self.knows_topics = False
        if form in (splits.Format.LINES, splits.Format.JSONL):
            info = replace(info, is_live=self._now_ns - info.modified_ns < _SETTLED_NS)
        if not form.has_timestamps and (times := time_in(name, self._zone)):
            return replace(info, first_ns=times[0], end_ns=times[1])
        return info

    def _head(self, entry: Entry) -> bytes | None:
        try:
            with self._storage.open(entry.path) as file:
                return file.read_at(0, splits.HEAD_BYTES)
        except splits.ArchiveError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        except (OSError, pa.ArrowException) as error:
            raise splits.ArchiveError(f"{entry.path} cannot be read: {error}") from error

    def topic(self, path: str) -> str:
        if self._hints.topic:
            return self._hints.topic
        match = self._topic_from_name.search(path)
        return (match["topic"] if match else None) or name_of(path)


def _format(given: str | None) -> splits.Format | None:
    try:
        return splits.Format(given) if given else None
    except ValueError:
        raise splits.ArchiveError(f"{given!r} is no format; there are {', '.join(splits.Format)}") from None


def topic_expression(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise splits.ArchiveError(f"the expression for topics {pattern!r} is no regular expression: {error}") from None
    if "topic" not in compiled.groupindex:
        raise splits.ArchiveError(f"the expression for topics {pattern!r} has no group (?P<topic>...)")
    return compiled
