"""The job and the Spark that the command's options ask for. Pure, but for the size of the archive."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nsq_spark.archive.damage import ArchiveError
from nsq_spark.archive.listing import TOPIC_FROM_NAME, Hints, find
from nsq_spark.archive.storage import Storage, is_local
from nsq_spark.archive.wanted import Wanted
from nsq_spark.replay.errors import BadJob
from nsq_spark.replay.filter import needs_spark
from nsq_spark.replay.job import Destination, Job, Pacing, Safety, Selection
from nsq_spark.replay.options import BY_TIME, MAX_SPEED, ReplayOptions
from nsq_spark.session import COMPUTING, LIGHT, is_master
from nsq_tools.cli import BadUsage
from nsq_tools.options import client_options, user_agent
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.runtime.hidden import hidden_value
from nsqd_py.settings.durations import SECOND_NS, parse_time
from nsqd_py.settings.regex import BadExpression, compiled

_HADOOP = "spark.hadoop."
_FACTOR = re.compile(r"(\d+(?:\.\d+)?|\.\d+)([x%]?)")
# A predicate takes LIGHT 4.6 us a message, and COMPUTING 3.1 us and 2 s more to start: equal at 1.3 million messages,
# which an archive of this size does not have, unless it is compressed well.
_SMALL_BYTES = 256 * 1024 * 1024


class SparkWanted(NamedTuple):
    """The Spark to start. `uses_sql`: Spark SQL has to compute something."""

    master: str
    conf: Mapping[str, str]
    java_options: str
    uses_sql: bool = False


def job_of(options: ReplayOptions, now_ns: int) -> Job:
    """Raises BadUsage."""
    if options.checkpoint and not is_local(options.checkpoint):
        raise BadUsage(
            f"--checkpoint {options.checkpoint}: it must be a local or mounted directory; an object store can neither "
            "lock a file nor append to it"
        )
    conf = parse_conf(options.conf).items()
    try:
        return Job(
            paths=tuple(options.archive),
            selection=_selection(options, now_ns),
            destination=Destination(
                tuple(options.nsqd_tcp_address),
                tuple(options.lookupd_http_address),
                client_options(options.producer_opt, "producer-opt", user_agent=user_agent("spark_replay")),
                _topic_map(options.topic_map),
                options.to_topic or None,
                options.defer_ns / SECOND_NS,
                options.batch_bytes,
            ),
            pacing=Pacing(options.rate, _speed(options.speed), options.order == BY_TIME),
            safety=Safety(options.checkpoint or None, options.skip_damaged, options.give_up_after_ns / SECOND_NS),
            storage={name.removeprefix(_HADOOP): value for name, value in conf if name.startswith(_HADOOP)},
            hints=_hints(options),
            parallelism=options.parallelism,
        )
    except BadJob as error:
        raise BadUsage(str(error)) from None


def _speed(text: str) -> float | None:
    """Return 1 for the gaps of the archive, 2 for half of them; None for max."""
    if text == MAX_SPEED:
        return None
    match = _FACTOR.fullmatch("1x" if text == "original" else text)
    if not match or match[2] != "x" or not float(match[1]):
        raise BadUsage(f"--speed must be original, max, or a factor such as 2x, got {text!r}")
    return float(match[1])


def _share(text: str) -> float | None:
    """Return 0.01 for `0.01` and for `1%`; None for no text."""
    match = _FACTOR.fullmatch(text or "1")
    share = float(match[1]) / (100 if match[2] else 1) if match and match[2] != "x" else 0.0
    if not 0 < share <= 1:
        raise BadUsage(f"--sample must be more than 0 and at most 1, or 100%, got {text!r}")
    return share if text else None


def _topic_map(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the (old, new) of each `old=new`."""
    pairs: dict[str, str] = {}
    for text in given:
        old, equals, new = text.partition("=")
        if not equals or not old or not is_valid_name(new.encode("utf-8", "surrogateescape")):
            raise BadUsage(f"--topic-map must be old=new, where new is a valid topic name, got {text!r}")
        if pairs.setdefault(old, new) != new:
            raise BadUsage(f"--topic-map gives two names to {old!r}: {pairs[old]!r} and {new!r}")
    return tuple(pairs.items())


def _selection(options: ReplayOptions, now_ns: int) -> Selection:
    start_ns, end_ns = (_time(flag, getattr(options, flag), now_ns) for flag in ("start", "end"))
    if start_ns is not None and end_ns is not None and start_ns >= end_ns:
        raise BadUsage(f"--start {options.start!r} must be before --end {options.end!r}")
    for flag, pattern in ("topic-pattern", options.topic_pattern), ("grep", options.grep):
        try:
            compiled(pattern)
        except BadExpression as error:
            raise BadUsage(f"--{flag} {pattern!r} is not a regular expression: {error}") from None
    return Selection(
        Wanted(frozenset(options.topic) or None, options.topic_pattern or None, start_ns, end_ns),
        options.where or None,
        options.grep or None,
        _share(options.sample),
        options.limit,
        options.dedupe,
        options.start,
        options.end,
        options.json_schema or None,
    )


def _time(flag: str, text: str, now_ns: int) -> int | None:
    try:
        return parse_time(text, now_ns) if text else None
    except ValueError as error:
        raise BadUsage(f"--{flag}: {error}") from None


def _hints(options: ReplayOptions) -> Hints:
    pattern = options.topic_from_name or TOPIC_FROM_NAME
    try:
        has_topic = "topic" in re.compile(pattern).groupindex
    except re.error as error:
        raise BadUsage(f"--topic-from-name {pattern!r} is not a regular expression: {error}") from None
    if not has_topic:
        raise BadUsage(f"--topic-from-name {pattern!r} has no group (?P<topic>...)")
    return Hints(
        format=options.format or None,
        topic=options.default_topic or None,
        topic_from_name=pattern,
        unread_only=options.unread_only,
        go_channel=options.go_channel or None,
        time_zone=options.file_time_zone,
    )


def spark_of(options: ReplayOptions) -> SparkWanted:
    """Raises BadUsage."""
    if not is_master(options.master):
        raise BadUsage(
            f"--master: {options.master!r} is no Spark master: local, local[4], local[*], local-cluster[2,1,1024], "
            "spark://host:7077, yarn, k8s://..."
        )
    conf, master = parse_conf(options.conf), options.master
    if options.parallelism and master == "local[*]":
        master = f"local[{options.parallelism}]"
    if options.parallelism and master.startswith("spark:"):
        conf.setdefault("spark.cores.max", str(options.parallelism))
    conf.setdefault("spark.app.name", "spark-replay")
    uses_sql = bool(options.dedupe) or needs_spark(options.where or None, options.json_schema or None)
    return SparkWanted(master, conf, COMPUTING if uses_sql and not _is_small(options.archive) else LIGHT, uses_sql=uses_sql)


def parse_conf(given: Sequence[str]) -> dict[str, str]:
    """Return the values of --conf. Raises BadUsage."""
    conf = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise BadUsage(f"--conf must be spark.name=value, got {hidden_value(text)!r}")
        conf[name] = value
    if "spark.master" in conf:
        raise BadUsage("use --master in place of --conf spark.master")
    return conf


def _is_small(paths: Sequence[str]) -> bool:
    """True if the archive is on this machine and is known to be small."""
    if not all(map(is_local, paths)):
        return False
    try:
        return sum(entry.size_bytes for entry in find(paths, Storage()).entries) <= _SMALL_BYTES
    except ArchiveError:
        return False
