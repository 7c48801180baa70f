"""The options of archives and of writing, declared once, and what follows from them; and the columns of a schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyspark.sql.types import BinaryType, ByteType, IntegerType, LongType, ShortType, StringType, StructType

from nsq_spark.archive.listing import Hints
from nsq_spark.archive.names import zone_of
from nsq_spark.archive.splits import DEFAULT_SPLIT_BYTES, Damage, Names, Requested
from nsq_spark.archive.storage import Storage
from nsq_spark.schema import COLUMNS, TEXT, ddl
from nsq_spark.source.declaration import (
    PARALLELISM,
    TIME_ZONE,
    Option,
    Texts,
    Values,
    at_least_one,
    errors_of,
    parse_list,
    parse_paths,
    parse_seconds,
)
from nsq_spark.source.declaration import BadOption as BadOption
from nsqd_py.client.addresses import parse_address
from nsqd_py.client.lookup import nodes_url
from nsqd_py.client.options import ClientOptions
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.settings.values import parse_bool, parse_size

_SMALLEST_SPLIT_BYTES = 16 * 1024 * 1024
# As Spark's own readers have it, which know how many tasks run at once.
_LARGEST_SPLIT_BYTES = 128 * 1024 * 1024
_TASKS_OF_SMALL = 8
HADOOP = "fs."
CLIENT = "nsq."
# A task that waits for rows answers none, and nsqd is not to close its connection for that.
_NO_HEARTBEATS = {"heartbeat_interval": "-1"}
# Hadoop's names that are not all in lower case.
_HADOOP_NAMES = {"fs.defaultfs": "fs.defaultFS"}
# The types of the columns that are published.
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_TYPES = {
    "body": ("BINARY or STRING", (BinaryType, StringType)),
    "topic": ("STRING", (StringType,)),
    "defer_ms": ("a whole number of milliseconds", _WHOLE),
}
_size = at_least_one(parse_size)
OF_ZONE = Option(
    TIME_ZONE, zone_of, "", "time zone of times without an offset; default: the session's (below)"
)
OF_PATTERN = Option(
    "topicPattern",
    str,
    "",
    "also topics in which this RE2 expression matches anywhere",
    aliases=("subscribePattern",),
)

READ_OPTIONS = (
    Option("path", str, "", "file, directory (recursively) or glob; `load(path)` sets it"),
    Option("paths", parse_paths, "", "several paths; `load([...])` sets them"),
    Option("topic", parse_list, "", "only these topics, separated by commas", aliases=("subscribe",)),
    OF_PATTERN,
    Option(
        "startTime",
        str,
        "",
        "published at this time or later: RFC 3339, seconds since the epoch, or `-2h`",
        aliases=("startingTimestamp",),
    ),
    Option("endTime", str, "", "published before this time", aliases=("endingTimestamp",)),
    OF_ZONE,
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
    Option("splitBytes", _size, "", "bytes that a task reads; default: below"),
    Option(
        PARALLELISM,
        at_least_one(int),
        "",
        "tasks that run at once, which share a small archive; default: the session's (below)",
    ),
)
WRITE_OPTIONS = (
    Option(
        "nsqdTcpAddress",
        parse_list,
        "",
        "TCP addresses (host:port) of the nsqds to publish to, separated by commas",
    ),
    Option("lookupdHttpAddress", parse_list, "", "HTTP addresses of the nsqlookupds that name them"),
    Option("topic", str, "", "topic of all messages; default: the column `topic`"),
    Option("batchBytes", _size, "128KiB", "approximate size of an MPUB"),
    Option("giveUpAfter", parse_seconds, "60s", "how long to retry when nsqd is down or full"),
)


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read; see READ_OPTIONS. Times are ns since the epoch."""

    paths: Names
    storage: Storage
    hints: Hints
    requested: Requested
    skip_damaged: bool
    split_bytes: int | None
    parallelism: int | None = None

    def damage(self) -> Damage:
        """Return what skips damage, or fails, as the option says."""
        return Damage("skip" if self.skip_damaged else "fail")


class WriteOptions(NamedTuple):
    """The options of a write; see WRITE_OPTIONS."""

    nsqd_tcp_addresses: Names
    lookupd_http_addresses: Names
    client: ClientOptions
    topic: str
    batch_bytes: int
    give_up_after_s: float


def read_options(given: Texts, now_ns: int) -> ReadOptions:
    """Raises BadOption."""
    values = Values(given, READ_OPTIONS, prefixes=(HADOOP,))
    requested = Requested(
        frozenset(values["topic"]) or None,
        values["topicPattern"],
        values.time("startTime", now_ns),
        values.time("endTime", now_ns),
    )
    hints = Hints(
        values["format"], values["defaultTopic"], values["topicFromName"] or "", values["fileTimeZone"] or ""
    )
    found = archive_in(values, requested, hints)
    if found is None:
        raise BadOption("nsq: option path: no path is given, as in load('/archive')")
    check_requested(requested)
    return replace(found, parallelism=values[PARALLELISM])


def archive_in(values: Values, requested: Requested, hints: Hints) -> ReadOptions | None:
    """Return the options of an archive; None if there is no path of one. Raises BadOption."""
    paths = values["paths"] or tuple(filter(None, [values["path"]]))
    settings = {_HADOOP_NAMES.get(name, name): value for name, value in values.with_prefix(HADOOP)}
    if not paths:
        return None
    return ReadOptions(
        paths, Storage(settings), hints, requested, values["skipDamaged"], values["splitBytes"]
    )


def split_bytes(given: int | None, total_bytes: int, parallelism: int | None = None) -> int:
    """Return the bytes that a task reads, which costs 30 ms itself: without an option, as many tasks read a small archive as run
    at once, or eight where this is not known.
    """
    if given:
        return given
    largest = _LARGEST_SPLIT_BYTES if parallelism else DEFAULT_SPLIT_BYTES
    return min(largest, max(_SMALLEST_SPLIT_BYTES, total_bytes // (parallelism or _TASKS_OF_SMALL)))


def check_requested(requested: Requested) -> None:
    with errors_of("topicPattern"):
        requested.has_topic("")
    if (
        requested.start_ns is not None
        and requested.end_ns is not None
        and requested.start_ns >= requested.end_ns
    ):
        raise BadOption("nsq: option endTime: it is not later than startTime, so nothing is in between")


def write_options(given: Texts) -> WriteOptions:
    """Raises BadOption."""
    values = Values(given, WRITE_OPTIONS, prefixes=(CLIENT, HADOOP))
    nsqds, lookupds, topic = values["nsqdTcpAddress"], values["lookupdHttpAddress"], values["topic"] or ""
    if not (nsqds or lookupds):
        raise BadOption("nsq: option nsqdTcpAddress or lookupdHttpAddress is needed: where to publish to")
    check_each("nsqdTcpAddress", nsqds, parse_address)
    check_each("lookupdHttpAddress", lookupds, nodes_url)
    if topic and not is_valid_name(topic.encode()):
        raise BadOption(f"nsq: option topic: {topic!r} is no valid name of a topic")
    return WriteOptions(
        nsqds, lookupds, client_options(values), topic, values["batchBytes"], values["giveUpAfter"]
    )


def client_options(values: Values) -> ClientOptions:
    given = values.with_prefix(CLIENT)
    settings = {name.removeprefix(CLIENT): value for name, value in given}
    with errors_of(", ".join(CLIENT + name for name in settings)):
        return ClientOptions.of(**_NO_HEARTBEATS | settings)


def check_each(name: str, addresses: Iterable[str], check: Callable[[str], object]) -> None:
    """Raises BadOption with the name of the option, if an address of it is not valid."""
    for address in addresses:
        with errors_of(name):
            check(address)


# ---- columns, by the schema that Spark gives


def read_columns(schema: StructType) -> Names:
    """Return the names, in order: any of ours, in any order. Raises BadOption."""
    ours = {column.name: column.ddl.lower() for column in COLUMNS} | {TEXT: "string"}
    for field in schema.fields:
        if ours.get(field.name) != field.dataType.simpleString() or not field.nullable:
            what = (
                f"{field.name} {field.dataType.simpleString().upper()}{'' if field.nullable else ' NOT NULL'}"
            )
            raise BadOption(f"nsq: there is no column {what}; a schema is any of {ddl()}, {TEXT} STRING")
    if not schema.fields:
        raise BadOption("nsq: a schema without columns")
    return tuple(schema.fieldNames())


class WriteColumns(NamedTuple):
    """Indexes of columns; None where there is none."""

    body: int
    topic: int | None
    defer_ms: int | None


def write_columns(schema: StructType, topic: str) -> WriteColumns:
    """Return where the columns to publish are. The option `topic` takes precedence over the column; `value`, as in
    Kafka's sink, stands for `body`. Other columns are ignored, except those of Kafka's messages. Raises BadOption.
    """
    indexes = {name: index for index, name in enumerate(schema.fieldNames())}
    lost = {"headers"}
    if "body" not in indexes and "value" in indexes:
        indexes["body"] = indexes["value"]
        lost |= {"key", "partition"}
    lost &= indexes.keys()
    if lost:
        raise BadOption(f"nsq: column {min(lost)} cannot be published: NSQ's messages have none; drop it")
    for name, (words, kinds) in _TYPES.items():
        field = None
        if name in indexes:
            field = schema[indexes[name]]
        if field and not isinstance(field.dataType, kinds):
            raise BadOption(
                f"nsq: column {field.name} is {field.dataType.simpleString()}, but has to be {words}"
            )
    if "body" not in indexes:
        raise BadOption(f"nsq: there is no column body among {', '.join(indexes)}: what is to be published?")
    if not topic and "topic" not in indexes:
        raise BadOption("nsq: option topic is needed, or a column topic: where are the messages to go?")
    return WriteColumns(indexes["body"], None if topic else indexes["topic"], indexes.get("defer_ms"))
