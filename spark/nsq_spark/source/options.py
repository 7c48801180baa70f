"""The options of `nsq`, declared once: their names, what they may be, and what follows from them.

Spark gives options as texts and their names in lower case. A name that is not known is refused: with a wrong one,
other messages would be read than were asked for.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from pyspark.sql.types import BinaryType, ByteType, IntegerType, LongType, ShortType, StringType, StructType

from nsq_spark.archive.listing import Hints
from nsq_spark.archive.names import zone_of
from nsq_spark.archive.splits import DEFAULT_SPLIT_BYTES, ArchiveError, Wanted
from nsq_spark.archive.storage import Storage
from nsq_spark.schema import COLUMNS, DDL
from nsqd_py.client.addresses import parse_address
from nsqd_py.client.errors import BadAddress, BadClientOption, NsqClientError
from nsqd_py.client.lookup import nodes_url
from nsqd_py.client.options import ClientOptions
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.settings.durations import SECOND_NS, parse_duration, parse_time
from nsqd_py.settings.types import parse_bool, parse_size

_SMALLEST_SPLIT_BYTES = 16 * 1024 * 1024
_TASKS_OF_SMALL = 8
HADOOP, CLIENT = "fs.", "nsq."
_WITHOUT_OFFSET = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ][\d:.]+)?")
# A task that waits for rows answers none, and nsqd is not to close its connection for that.
_NO_HEARTBEATS = {"heartbeat_interval": "-1"}
# Hadoop's names that are not all in lower case.
_HADOOP_NAMES = {"fs.defaultfs": "fs.defaultFS"}


class BadOption(ValueError):
    """An option that does not exist, is missing, or cannot have its value; the text names it."""


# ---- kinds of options: functions that parse a text, and raise ValueError


def at_least_one(parse: Callable[[str], int]) -> Callable[[str], int]:
    def parse_checked(text: str) -> int:
        value = parse(text)
        if value < 1:
            raise ValueError("expected 1 or more")
        return value

    return parse_checked


def parse_seconds(text: str) -> float:
    return parse_duration(text) / SECOND_NS


def parse_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _parse_paths(text: str) -> tuple[str, ...]:
    """Return the paths of `load([...])`, which Spark gives as JSON."""
    paths = json.loads(text)
    if not isinstance(paths, list):
        raise ValueError("expected a list in JSON")
    return tuple(map(str, paths))


def _parse_zone(text: str) -> tzinfo:
    try:
        return zone_of(text)
    except ArchiveError as error:
        raise ValueError(str(error)) from None


@dataclass(frozen=True)
class Option:
    """An option. `default` is as a user would write it, "" for none; `aliases` are Kafka's names for it."""

    name: str
    parse: Callable[[str], Any]
    default: str
    meaning: str
    aliases: tuple[str, ...] = ()


_size = at_least_one(parse_size)

TIME_ZONE = Option("timeZone", _parse_zone, "", "time zone of times without an offset; default: the session's (below)")

READ_OPTIONS = (
    Option("path", str, "", "file, directory (recursively) or glob; `load(path)` sets it"),
    Option("paths", _parse_paths, "", "several paths; `load([...])` sets them"),
    Option("topic", parse_list, "", "only these topics, separated by commas", aliases=("subscribe",)),
    Option("topicPattern", str, "", "also topics in which this RE2 expression matches anywhere", aliases=("subscribePattern",)),
    Option(
        "startTime",
        str,
        "",
        "published at this time or later: RFC 3339, seconds since the epoch, or `-2h`",
        aliases=("startingTimestamp",),
    ),
    Option("endTime", str, "", "published before this time", aliases=("endingTimestamp",)),
    TIME_ZONE,
    Option("format", str, "", "`lines`, `jsonl`, `framed`, `parquet` or `topic_log`; default: detected"),
    Option("defaultTopic", str, "", "topic of messages whose file does not store it (`lines`)"),
    Option(
        "topicFromName",
        str,
        "",
        "without `defaultTopic`: the group `topic` of this regular expression, in the path; default: below",
    ),
    Option("fileTimeZone", str, "", "time zone of the hours in names of files of `lines`; default: below"),
    Option("skipDamaged", parse_bool, "false", "skip damaged records and count them, instead of failing"),
    Option("splitBytes", _size, "", "bytes that a task reads; default: 64 MiB, less for small archives"),
)
WRITE_OPTIONS = (
    Option("nsqdTcpAddress", parse_list, "", "TCP addresses (host:port) of the nsqds to publish to, separated by commas"),
    Option("lookupdHttpAddress", parse_list, "", "HTTP addresses of the nsqlookupds that name them"),
    Option("topic", str, "", "topic of all messages; default: the column `topic`"),
    Option("batchBytes", _size, "128KiB", "approximate size of an MPUB"),
    Option("giveUpAfter", parse_seconds, "60s", "how long to retry when nsqd is down or full"),
)

# What Spark itself adds, and an option of Kafka's source that may only be false.
_INCLUDE_HEADERS = "includeHeaders"
_SPARKS_OWN = ("path", "checkpointLocation", "queryName", "outputMode", TIME_ZONE.name, _INCLUDE_HEADERS)


# ---- what they mean


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read; see READ_OPTIONS. Times are ns since the epoch."""

    paths: tuple[str, ...]
    storage: Storage
    hints: Hints
    wanted: Wanted
    skip_damaged: bool
    split_bytes: int | None


@dataclass(frozen=True)
class WriteOptions:
    """The options of a write; see WRITE_OPTIONS."""

    nsqd_tcp_addresses: tuple[str, ...]
    lookupd_http_addresses: tuple[str, ...]
    client: ClientOptions
    topic: str
    batch_bytes: int
    give_up_after_s: float


def read_options(given: Mapping[str, str], now_ns: int) -> ReadOptions:
    """Raises BadOption."""
    values = Values(given, READ_OPTIONS, prefixes=(HADOOP,))
    paths = values["paths"] or tuple(filter(None, [values["path"]]))
    if not paths:
        raise BadOption("nsq: option path: no path is given, as in load('/archive')")
    wanted = Wanted(
        frozenset(values["topic"]) if values["topic"] else None,
        values["topicPattern"],
        values.time("startTime", now_ns),
        values.time("endTime", now_ns),
    )
    check_wanted(wanted)
    return ReadOptions(
        paths=paths,
        storage=Storage({_HADOOP_NAMES.get(name, name): value for name, value in values.with_prefix(HADOOP)}),
        hints=Hints(values["format"], values["defaultTopic"], values["topicFromName"] or "", values["fileTimeZone"] or ""),
        wanted=wanted,
        skip_damaged=values["skipDamaged"],
        split_bytes=values["splitBytes"],
    )


def split_bytes(given: int | None, total_bytes: int) -> int:
    """Return the bytes that a task reads: without an option, so that at most eight tasks read a small archive, since a
    task costs 40 ms. The number of cores is not known.
    """
    return given or min(DEFAULT_SPLIT_BYTES, max(_SMALLEST_SPLIT_BYTES, total_bytes // _TASKS_OF_SMALL))


def check_wanted(wanted: Wanted) -> None:
    try:
        wanted.has_topic("")
    except ArchiveError as error:
        raise BadOption(f"nsq: option topicPattern: {error}") from None
    if wanted.start_ns is not None and wanted.end_ns is not None and wanted.start_ns >= wanted.end_ns:
        raise BadOption("nsq: option endTime: it is not later than startTime, so nothing is in between")


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Raises BadOption."""
    values = Values(given, WRITE_OPTIONS, prefixes=(CLIENT, HADOOP))
    nsqds, lookupds, topic = values["nsqdTcpAddress"] or (), values["lookupdHttpAddress"] or (), values["topic"] or ""
    if not nsqds and not lookupds:
        raise BadOption("nsq: option nsqdTcpAddress or lookupdHttpAddress is needed: where to publish to")
    check_each("nsqdTcpAddress", nsqds, parse_address)
    check_each("lookupdHttpAddress", lookupds, nodes_url)
    if topic and not is_valid_name(topic.encode()):
        raise BadOption(f"nsq: option topic: {topic!r} is no valid name of a topic")
    return WriteOptions(nsqds, lookupds, client_options(values), topic, values["batchBytes"], values["giveUpAfter"])


def client_options(values: Values) -> ClientOptions:
    settings = {name.removeprefix(CLIENT): value for name, value in values.with_prefix(CLIENT)}
    try:
        return ClientOptions.of(**_NO_HEARTBEATS | settings)
    except BadClientOption as error:
        names = ", ".join(CLIENT + name for name in settings)
        raise BadOption(f"nsq: option {names}: {error}") from None


def check_each(name: str, addresses: Iterable[str], check: Callable[[str], object]) -> None:
    """Raises BadOption with the name of the option, if an address of it is not valid."""
    for address in addresses:
        try:
            check(address)
        except (BadAddress, NsqClientError, ValueError) as error:
            raise BadOption(f"nsq: option {name}: {error}") from None


class Values:
    """Options by their documented names, parsed. Raises BadOption."""

    def __init__(self, given: Mapping[str, str], declared: Iterable[Option], prefixes: tuple[str, ...]) -> None:
        self._declared = {option.name: option for option in declared}
        self._given = {name.lower(): value for name, value in given.items()}
        for option in self._declared.values():
            self._rename(option)
        self._check_names(prefixes)

    def _rename(self, option: Option) -> None:
        for alias in option.aliases:
            value = self._given.pop(alias.lower(), None)
            if value is not None and self._given.setdefault(option.name.lower(), value) != value:
                raise BadOption(f"nsq: options {option.name} and {alias} are the same, but have two values")

    def _check_names(self, prefixes: tuple[str, ...]) -> None:
        known = {name.lower(): name for name in (*self._declared, *_SPARKS_OWN)}
        for name in self._given:
            if name not in known and not name.startswith(prefixes):
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"; is it {known[near[0]]}?" if near else f" (there are {', '.join(self._declared)})"
                raise BadOption(f"nsq: there is no option {name}{hint}")
        if self._given.get(_INCLUDE_HEADERS.lower(), "false").lower() != "false":
            raise BadOption(f"nsq: option {_INCLUDE_HEADERS}: NSQ's messages have no headers, so it may only be false")

    def __getitem__(self, name: str) -> Any:
        """Return the value of an option; None if it is not given and has no default."""
        option = self._declared[name]
        text = self._given.get(name.lower(), option.default)
        try:
            return option.parse(text) if text else None
        except ValueError as error:
            raise BadOption(f"nsq: option {name} ({text!r}): {error}") from None

    def time(self, name: str, now_ns: int) -> int | None:
        text: str | None = self[name]
        try:
            return parse_time(self._with_offset(name, text.strip()), now_ns) if text else None
        except BadOption:  # it names the option
            raise
        except ValueError as error:
            raise BadOption(f"nsq: option {name}: {error}") from None

    def _with_offset(self, name: str, text: str) -> str:
        """Return a time with the offset of the time zone, if it has none."""
        if not _WITHOUT_OFFSET.fullmatch(text):
            return text
        zone = self[TIME_ZONE.name]
        if zone is None:
            raise BadOption(f"nsq: option {name}: {text!r} has no offset: append Z or +02:00, or set the option timeZone")
        text = text if len(text) > len("2024-07-01") else f"{text}T00:00"
        return text + datetime.fromisoformat(text).replace(tzinfo=zone).isoformat()[-len("+02:00") :]

    def with_prefix(self, prefix: str) -> list[tuple[str, str]]:
        return [(name, value) for name, value in self._given.items() if name.startswith(prefix)]


# ---- columns, by the schema that Spark gives

_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_TYPES = {
    "body": ("BINARY or STRING", (BinaryType, StringType)),
    "topic": ("STRING", (StringType,)),
    "defer_ms": ("a whole number of milliseconds", _WHOLE),
}


def read_columns(schema: StructType) -> tuple[str, ...]:
    """Return the names, in order: any of ours, in any order. Raises BadOption."""
    ours = {column.name: column.ddl.lower() for column in COLUMNS}
    for field in schema.fields:
        if ours.get(field.name) != field.dataType.simpleString() or not field.nullable:
            what = f"{field.name} {field.dataType.simpleString().upper()}{'' if field.nullable else ' NOT NULL'}"
            raise BadOption(f"nsq: there is no column {what}; a schema is any of {DDL}")
    if not schema.fields:
        raise BadOption("nsq: a schema without columns")
    return tuple(schema.fieldNames())


@dataclass(frozen=True)
class WriteColumns:
    """Places of columns; None where there is none."""

    body: int
    topic: int | None
    defer_ms: int | None


def write_columns(schema: StructType, topic: str) -> WriteColumns:
    """Return where the columns to publish are. The option `topic` takes precedence over the column; `value`, as in
    Kafka's sink, stands for `body`. Other columns are ignored, except those of Kafka's messages. Raises BadOption.
    """
    places = {name: place for place, name in enumerate(schema.fieldNames())}
    lost = {"headers"}
    if "body" not in places and "value" in places:
        places["body"] = places["value"]
        lost |= {"key", "partition"}
    lost &= places.keys()
    if lost:
        raise BadOption(f"nsq: column {min(lost)} cannot be published: NSQ's messages have none; drop it")
    for name, (words, kinds) in _TYPES.items():
        if name in places and not isinstance(schema.fields[places[name]].dataType, kinds):
            kind = schema.fields[places[name]].dataType.simpleString()
            raise BadOption(f"nsq: column {schema.fieldNames()[places[name]]} is {kind}, but has to be {words}")
    if "body" not in places:
        raise BadOption(f"nsq: there is no column body among {', '.join(places)}: what is to be published?")
    if not topic and "topic" not in places:
        raise BadOption("nsq: option topic is needed, or a column topic: where are the messages to go?")
    return WriteColumns(places["body"], None if topic else places["topic"], places.get("defer_ms"))
