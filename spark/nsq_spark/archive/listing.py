"""Which files there are, and what they are: paths, globs and directories become FileInfos."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import orjson
import pyarrow as pa

from nsq_spark.archive import splits, tables
from nsq_spark.archive.names import (
    MESSAGE_SUFFIXES,
    SAY_THE_TOPIC,
    has_zone,
    likeliest,
    time_in,
    topic_expression,
    topics_in,
    zone_of,
)
from nsq_spark.archive.sidecars import MANIFESTS, Companions, FilePart, Manifests
from nsq_spark.archive.storage import Entry, Storage, directory_of, is_hidden, is_local, local_path, name_of
from nsqd_py.settings.durations import SECOND_NS

_log = logging.getLogger(__name__)
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


# ---- files

_CLAIM_NAME = re.compile(r"\.nsq_to_file\.[0-9a-f]+\.json")
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
    topic            of messages that do not have it
    topic_from_name  a regular expression with a group `topic`, looked for in the path of files with such messages
    time_zone        of the hours in names of files that keep no times; "": any
    """

    format: str | None = None
    topic: str | None = None
    topic_from_name: str = ""
    time_zone: str = ""


@dataclass(slots=True)
class Listing:
    """The files below some paths; empty ones are left out.

    in_progress  files that nsq-to-file has not finished, which are left out unless they are named
    skipped      files that are left out because of their names, unless these are given
    topics       of the files, empty ones too; None if only their messages say
    in_any_zone  how many files are read because the hours in their names may be of any time zone
    """

    files: list[splits.FileInfo] = field(default_factory=list)
    in_progress: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    topics: set[str] | None = None
    in_any_zone: int = 0

    def zone_warning(self, option: str) -> str:
        """Return a sentence about hours whose zone is not known; "" if there are none. `option` is the name of the remedy."""
        if not self.in_any_zone:
            return ""
        return (
            f"{self.in_any_zone:,} files keep no times, and the hours in their names may be of any time zone, so that "
            f"messages of up to 15 hours before and after the wanted time are read too; {option} says the zone"
        )


def list_files(
    paths: Sequence[str], storage: Storage, hints: Hints | None = None, wanted: splits.Wanted | None = None
) -> list[splits.FileInfo]:
    """Return the files that hold messages, in order of the paths and below each by name; none twice.

    Raises ArchiveError, also if there is none, or none of a topic that is wanted by name.
    """
    found, where = survey(paths, storage, hints, wanted), " ".join(paths)
    if warning := found.zone_warning("the option fileTimeZone"):
        _log.warning("nsq: %s", warning)
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
    hints, found, wanted = hints or Hints(), Listing(), wanted or splits.Wanted()
    everything = _find(paths, storage, found, takes_all=bool(hints.format))
    entries = [entry for entry in everything if entry.size_bytes]
    recogniser = _Recogniser(storage, hints, wanted, everything)
    if all(is_local(entry.path) for entry in entries):
        infos = list(map(recogniser.info, entries))
    else:
        with ThreadPoolExecutor(_REMOTE_READERS) as pool:  # each takes a round trip or two
            infos = list(pool.map(recogniser.info, entries))
    found.files = [info for info in infos if info is not None]
    if recogniser.knows_topics:
        empty = (recogniser.topics_of(entry) for entry in everything if not entry.size_bytes)
        found.topics = recogniser.topics.union(*empty)
    if wanted.has_range and not hints.time_zone:
        found.in_any_zone = sum(_is_in_any_zone(info) and info.may_hold(wanted) for info in found.files)
    return found


def _is_in_any_zone(info: splits.FileInfo) -> bool:
    return info.has_time_of_name and not has_zone(name_of(info.path))


def _find(paths: Sequence[str], storage: Storage, found: Listing, *, takes_all: bool) -> dict[Entry, str]:
    """Return the files without opening them; with `takes_all`, whatever their names. Raises ArchiveError.

    The values are the directories in which the files were found: those that the user named.
    """
    entries: dict[str, tuple[Entry, str]] = {}
    for path in paths:
        base = base_of(storage.resolved(path))
        for entry in _entries(path, storage, found, takes_all):
            entries.setdefault(entry.path, (entry, directory_of(base) if base == entry.path else base))
    found.in_progress = [path for path in dict.fromkeys(found.in_progress) if path not in entries]
    found.skipped = [path for path in dict.fromkeys(found.skipped) if path not in entries]
    return dict(entries.values())


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
        return _with_messages(tables.walk(given, storage), storage, found, takes_all)
    if not is_glob(given):
        raise splits.NotThere(f"{path} is not there")
    matches = compiled_glob(given).fullmatch
    matching = tables.walk(base_of(given), storage, lambda name: _is_claim(name) or matches(_as_given(name)) is not None)
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
    return plain.endswith(MESSAGE_SUFFIXES) or _GO_QUEUE.search(plain) is not None


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

    def __init__(self, storage: Storage, hints: Hints, wanted: splits.Wanted, bases: Mapping[Entry, str]) -> None:
        self._storage = storage
        self._hints = hints
        self._wanted = wanted
        self._bases = bases
        self._companions = Companions(storage)
        self._manifests = Manifests(storage)
        self._zone = zone_of(hints.time_zone) if hints.time_zone else None
        self._now_ns = time.time_ns()
        self._format = _format(hints.format)
        self._topic_from_name = topic_expression(hints.topic_from_name) if hints.topic_from_name else None
        self.topics: set[str] = set()
        self.knows_topics = True

    def info(self, entry: Entry) -> splits.FileInfo | None:
        """Return what a file is; None if it is gone by now."""
        name, topics = name_of(entry.path), self.topics_of(entry)
        if _GO_QUEUE.search(splits.name_without_compression(name)):
            raise splits.ArchiveError(
                f"{entry.path} is a queue of Go's nsqd: start our nsqd on a copy of this data path, which imports it, and read "
                "its topics (docs/take-over.md)"
            )
        parts = self._parts(entry)
        self.topics.update(part.topic for part in parts)
        if parts and not any(part.may_hold(self._wanted) for part in parts):
            return splits.FileInfo(*entry, parts[0].format, parts[0].compression, parts[0].topic, is_unwanted=True)
        head = self._head(entry)
        if head is None:
            return None
        compression = splits.recognised_compression(name, head)
        form = self._format or splits.recognised_format(name, splits.plain_head(head, compression))
        info = splits.FileInfo(*entry, form, compression, topics[0] if len(topics) == 1 else "")
        if form is splits.Format.TOPIC_LOG:
            info = self._companions.topic_log(info)
        elif form is splits.Format.LINES and len(topics) > 1:
            info = self._in_doubt(info, topics)
        if not parts:
            self.topics.update({info.topic} if info.topic else topics)
            if not info.has_one_topic:
                self.knows_topics = False
        if form in (splits.Format.LINES, splits.Format.JSONL):
            info = replace(info, is_live=self._now_ns - info.modified_ns < _SETTLED_NS)
        return info if form.has_timestamps else self._with_times(info, parts)

    def topics_of(self, entry: Entry) -> tuple[str, ...]:
        """Return the topic of messages that do not have theirs; several if there is a doubt.

        In this order: what the user says, the manifest, the name.
        """
        if told := self._told_topic(entry.path):
            return (told,)
        return self._manifests.topics(entry.path) or topics_in(entry.path, self._bases[entry])

    def _told_topic(self, path: str) -> str | None:
        if self._hints.topic or self._topic_from_name is None:
            return self._hints.topic
        match = self._topic_from_name.search(path)
        return match["topic"] if match else None

    def _parts(self, entry: Entry) -> list[FilePart]:
        """Return what the manifest says of a file. The user knows the topic of `lines` better."""
        parts, told = self._manifests.complete(entry), self._told_topic(entry.path)
        return [part._replace(topic=told) if told and part.format is splits.Format.LINES else part for part in parts]

    def _in_doubt(self, info: splits.FileInfo, topics: tuple[str, ...]) -> splits.FileInfo:
        """Return a file of lines with its topic, or as unwanted if none of the topics that it may have is wanted."""
        if not any(map(self._wanted.has_topic, topics)):
            return replace(info, topic=topics[-1], is_unwanted=True)
        names = ", ".join(topics)
        if self._manifests.topics(info.path):
            why = f"{info.path} has lines of the topics {names}, which cannot be told apart"
        elif topic := likeliest(topics, self._wanted.topics or frozenset()):
            return replace(info, topic=topic)
        else:
            why = f"{info.path}: its name fits the topics {names}, and no manifest says which"
        raise splits.ArchiveError(f"{why}: {SAY_THE_TOPIC}")

    def _with_times(self, info: splits.FileInfo, parts: Sequence[FilePart]) -> splits.FileInfo:
        """Return a file that keeps no times with those of the manifest, or else with the hour in its name."""
        firsts, lasts = [part.first_ns for part in parts], [part.last_ns for part in parts]
        if parts and None not in (*firsts, *lasts):
            return replace(info, first_ns=min(filter(None, firsts)), end_ns=max(filter(None, lasts)) + 1)
        times = time_in(name_of(info.path), self._zone)
        return replace(info, first_ns=times[0], end_ns=times[1], has_time_of_name=True) if times else info

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


def _format(given: str | None) -> splits.Format | None:
    try:
        return splits.Format(given) if given else None
    except ValueError:
        raise splits.ArchiveError(f"{given!r} is no format; there are {', '.join(splits.Format)}") from None
