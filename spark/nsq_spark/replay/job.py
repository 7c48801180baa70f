"""The job of a replay: which messages to send, where, and how fast. The same on the driver and on executors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from nsq_spark.archive.listing import Hints
from nsq_spark.archive.splits import Requested
from nsq_spark.archive.storage import identical, is_local
from nsq_spark.replay.options import BATCH_BYTES, BY_TIME, MAX_SPEED, Dedupe, ReplayOptions
from nsqd_py.client.options import ClientOptions
from nsqd_py.client.tool_checks import client_options, user_agent
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.runtime.logs.hidden import hidden_url, hidden_value
from nsqd_py.settings.declaration import BadOptions, bad_options
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.regex import BadExpression, compiled
from nsqd_py.settings.tools import times_of

# Tasks read files in parts of this size, and send a part in slices: a slice is sent again as a whole if a replay is killed
# in it.
PART_BYTES = 16 * 1024 * 1024
SLICE_MESSAGES = 5_000
# Executors and drivers of other users may read what a checkpoint contains.
SHARED = 0o666
REFUSED_FILE = "refused.jsonl"
# Columns of `dedupe`: the part that a message is shuffled into, as text; and true for one of the messages with the same id
# and different bodies.
PART = "part"
SHARED_ID = "shared_id"
_HADOOP = "spark.hadoop."
_FACTOR = re.compile(r"(\d+(?:\.\d+)?|\.\d+)x")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`")
_CHANGING = re.compile(
    r"\b(?:(?:rand|randn|random|randstr|uniform|uuid|shuffle|now|curdate|unix_timestamp|monotonically_increasing_id|"
    r"spark_partition_id|input_file_\w+)\s*\(|current_(?:date|time|timestamp)\b|localtimestamp\b)",
    re.IGNORECASE,
)


class ReplayError(Exception):
    """The base of the errors that `nsq_spark.replay` raises itself. Each is one line, and can be sent between processes."""


class BadJob(ReplayError):
    """The job asks for something impossible, such as a predicate that is not valid SQL."""


class CheckpointError(ReplayError):
    """The checkpoint cannot be used: it is another job's, it is in use, or it cannot be read."""


@contextmanager
def checkpoint_errors(text: str) -> Iterator[None]:
    """Raise CheckpointError, with the text and the reason, instead of OSError."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{text}: {error.strerror}") from error


class Stopped(ReplayError):
    """The driver asked to stop."""


class JobFailed(ReplayError):
    """Spark gave a job up."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The messages to send.

    requested    topics and times
    where        a predicate of Spark SQL over the columns and, where bodies are JSON, over json.field
    json_schema  types of the JSON fields, as DDL of Spark; None: Spark infers them
    limit        the greatest number of messages: the first ones in an ordered job
    dedupe       one of those with the same topic and id, or with the same topic and body
    start_text   the text that `requested` was made from, such as "-2h": a resumed job keeps the times of its first run
    """

    requested: Requested = Requested()
    where: str | None = None
    json_schema: str | None = None
    limit: int | None = None
    dedupe: Dedupe = ""
    start_text: str = ""
    end_text: str = ""


@dataclass(frozen=True, slots=True)
class Destination:
    """The nsqds to publish to, and all that nsqlookupds name.

    topic_map    (old, new) names of topics; `to_topic` is the name of all others
    defer_s      the delay before nsqd delivers; each message is then a command
    batch_bytes  the largest number of bytes of messages in one command
    """

    nsqd_tcp_addresses: tuple[str, ...] = ()
    lookupd_http_addresses: tuple[str, ...] = ()
    options: ClientOptions = field(default_factory=ClientOptions)
    topic_map: tuple[tuple[str, str], ...] = ()
    to_topic: str | None = None
    defer_s: float = 0.0
    batch_bytes: int = BATCH_BYTES

    def topic(self, topic: str) -> str:
        """Return the name under which a topic of the archive is published."""
        return dict(self.topic_map).get(topic, self.to_topic or topic)


@dataclass(frozen=True, slots=True)
class Job:
    """A whole job.

    rate         messages a second, over all tasks; None: no limit
    speed        of the archive's time: 1 keeps its gaps, 2 halves them; None: ignores them
    catches_up   with a speed: after a stall, late messages leave at once
    by_time      each topic in the order of its timestamps
    checkpoint   directory that keeps what was acknowledged
    storage      Hadoop's settings for file systems; `hints`: what the user knows of the files
    refused_file       gets the messages that nsqd refuses; "": a file of the checkpoint
    dead_letter_topic  gets a message for each of them; "": none does
    """

    paths: tuple[str, ...]
    selection: Selection = Selection()
    destination: Destination = field(default_factory=Destination)
    rate: float | None = None
    speed: float | None = None
    catches_up: bool = False
    by_time: bool = False
    checkpoint: str | None = None
    skip_damaged: bool = False
    give_up_after_s: float = 60.0
    storage: Mapping[str, str] = field(default_factory=dict)
    hints: Hints = Hints()
    refused_file: str = ""
    dead_letter_topic: str = ""

    @property
    def is_ordered(self) -> bool:
        return self.by_time or self.speed is not None

    def identity(self) -> dict[str, Any]:
        """Return what must be equal for a job to resume another one: not its pace, nor the number of cores."""
        selection = self.selection
        destination = self.destination
        requested = selection.requested
        topics = None
        if requested.topics is not None:
            topics = sorted(requested.topics)
        return {
            "paths": [identical(path) for path in self.paths],
            "topics": topics,
            "topic pattern": requested.topic_pattern,
            "start": selection.start_text or requested.start_ns,
            "end": selection.end_text or requested.end_ns,
            "where": selection.where,
            "JSON schema": selection.json_schema,
            "limit": selection.limit,
            "dedupe": selection.dedupe,
            "order": "time" if self.is_ordered else "",
            "format": asdict(self.hints),
            "nsqd addresses": sorted(destination.nsqd_tcp_addresses),
            "nsqlookupd addresses": sorted(map(hidden_url, destination.lookupd_http_addresses)),
            "topic map": sorted(list(pair) for pair in destination.topic_map),
            "topic to send to": destination.to_topic,
            "defer": destination.defer_s,
        }


# ---- from the options of the command


def job_of(options: ReplayOptions, now_ns: int) -> Job:
    """Raises BadOptions."""
    if options.checkpoint and not is_local(options.checkpoint):
        raise BadOptions(
            f"--checkpoint {options.checkpoint}: it must be a local or mounted directory; an object store can neither lock a "
            "file nor append to it"
        )
    conf = parse_conf(options.conf).items()
    return Job(
        paths=options.archive,
        selection=_selection(options, now_ns),
        destination=Destination(
            options.nsqd_tcp_address,
            options.lookupd_http_address,
            client_options(options.producer_opt, "producer-opt", user_agent=user_agent("spark_replay")),
            _topic_map(options.topic_map),
            options.to_topic or None,
            options.defer_ns / SECOND_NS,
        ),
        rate=options.rate,
        speed=_speed(options.speed),
        catches_up=options.catch_up,
        by_time=options.order == BY_TIME,
        checkpoint=options.checkpoint or None,
        skip_damaged=options.skip_damaged,
        give_up_after_s=options.give_up_after_ns / SECOND_NS,
        storage={name.removeprefix(_HADOOP): value for name, value in conf if name.startswith(_HADOOP)},
        hints=Hints(
            format=options.format or None,
            topic=options.default_topic or None,
            topic_from_name=options.topic_from_name,
            time_zone=options.file_time_zone,
        ),
        refused_file=_refused_file(options, now_ns),
        dead_letter_topic=options.dead_letter_topic,
    )


def _refused_file(options: ReplayOptions, now_ns: int) -> str:
    """Return the file for refused messages: without a checkpoint, one in this directory that no other run has used."""
    if options.refused_file or options.checkpoint:
        return options.refused_file
    return f"spark-replay-{now_ns}-{REFUSED_FILE}"


def parse_conf(given: Sequence[str]) -> dict[str, str]:
    """Return the values of --conf. Raises BadOptions."""
    conf = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise BadOptions(f"--conf must be spark.name=value, got {hidden_value(text)!r}")
        conf[name] = value
    if "spark.master" in conf:
        raise BadOptions("use --master in place of --conf spark.master")
    return conf


def _speed(text: str) -> float | None:
    """Return 1 for the gaps of the archive, 2 for half of them; None for max."""
    if text == MAX_SPEED:
        return None
    match = _FACTOR.fullmatch("1x" if text == "original" else text)
    if not match or not float(match[1]):
        raise BadOptions(f"--speed must be original, max, or a factor such as 2x, got {text!r}")
    return float(match[1])


def _topic_map(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the (old, new) of each `old=new`."""
    pairs: dict[str, str] = {}
    for text in given:
        old, equals, new = text.partition("=")
        if not equals or not old or not is_valid_name(new.encode("utf-8", "surrogateescape")):
            raise BadOptions(f"--topic-map must be old=new, where new is a valid topic name, got {text!r}")
        if pairs.setdefault(old, new) != new:
            raise BadOptions(f"--topic-map gives two names to {old!r}: {pairs[old]!r} and {new!r}")
    return tuple(pairs.items())


def _selection(options: ReplayOptions, now_ns: int) -> Selection:
    start_ns, end_ns = times_of(options.start, options.end, now_ns)
    with bad_options(
        f"--topic-pattern {options.topic_pattern!r} is not a regular expression: ", BadExpression
    ):
        compiled(options.topic_pattern)
    if options.json_schema and not options.where:
        raise BadOptions("--json-schema gives the types of the fields in --where, which is missing")
    changing = _CHANGING.search(_QUOTED.sub("''", options.where))
    if changing:
        raise BadOptions(
            f"--where: {changing[0].rstrip(' (')} has another value each time, and a replay that goes on would choose other "
            "messages; use a hash of the id to take some of them, --start and --end for times"
        )
    return Selection(
        Requested(frozenset(options.topic) or None, options.topic_pattern or None, start_ns, end_ns),
        options.where or None,
        options.json_schema or None,
        options.limit,
        options.dedupe,
        options.start,
        options.end,
    )
