"""Which files there are, and what they are: paths, globs and directories become FileInfos."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from nsq_spark.archive.names import (
    has_zone,
    hive_topic,
    likeliest,
    say_the_topic,
    time_in,
    topic_expression,
    topics_in,
    zone_of,
)
from nsq_spark.archive.sidecars import Companions, FilePart, Manifests, what_is_cut
from nsq_spark.archive.splits import (
    LINE_FORMATS,
    ArchiveError,
    Compression,
    FileInfo,
    Format,
    Gone,
    Names,
    NotThere,
    Requested,
)
from nsq_spark.archive.storage import Entry, Storage, directory_of, is_local, local_path, name_of
from nsq_spark.archive.store_logs import StoreLogs, is_head
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.store.layout import HEAD_NAME, NO_HEAD, ROUNDS, has_rounds
from nsqd_py.stores.directories import DELTA_LOG, is_claim, is_go_queue, sorted_by_name
from nsqd_py.stores.formats import HEAD_BYTES, codec_of, format_of, plain_head
from nsqd_py.stores.tables import UnreadableTable, everything, walk

_REMOTE_READERS = 16
_TOPICS_SHOWN = 10
_HEAD_BYTES = 4096
# A file that nothing was written to for this time counts as finished.
_SETTLED_NS = 3600 * SECOND_NS
_log = logging.getLogger(__name__)
# The part of a path from the first name with a special character on.
_PATTERN = re.compile(r"[^/]*[*?\[{].*", re.DOTALL)
_TOKEN = re.compile(r"\*\*/|\*\*|\[(?P<negation>[!^]?)(?P<characters>\]?[^\]]+)\]|.", re.DOTALL)
_WILDCARDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def is_glob(path: str) -> bool:
    return bool(_PATTERN.search(path))


def base_of(pattern: str) -> str:
    """Return the directory that all matches are in."""
    return _PATTERN.sub("", pattern)


def compiled_glob(pattern: str) -> re.Pattern[str]:
    """Return an expression for the paths of files that the pattern names, and of all files in directories that it
    names.
    """
    parts = []
    open_braces = 0
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
    try:
        return re.compile(f"{''.join(parts)}{')' * open_braces}(?:/.*)?", re.DOTALL)
    except re.error as error:
        raise ArchiveError(f"{pattern} is no pattern of paths: {error}") from None


# ---- files


@dataclass(frozen=True, slots=True)
class Hints:
    """Settings that the user knows better.

    format           instead of what is recognised
    topic            of messages that do not have it
    topic_from_name  a regular expression with a group `topic`, searched for in the path of files with such messages
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

    files: list[FileInfo] = field(default_factory=list)
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
    paths: Sequence[str],
    storage: Storage,
    hints: Hints | None = None,
    requested: Requested | None = None,
    *,
    skips_damaged: bool = False,
) -> list[FileInfo]:
    """Return the files that hold messages, in order of the paths and below each by name, stores last; none twice.

    Raises ArchiveError, also if there is none, or none of a topic that is requested by name. A Delta table may have none.
    """
    found = survey(paths, storage, hints, requested, skips_damaged=skips_damaged)
    where = " ".join(paths)
    warning = found.zone_warning("the option fileTimeZone")
    if warning:
        _log.warning("nsq: %s", warning)
    if not found.files and any(_is_delta_table(path, storage) for path in paths):
        return []  # a table without rows
    left_out = "".join(f" (nsq-to-file still writes {name_of(path)})" for path in found.in_progress[:1])
    if not found.files and not found.topics:
        others = ""
        if found.skipped:
            others = f"; other files are there, such as {name_of(found.skipped[0])}"
        raise ArchiveError(f"there are no files with messages in {where}{left_out}{others}")
    if requested and requested.topics and found.topics is not None:
        missing = requested.topics - found.topics
        if missing:
            there = ", ".join(sorted(found.topics)[:_TOPICS_SHOWN])
            raise ArchiveError(f"there is no topic {min(missing)} in {where}{left_out}; there are {there}")
    return found.files


def _is_delta_table(path: str, storage: Storage) -> bool:
    directory = storage.resolved(path).rstrip("/")
    return not is_glob(path) and storage.is_directory(f"{directory}/{DELTA_LOG}")


def survey(
    paths: Sequence[str],
    storage: Storage,
    hints: Hints | None = None,
    requested: Requested | None = None,
    *,
    skips_damaged: bool = False,
) -> Listing:
    """Return the files of `list_files`, and what was left out. A file is listed as `is_unwanted`, and not opened, if a
    manifest, or the store that it is in, says that nothing in it is `requested`.

    skips_damaged  log what is damaged in the rounds of a store, and which files are cut, instead of raising it
    """
    hints = hints or Hints()
    requested = requested or Requested()
    others, stores = split_stores(paths, storage, skips_damaged=skips_damaged)
    found = Listing(topics=set())
    if others or not stores:
        found = _survey_files(others, storage, hints, requested, skips_damaged=skips_damaged)
    for store in stores:
        store.refresh()
        for info, part, *_ in store.logs():
            is_unwanted = not requested.overlaps(part.first_ns, part.last_ns)
            found.files.append(replace(info, is_unwanted=is_unwanted))
            if found.topics is not None:
                found.topics.add(info.topic)
    return found


def split_stores(
    paths: Sequence[str], storage: Storage, *, skips_damaged: bool
) -> tuple[list[str], list[StoreLogs]]:
    """Return the paths of other archives, and the stores of nsqd among the paths, which are not read yet.

    Raises ArchiveError if a store has no head.
    """
    on_damage = partial(_log.warning, "nsq: %s") if skips_damaged else None
    others: list[str] = []
    stores: list[StoreLogs] = []
    for path in paths:
        base = storage.resolved(path).rstrip("/")
        if not is_glob(path) and _is_store(base, storage):
            stores.append(StoreLogs(base, storage.open, storage.names, on_damage))
        elif not is_glob(path) and has_rounds(storage.names(f"{base}/{ROUNDS}")):
            raise ArchiveError(f"{path}: {NO_HEAD}")
        else:
            others.append(path)
    return others, stores


def _is_store(directory: str, storage: Storage) -> bool:
    """True if the directory has the head of a store, also if that is damaged."""
    head = storage.head(f"{directory}/{HEAD_NAME}", _HEAD_BYTES)
    return bool(head) and (is_head(head) or bool(storage.names(f"{directory}/{ROUNDS}")))


def _survey_files(
    paths: Sequence[str], storage: Storage, hints: Hints, requested: Requested, *, skips_damaged: bool
) -> Listing:
    """Return the files of archives below some paths."""
    found = Listing()
    bases = _find(paths, storage, found, hints)
    entries = [entry for entry in bases if entry.size_bytes]
    recogniser = _Recogniser(storage, hints, requested, bases)
    for entry in bases:
        cut = recogniser.what_is_cut(entry)
        if cut and not skips_damaged:
            raise ArchiveError(f"nsq: {cut}; option skipDamaged (--skip-damaged) reads what is left of it")
        if cut:
            _log.warning("nsq: %s", cut)
    if all(is_local(entry.path) for entry in entries):
        infos = list(map(recogniser.info, entries))
    else:
        with ThreadPoolExecutor(_REMOTE_READERS) as pool:  # each takes a round trip or two
            infos = list(pool.map(recogniser.info, entries))
    found.files = list(filter(None, infos))
    if recogniser.knows_topics:
        empty = (recogniser.topics_of(entry) for entry in bases if not entry.size_bytes)
        found.topics = recogniser.topics.union(*empty)
    if requested.has_range and not hints.time_zone:
        by_name = (info for info in found.files if info.has_time_of_name and not has_zone(name_of(info.path)))
        found.in_any_zone = sum(info.may_hold(requested) for info in by_name)
    return found


def _find(paths: Sequence[str], storage: Storage, found: Listing, hints: Hints) -> dict[Entry, str]:
    """Return the files without opening them; if the user knows their format, whatever their names. Raises ArchiveError.

    The values are the directories in which the files were found: those that the user named.
    """
    entries: dict[str, tuple[Entry, str]] = {}
    for path in paths:
        base = base_of(storage.resolved(path))
        for entry in _entries(path, storage, found, takes_all=bool(hints.format)):
            directory = base
            if base == entry.path:
                directory = directory_of(base)
            entries.setdefault(entry.path, (entry, directory))
    for others in (found.in_progress, found.skipped):
        others[:] = [path for path in dict.fromkeys(others) if path not in entries]
    return dict(entries.values())


def entries(paths: Sequence[str], storage: Storage, hints: Hints) -> list[Entry]:
    """Return the files, empty ones too, without opening them. Raises ArchiveError, NotThere among them."""
    return list(_find(paths, storage, Listing(), hints))


def _entries(path: str, storage: Storage, listing: Listing, *, takes_all: bool) -> list[Entry]:
    """Return the files with messages; others go to the listing: those still being written, and those with other names."""
    given = storage.resolved(path)
    entry = storage.find(given)
    if entry:
        return [entry]
    base = given
    is_chosen = everything
    if not storage.is_directory(given):
        if not is_glob(given):
            raise NotThere(f"{path} is not there")
        base = base_of(given)
        is_chosen = partial(_is_chosen, compiled_glob(given))
    try:
        found = sorted_by_name(walk(base, storage, is_chosen, storage.options), storage, takes_all=takes_all)
    except UnreadableTable as error:
        raise ArchiveError(str(error)) from error
    listing.in_progress += found.in_progress
    listing.skipped += found.others
    if is_chosen is not everything and not found.readable:
        names = map(name_of, listing.skipped[:1])
        left_out = "".join(f" with the name of an archive (format takes others): {name}" for name in names)
        raise NotThere(f"{path} matches no file{left_out}")
    return found.readable


def _is_chosen(pattern: re.Pattern[str], path: str) -> bool:
    plain = local_path(path) if path.startswith("file:") else path
    return is_claim(name_of(path)) or bool(pattern.fullmatch(plain))


# ---- what they are


class _Recogniser:
    """Says what files are. Its methods raise ArchiveError.

    topics        of the files so far; `knows_topics` False: there may be more
    """

    def __init__(
        self, storage: Storage, hints: Hints, requested: Requested, bases: Mapping[Entry, str]
    ) -> None:
        self._storage = storage
        self._hints = hints
        self._requested = requested
        self._bases = bases
        self._companions = Companions(storage)
        self._manifests = Manifests(storage)
        self._zone = zone_of(hints.time_zone) if hints.time_zone else None
        self._now_ns = time.time_ns()
        self._format = _format(hints.format)
        self._topic_from_name: re.Pattern[str] | None = None
        if hints.topic_from_name:
            self._topic_from_name = topic_expression(hints.topic_from_name)
        self.topics: set[str] = set()
        self.knows_topics = True

    def info(self, entry: Entry) -> FileInfo | None:
        """Return what a file is; None if it is gone by now."""
        name = name_of(entry.path)
        topics = self.topics_of(entry)
        if is_go_queue(name):
            raise ArchiveError(
                f"{entry.path} is a queue of Go's nsqd: start our nsqd on a copy of this data path, which imports it, and read "
                "its topics (docs/take-over.md)"
            )
        parts = self._parts(entry)
        self.topics.update(part.topic for part in parts)
        if parts and not any(part.may_hold(self._requested) for part in parts):
            return FileInfo(*entry, parts[0].format, parts[0].compression, parts[0].topic, is_unwanted=True)
        try:
            head = self._storage.read(entry.path, HEAD_BYTES)
        except Gone:
            return None
        codec = codec_of(name, head)
        form = self._format or format_of(name, plain_head(head, codec))
        topic = topics[0] if len(topics) == 1 else ""
        info = FileInfo(*entry, form, Compression(codec.name), topic, is_described=bool(parts))
        info = replace(info, is_guessed=self._is_guessed(entry.path))
        if form is Format.TOPIC_LOG:
            info = self._companions.topic_log(info)
        elif form is Format.LINES and len(topics) > 1:
            info = self._in_doubt(info, topics)
        if not parts:
            self.topics.update({info.topic} if info.topic else topics)
            if not info.has_one_topic:
                self.knows_topics = False
        if form in LINE_FORMATS:
            info = replace(info, is_live=self._now_ns - info.modified_ns < _SETTLED_NS)
        if form.has_timestamps:
            return info
        return self._with_times(info, parts)

    def topics_of(self, entry: Entry) -> Names:
        """Return the topic of messages that do not have theirs; several if there is a doubt.

        In this order: what the user says, the manifest, the name.
        """
        hint = self._hinted_topic(entry.path)
        if hint:
            return (hint,)
        topics = self._manifests.topics(entry.path)
        return topics or topics_in(entry.path, self._bases[entry])

    def _is_guessed(self, path: str) -> bool:
        """True if only the name of a file says its topic."""
        return not (self._hinted_topic(path) or self._manifests.topics(path) or hive_topic(path))

    def _hinted_topic(self, path: str) -> str | None:
        if self._hints.topic or self._topic_from_name is None:
            return self._hints.topic
        match = self._topic_from_name.search(path)
        return match["topic"] if match else None

    def what_is_cut(self, entry: Entry) -> str:
        """Return a sentence about a file that is smaller than the manifest says; "" if it is not, or is not requested."""
        return what_is_cut(entry, self._as_hinted(entry, self._manifests.parts(entry.path)), self._requested)

    def _parts(self, entry: Entry) -> list[FilePart]:
        """Return what the manifest says of a file."""
        return self._as_hinted(entry, self._manifests.complete(entry))

    def _as_hinted(self, entry: Entry, parts: Sequence[FilePart]) -> list[FilePart]:
        """Return parts with the topic of `lines` that the user knows better."""
        hint = self._hinted_topic(entry.path)
        return [part._replace(topic=hint) if hint and part.format is Format.LINES else part for part in parts]

    def _in_doubt(self, info: FileInfo, topics: Names) -> FileInfo:
        """Return a file of lines with its topic, or as unwanted if none of the topics that it may have is requested."""
        if not any(map(self._requested.has_topic, topics)):
            return replace(info, topic=topics[-1], is_unwanted=True)
        names = ", ".join(topics)
        if self._manifests.topics(info.path):
            why = f"{info.path} has lines of the topics {names}, which cannot be told apart"
        elif topic := likeliest(topics, self._requested.topics or frozenset()):
            return replace(info, topic=topic)
        else:
            why = f"{info.path}: its name fits the topics {names}, and no manifest says which"
        raise ArchiveError(f"{why}: {say_the_topic(info.path, topics)}")

    def _with_times(self, info: FileInfo, parts: Sequence[FilePart]) -> FileInfo:
        """Return a file that keeps no times with those of the manifest, or else with the hour in its name."""
        parts = [part for part in parts if not part.is_empty]
        spans = [part.times for part in parts if part.times]
        if spans and len(spans) == len(parts):
            first_ns = min(first for first, _ in spans)
            last_ns = max(last for _, last in spans)
            return replace(info, first_ns=first_ns, end_ns=last_ns + 1)
        times = time_in(name_of(info.path), self._zone)
        if times:
            return replace(info, first_ns=times[0], end_ns=times[1], has_time_of_name=True)
        return info


def _format(given: str | None) -> Format | None:
    try:
        return Format(given) if given else None
    except ValueError:
        raise ArchiveError(f"{given!r} is no format; there are {', '.join(Format)}") from None
