"""What is asked for: a job, made of the settings. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from nsq_tools.cli import BadUsage
from nsq_tools.options import client_options, user_agent
from nsq_tools.tail.rendering import compile_search

from nsq_spark.archive.listing import TOPIC_FROM_NAME, Hints
from nsq_spark.archive.storage import is_local
from nsq_spark.archive.wanted import Wanted
from nsq_spark.replay.command.spark_wanted import parse_conf
from nsq_spark.replay.errors import BadJob
from nsq_spark.replay.job import Destination, Job, Pacing, Safety, Selection
from nsq_spark.replay.options import BY_TIME, MAX_SPEED, ReplayOptions
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.timestamps import parse_time

_HADOOP = "spark.hadoop."
_SPEED = re.compile(r"(\d+(?:\.\d+)?|\.\d+)x")
_SHARE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(%?)")


def job_of(options: ReplayOptions, now_ns: int) -> Job:
    """Raises BadUsage."""
    if options.checkpoint and not is_local(options.checkpoint):
        raise BadUsage(
            f"--checkpoint {options.checkpoint}: it has to be a local or mounted directory; an object "
            "store can neither lock a file nor add to it"
        )
    try:
        return Job(
            paths=tuple(options.archive),
            selection=_selection(options, now_ns),
            destination=_destination(options),
            pacing=Pacing(options.rate, parse_speed(options.speed), options.order == BY_TIME),
            safety=Safety(options.checkpoint or None, options.skip_damaged, options.give_up_after_ns / SECOND_NS),
            storage=_storage(parse_conf(options.conf)),
            hints=_hints(options),
            parallelism=options.parallelism,
        )
    except BadJob as error:
        raise BadUsage(str(error)) from None


def parse_speed(text: str) -> float | None:
    """1 keeps the gaps of the archive, 2 halves them; None pays no heed to them. Raises BadUsage."""
    if text == MAX_SPEED:
        return None
    if text == "original":
        return 1.0
    match = _SPEED.fullmatch(text)
    if not match or not float(match[1]):
        raise BadUsage(f"--speed {text!r} is none: original, max, or a factor such as 2x")
    return float(match[1])


def parse_share(text: str) -> float | None:
    """0.01 of `0.01` and of `1%`; None of nothing. Raises BadUsage."""
    if not text:
        return None
    match = _SHARE.fullmatch(text)
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < share <= 1:
        raise BadUsage(f"--sample {text!r} is no share: more than 0 and at most 1, or 100%")
    return share


def parse_topic_map(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(old, new) of `old=new`. Raises BadUsage."""
    pairs: dict[str, str] = {}
    for text in given:
        old, equals, new = text.partition("=")
        if not equals or not old or not is_valid_name(new.encode("utf-8", "surrogateescape")):
            raise BadUsage(f"--topic-map {text!r} is none: old=new, with the valid name of a topic behind the =")
        if pairs.get(old, new) != new:
            raise BadUsage(f"--topic-map names two topics for {old!r}: {pairs[old]!r} and {new!r}")
        pairs[old] = new
    return tuple(pairs.items())


def _selection(options: ReplayOptions, now_ns: int) -> Selection:
    start_ns, end_ns = (_time(options, flag, now_ns) for flag in ("start", "end"))
    if start_ns is not None and end_ns is not None and start_ns >= end_ns:
        raise BadUsage(f"--start {options.start!r} is not before --end {options.end!r}")
    _check_pattern("topic-pattern", options.topic_pattern)
    _check_pattern("grep", options.grep)
    wanted = Wanted(frozenset(options.topic) or None, options.topic_pattern or None, start_ns, end_ns)
    return Selection(
        wanted, options.where or None, options.grep or None, parse_share(options.sample), options.limit,
        options.dedupe, options.start, options.end, options.json_schema or None,
    )  # fmt: skip


def _time(options: ReplayOptions, flag: str, now_ns: int) -> int | None:
    text = getattr(options, flag)
    if not text:
        return None
    try:
        return parse_time(text, now_ns)
    except ValueError as error:
        raise BadUsage(f"--{flag}: {error}") from None


def _check_pattern(flag: str, pattern: str) -> None:
    try:
        compile_search(pattern)
    except ValueError as error:
        raise BadUsage(f"--{flag} {pattern!r} is no regular expression: {error}") from None


def _destination(options: ReplayOptions) -> Destination:
    return Destination(
        tuple(options.nsqd_tcp_address),
        tuple(options.lookupd_http_address),
        client_options(options.producer_opt, "producer-opt", user_agent=user_agent("spark_replay")),
        parse_topic_map(options.topic_map),
        options.to_topic or None,
        options.defer_ns / SECOND_NS,
        options.batch_bytes,
    )


def _hints(options: ReplayOptions) -> Hints:
    pattern = options.topic_from_name or TOPIC_FROM_NAME
    try:
        has_topic = "topic" in re.compile(pattern).groupindex
    except re.error as error:
        raise BadUsage(f"--topic-from-name {pattern!r} is no regular expression: {error}") from None
    if not has_topic:
        raise BadUsage(f"--topic-from-name {pattern!r} has no group (?P<topic>...)")
    return Hints(
        options.format or None,
        None,
        options.default_topic or None,
        pattern,
        options.unread_only,
        options.go_channel or None,
        options.file_time_zone,
    )


def _storage(conf: Mapping[str, str]) -> dict[str, str]:
    """Hadoop's settings, by Hadoop's names."""
    return {name.removeprefix(_HADOOP): value for name, value in conf.items() if name.startswith(_HADOOP)}
