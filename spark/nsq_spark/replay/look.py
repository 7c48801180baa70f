"""Looks instead of sending: how many messages of which topics and times there are, and the first of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nsq_spark.replay.blocks import Block
from nsq_spark.replay.marks import BY_FILE, Mark, Range
from nsq_spark.replay.pace import SECOND_NS
from nsq_spark.replay.planning import Task
from nsq_spark.replay.progress import TaskLine
from nsq_spark.replay.results import TaskResult
from nsq_spark.replay.rows import SENDING
from nsq_spark.replay.sinks import Sink
from nsq_spark.replay.work import Attempt, Setup

_MOST_BUCKETS = 2048
_DAY_S = 86_400
# Widths that people read, in seconds; each holds the one before it a whole number of times.
_WIDTHS_S = (1, 5, 15, 60, 300, 900, 3600, 21_600, _DAY_S, 7 * _DAY_S, 28 * _DAY_S, 84 * _DAY_S)
_BODY_BYTES = 200


@dataclass(slots=True)
class TopicCount:
    """Of one topic; times are None where nobody knows them."""

    count: int = 0
    size_bytes: int = 0
    first_ns: int | None = None
    last_ns: int | None = None

    def add(self, other: TopicCount) -> None:
        self.count += other.count
        self.size_bytes += other.size_bytes
        self.first_ns = _of_both(min, self.first_ns, other.first_ns)
        self.last_ns = _of_both(max, self.last_ns, other.last_ns)


def _of_both(choose: Callable[[Iterable[int]], int], one: int | None, other: int | None) -> int | None:
    known = [value for value in (one, other) if value is not None]
    return choose(known) if known else None


@dataclass(frozen=True, slots=True)
class Match:
    """One of the first messages; `body` is the beginning of it, of `size_bytes`."""

    mark: Mark
    topic: str
    timestamp_ns: int | None
    id: str | None
    body: bytes
    size_bytes: int
    file: str


@dataclass(slots=True)
class Look:
    """What a dry run finds. `buckets`: how many messages there are in each `bucket_ns` from a multiple of it on."""

    topics: dict[str, TopicCount] = field(default_factory=dict)
    buckets: dict[int, int] = field(default_factory=dict)
    bucket_ns: int = SECOND_NS
    first: list[Match] = field(default_factory=list)
    first_count: int = 10

    def add(self, other: Look) -> None:
        for topic, found in other.topics.items():
            self.topics.setdefault(topic, TopicCount()).add(found)
        while self.bucket_ns < other.bucket_ns:
            self._coarsen()
        for bucket, count in other.buckets.items():
            self.add_to_bucket(bucket * other.bucket_ns, count)
        self.first = sorted([*self.first, *other.first], key=lambda match: match.mark)[: self.first_count]

    def add_to_bucket(self, time_ns: int, count: int) -> None:
        bucket = time_ns // self.bucket_ns
        self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        while len(self.buckets) > _MOST_BUCKETS:
            self._coarsen()

    def _coarsen(self) -> None:
        """The next wider buckets, so that there are never too many, however long the time is."""
        width_ns = _wider_ns(self.bucket_ns)
        times = width_ns // self.bucket_ns
        wider: dict[int, int] = {}
        for bucket, count in self.buckets.items():
            wider[bucket // times] = wider.get(bucket // times, 0) + count
        self.buckets, self.bucket_ns = wider, width_ns

    def take(self, block: Block) -> None:
        chunk, times_ns = block.chunk, block.times_ns
        found = TopicCount(chunk.count, chunk.size_bytes)
        if times_ns is not None:
            found.first_ns, found.last_ns = int(times_ns.min()), int(times_ns.max())
            for bucket, count in zip(*np.unique(times_ns // self.bucket_ns, return_counts=True), strict=True):
                self.add_to_bucket(int(bucket) * self.bucket_ns, int(count))
        self.topics.setdefault(chunk.topic, TopicCount()).add(found)
        self._take_first(block)

    def _take_first(self, block: Block) -> None:
        """Blocks come in order: the first ones that come are the first of the task."""
        wanted = min(block.count, self.first_count - len(self.first))
        if wanted <= 0:
            return
        rows = block.chunk.slice(0, wanted).arrow().to_pylist()
        for number, row in enumerate(rows):
            body: bytes = row["body"]
            self.first.append(
                Match(
                    block.marks.at(number), row["topic"], row["timestamp_ns"], row["id"], body[:_BODY_BYTES],
                    len(body), row["file"],
                )
            )  # fmt: skip


def _wider_ns(width_ns: int) -> int:
    return next((wider * SECOND_NS for wider in _WIDTHS_S if wider * SECOND_NS > width_ns), 2 * width_ns)


@dataclass(frozen=True, slots=True)
class Looking:
    """Makes the sinks of a dry run, which keep the first so many messages."""

    first_count: int
    columns: tuple[str, ...] = (*SENDING, "id", "file")

    def __call__(self, setup: Setup, task: Task, attempt: Attempt, line: TaskLine) -> Sink:
        done = {lane: ranges for lane, ranges in setup.done.items() if lane != BY_FILE}
        return LookSink(Look(first_count=self.first_count), line, done)


class LookSink(Sink):
    """`done` is what is sent already, by lane; what is done by file is not read again."""

    def __init__(self, look: Look, line: TaskLine, done: Mapping[str, Sequence[Range]]) -> None:
        self._look = look
        self._line = line
        self._done = done

    def take(self, block: Block, lane: str) -> None:
        done = self._done.get(lane)
        left = block.filter(~block.marks.among(done)) if done else block
        if left.count:
            self._line.counts.matched += left.count
            self._look.take(left)

    def idle(self) -> None:
        self._line.look()

    def report(self, result: TaskResult) -> None:
        result.payload = self._look
