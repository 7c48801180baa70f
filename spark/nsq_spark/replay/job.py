"""What is asked for. Made once from the options of the command, and the same on driver and executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

from nsq_spark.archive.listing import Hints
from nsq_spark.archive.splits import DEFAULT_SPLIT_BYTES
from nsq_spark.archive.storage import identical
from nsq_spark.archive.wanted import Wanted
from nsq_spark.replay.errors import BadJob
from nsq_spark.replay.json_types import typed
from nsq_spark.replay.predicate import check_is_steady
from nsq_spark.replay.sizes import BATCH_BYTES
from nsqd_py.client.options import ClientOptions
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.settings.regex import BadExpression, compiled

Dedupe: TypeAlias = Literal["", "id", "body"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages.

    wanted      by topic and time
    where       a predicate in SQL over the columns and, where bodies are JSON, over json.field
    grep        a regular expression of RE2 that the body matches anywhere
    sample      a share of them, 0 to 1: always the same ones
    limit       so many, the first: in the order of files and places, or of time where that is the order
    dedupe      one of those that have the same topic and id, or topic and body
    json_schema types of the JSON fields in `where`, as DDL of Spark; None: by the rule of `json_types`
    start_text, end_text   what `wanted` was made from, as "-2h": a job that goes on keeps the times of its first run
    """

    wanted: Wanted = Wanted()
    where: str | None = None
    grep: str | None = None
    sample: float | None = None
    limit: int | None = None
    dedupe: Dedupe = ""
    start_text: str = ""
    end_text: str = ""
    json_schema: str | None = None

    def __post_init__(self) -> None:
        if self.sample is not None and not 0 < self.sample <= 1:
            raise BadJob(f"sample is a share of more than 0 and at most 1, not {self.sample:g}")
        if self.limit is not None and self.limit < 1:
            raise BadJob(f"limit is at least 1, not {self.limit}")
        if self.dedupe not in ("", "id", "body"):
            raise BadJob(f"dedupe is by id or by body, not by {self.dedupe!r}")
        if self.grep is not None:
            _check_pattern(self.grep)
        if self.where is not None:
            check_is_steady(self.where)
            if self.json_schema is None:
                typed(self.where)
        elif self.json_schema is not None:
            raise BadJob("a JSON schema is about the fields of a predicate, and there is none: use --where")


@dataclass(frozen=True, slots=True)
class Destination:
    """Where to: nsqds, and all that nsqlookupds name; with the options of a client.

    topic_map    (old, new), for topics that get another name; to_topic: one name for all others
    defer_s      nsqd delivers so much later; each message is then a command of its own
    batch_bytes  of messages in one command, at most
    """

    nsqd_tcp_addresses: tuple[str, ...] = ()
    lookupd_http_addresses: tuple[str, ...] = ()
    options: ClientOptions = field(default_factory=ClientOptions)
    topic_map: tuple[tuple[str, str], ...] = ()
    to_topic: str | None = None
    defer_s: float = 0.0
    batch_bytes: int = BATCH_BYTES

    def __post_init__(self) -> None:
        for topic in [new for _, new in self.topic_map] + ([self.to_topic] if self.to_topic else []):
            if not is_valid_name(topic.encode()):
                raise BadJob(f"{topic!r} is no name of a topic")
        if self.defer_s < 0:
            raise BadJob(f"a message cannot be deferred by {self.defer_s:g} s")
        if self.batch_bytes < 1:
            raise BadJob(f"a batch has at least 1 byte, not {self.batch_bytes}")

    def topic(self, topic: str) -> str:
        """What a topic of the archive is called there."""
        return dict(self.topic_map).get(topic, self.to_topic or topic)


@dataclass(frozen=True, slots=True)
class Pacing:
    """How fast.

    rate     messages per second, over all tasks; None: as fast as it goes
    speed    of the archive's time: 1 keeps its gaps, 2 halves them; None: does not look at them
    by_time  each topic in the order of its timestamps
    """

    rate: float | None = None
    speed: float | None = None
    by_time: bool = False

    def __post_init__(self) -> None:
        for name, value in (("rate", self.rate), ("speed", self.speed)):
            if value is not None and value <= 0:
                raise BadJob(f"{name} is more than 0, not {value:g}")

    @property
    def is_ordered(self) -> bool:
        return self.by_time or self.speed is not None


@dataclass(frozen=True, slots=True)
class Safety:
    """What to do when something goes wrong.

    checkpoint       directory that keeps what was acknowledged
    skip_damaged     pass over what cannot be read, and count it
    give_up_after_s  how long a batch is tried, in all
    """

    checkpoint: str | None = None
    skip_damaged: bool = False
    give_up_after_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Job:
    """All of it.

    storage      Hadoop's settings for file systems; hints: what the user knows of the files
    parallelism  tasks at the same time; None: as many as there are cores
    """

    paths: tuple[str, ...]
    selection: Selection = Selection()
    destination: Destination = field(default_factory=Destination)
    pacing: Pacing = Pacing()
    safety: Safety = Safety()
    storage: Mapping[str, str] = field(default_factory=dict)
    hints: Hints = Hints()
    parallelism: int | None = None
    split_bytes: int = DEFAULT_SPLIT_BYTES

    def identity(self) -> dict[str, Any]:
        """What makes it the same job when it goes on: not how fast, or on how many cores."""
        selection, destination = self.selection, self.destination
        wanted = selection.wanted
        return {
            "paths": [identical(path) for path in self.paths],
            "topics": sorted(wanted.topics) if wanted.topics is not None else None,
            "topic pattern": wanted.topic_pattern,
            "start": selection.start_text or wanted.start_ns,
            "end": selection.end_text or wanted.end_ns,
            "where": selection.where,
            "JSON schema": selection.json_schema,
            "grep": selection.grep,
            "sample": selection.sample,
            "limit": selection.limit,
            "dedupe": selection.dedupe,
            "order": "time" if self.pacing.is_ordered else "",
            "format": asdict(self.hints),
            "nsqd addresses": sorted(destination.nsqd_tcp_addresses),
            "nsqlookupd addresses": sorted(destination.lookupd_http_addresses),
            "topic map": sorted(list(pair) for pair in destination.topic_map),
            "topic to send to": destination.to_topic,
            "defer": destination.defer_s,
        }

    def at_times(self, start_ns: int | None, end_ns: int | None) -> Job:
        """With these times in place of its own."""
        wanted = replace(self.selection.wanted, start_ns=start_ns, end_ns=end_ns)
        return replace(self, selection=replace(self.selection, wanted=wanted))


def _check_pattern(pattern: str) -> None:
    try:
        compiled(pattern)
    except BadExpression as error:
        raise BadJob(f"grep {pattern!r} is no regular expression: {error}") from None
