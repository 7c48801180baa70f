"""The job of a replay: which messages to send, where, and how fast. The same on the driver and on executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

from nsq_spark.archive.listing import Hints
from nsq_spark.archive.splits import DEFAULT_SPLIT_BYTES
from nsq_spark.archive.storage import identical
from nsq_spark.archive.wanted import Wanted
from nsq_spark.replay import BATCH_BYTES
from nsq_spark.replay.errors import BadJob
from nsq_spark.replay.json_types import typed
from nsq_spark.replay.predicate import check_is_steady
from nsqd_py.client.options import ClientOptions
from nsqd_py.runtime.hidden import hidden_url

Dedupe: TypeAlias = Literal["", "id", "body"]


@dataclass(frozen=True, slots=True)
class Selection:
    """The messages to send.

    wanted       topics and times
    where        a predicate in SQL over the columns and, where bodies are JSON, over json.field
    grep         a regular expression (RE2) that the body has to match anywhere
    sample       the share of the messages, 0 to 1; it is always the same messages
    limit        the number of messages: the first in the order of files and positions, or of time in an ordered job
    dedupe       one of those with the same topic and id, or with the same topic and body
    start_text   the text that `wanted` was made from, such as "-2h": a resumed job keeps the times of its first run
    json_schema  types of the JSON fields in `where`, as DDL of Spark; None: by the rule of `json_types`
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
        """Raises BadJob."""
        if self.where is None and self.json_schema is not None:
            raise BadJob("a JSON schema gives the types of the fields in a predicate, but there is none: use --where")
        if self.where is not None:
            check_is_steady(self.where)
            if self.json_schema is None:
                typed(self.where)


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
class Pacing:
    """The pace of the job.

    rate     messages a second, over all tasks; None: no limit
    speed    of the archive's time: 1 keeps its gaps, 2 halves them; None: ignores them
    by_time  each topic in the order of its timestamps
    """

    rate: float | None = None
    speed: float | None = None
    by_time: bool = False

    @property
    def is_ordered(self) -> bool:
        return self.by_time or self.speed is not None


@dataclass(frozen=True, slots=True)
class Safety:
    """The behaviour on errors.

    checkpoint       directory that keeps what was acknowledged
    skip_damaged     pass over damaged records, and count them
    give_up_after_s  how long to retry a batch
    """

    checkpoint: str | None = None
    skip_damaged: bool = False
    give_up_after_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Job:
    """A whole job.

    storage      Hadoop's settings for file systems; `hints`: what the user knows of the files
    parallelism  the number of tasks at the same time; None: one for each core
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
        """Return what must be equal for a job to resume another one: not its pace, nor the number of cores."""
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
            "nsqlookupd addresses": sorted(map(hidden_url, destination.lookupd_http_addresses)),
            "topic map": sorted(list(pair) for pair in destination.topic_map),
            "topic to send to": destination.to_topic,
            "defer": destination.defer_s,
        }

    def at_times(self, start_ns: int | None, end_ns: int | None) -> Job:
        """Return the job with other times."""
        wanted = replace(self.selection.wanted, start_ns=start_ns, end_ns=end_ns)
        return replace(self, selection=replace(self.selection, wanted=wanted))
