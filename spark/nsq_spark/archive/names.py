"""Topics and times in the names of files.

nsq_to_file's default name is <TOPIC>.<HOST><REV>.<DATETIME>.log, and --filename-format may say otherwise: directories may have
the name of the topic, and topics may have dots. So a name may mean several topics.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

from nsq_spark.archive.splits import ArchiveError, Names, Span
from nsq_spark.archive.storage import directory_of, name_of
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.stores.directories import MESSAGE_SUFFIXES
from nsqd_py.stores.directories import hive_topic as hive_topic
from nsqd_py.stores.formats import name_without_compression

_OFFSET = re.compile(r"(?:UTC|GMT)?([+-]\d\d:\d\d)")
_TIME = re.compile(
    r"(?<!\d)(?P<day>(?:19|2[01])\d\d-\d\d-\d\d)(?:[_T](?P<hour>\d\d)(?:[-_:]?(?P<minute>\d\d)(?!\d))?)?"
    r"(?:(?P<utc>Z|UTC|GMT)(?![A-Za-z])|(?P<offset>[+-](?:0\d|1[0-4])(?:00|15|30|45))(?!\d))?(?!\d)"
)
# The clocks of the world are between 12 hours behind UTC and 14 hours before it. An hour more, since a message of
# the end of an hour is often written in the next one.
_EARLIEST = timedelta(hours=14 + 1)
_LATEST = timedelta(hours=12 + 1)
# Parts of times, and Hive's directories.
_NO_TOPIC = re.compile(r"(?:\d[\d_.:TZ+-]*)?|\w+=.*")
# The topic of <TOPIC>.<HOST><REV>.<DATETIME>.log, with dots, if the host has none.
_DOTTED_TOPIC = r"(?P<topic>[^/]+)[.][^/.]+[.]\d{4}-\d\d-\d\d[^/]*$"
SAY_THE_TOPIC = (
    "set defaultTopic to the topic, or topicFromName to a pattern that finds it, such as "
    f"topicFromName='{_DOTTED_TOPIC}' if hosts have no dots (spark-replay: --default-topic, --topic-from-name)"
)


# ---- times


def zone_of(name: str) -> tzinfo:
    """Return the time zone of a name, or of an offset as Spark writes it: +02:00, UTC+02:00. Raises ArchiveError."""
    if name == "UTC":
        return UTC
    try:
        offset = _OFFSET.fullmatch(name)
        if offset:
            return datetime.strptime(offset[1], "%z").tzinfo or UTC
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # no such zone is a KeyError, and an OSError on some systems
        raise ArchiveError(
            f"{name!r} is no time zone; it has to be a name such as UTC or Europe/Rome"
        ) from None


def time_in(name: str, zone: tzinfo | None) -> Span | None:
    """Return (first, end) of the last time in a file name, in ns since the epoch, `end` not included; None if there is
    none.

    zone  of times that do not say theirs; None: any zone, so that `first` is early and `end` late
    """
    for match in reversed(list(_TIME.finditer(name))):
        try:
            local = datetime.fromisoformat(
                f"{match['day']}T{match['hour'] or '00'}:{match['minute'] or '00'}"
            )
        except ValueError:
            continue
        known = _zone_in(match) or zone
        first, end = _span(local.replace(tzinfo=known or UTC), match)
        if known is None:
            first -= _EARLIEST
            end += _LATEST
        return int(first.timestamp()) * SECOND_NS, int(end.timestamp()) * SECOND_NS
    return None


def has_zone(name: str) -> bool:
    """True if the last time in a file name says its zone."""
    return any(_zone_in(match) for match in list(_TIME.finditer(name))[-1:])


def _zone_in(match: re.Match[str]) -> tzinfo | None:
    if match["offset"]:
        return datetime.strptime(match["offset"], "%z").tzinfo
    return UTC if match["utc"] else None


def _span(begin: datetime, match: re.Match[str]) -> tuple[datetime, datetime]:
    if not match["hour"]:
        return begin, begin + timedelta(days=1)  # of 23 or 25 hours, when clocks change
    # Where clocks are set back, an hour comes twice: `fold` is the second.
    latest = max(begin.astimezone(UTC), begin.replace(fold=1).astimezone(UTC))
    return begin, latest + (timedelta(minutes=1) if match["minute"] else timedelta(hours=1))


# ---- topics


def topics_in(path: str, base: str) -> Names:
    """Return the topics that a file may be of by its path: one, or several in doubt.

    base  the path of a directory that the file was found in; names of directories below it may be topics
    """
    topic = hive_topic(path)
    if topic:
        return (topic,)
    directory = directory_of(path)
    name = _Name.of(name_of(path))
    below = _directory_topic(directory.removeprefix(base.rstrip("/")))
    if not _NO_TOPIC.fullmatch(name.before):
        parts = name.before.split(".")
        if len(parts) == 1 and name.behind is not None and below not in ("", name.before):
            return name.before, below
        longest = max(1, len(parts) - 1) if name.is_of_archive else 1
        return tuple(".".join(parts[:count]) for count in range(1, longest + 1))
    if below:
        return (below,)
    behind = name.behind or ""
    if name.behind is None and not _NO_TOPIC.fullmatch(name_of(directory)):
        return (name.before or name_of(path),)
    host_or_topic = "" if _NO_TOPIC.fullmatch(behind) else behind.partition(".")[0]
    return tuple(filter(None, (host_or_topic, _directory_topic(directory)))) or (name_of(path),)


def likeliest(topics: Names, requested: frozenset[str]) -> str | None:
    """Return the only one of these topics that is requested; None if that leaves a doubt: where "orders.eu" is possible, a
    file that is asked for as "orders" may be of either.
    """
    longest = [topic for topic in topics if not any(other.startswith(f"{topic}.") for other in topics)]
    found = [topic for topic in longest if topic in requested]
    return found[0] if len(found) == 1 else None


class _Name(NamedTuple):
    """A name without its suffixes: what is before and behind its last time; all of it is before, and `behind` None, if it has
    no time.

    is_of_archive  it has a time, or the suffix of an archive
    """

    before: str
    behind: str | None
    is_of_archive: bool

    @classmethod
    def of(cls, name: str) -> _Name:
        with_suffix = name_without_compression(name)
        plain = with_suffix
        for suffix in MESSAGE_SUFFIXES:
            plain = plain.removesuffix(suffix)
        times = list(_TIME.finditer(plain))
        if not times:
            return cls(plain, None, is_of_archive=plain != with_suffix)
        last = times[-1]
        return cls(plain[: last.start()].rstrip("._-"), plain[last.end() :].lstrip("._-"), is_of_archive=True)


def _directory_topic(directories: str) -> str:
    """Return the name of the last directory that may be a topic; "" if there is none. Days and hours are none."""
    names = (name for name in reversed(directories.split("/")) if not _NO_TOPIC.fullmatch(name))
    return next((name for name in names if is_valid_name(name.encode())), "")


def topic_expression(pattern: str) -> re.Pattern[str]:
    """Raises ArchiveError."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ArchiveError(
            f"the expression for topics {pattern!r} is no regular expression: {error}"
        ) from None
    if "topic" not in compiled.groupindex:
        raise ArchiveError(f"the expression for topics {pattern!r} has no group (?P<topic>...)")
    return compiled
