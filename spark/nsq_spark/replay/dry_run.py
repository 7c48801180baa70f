"""A dry run: count messages instead of sending them, and show topics, a histogram, and the first messages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, count

import numpy as np

from nsq_spark.replay.figures import count_text, rows_text, shown, size_text, time_text
from nsq_spark.replay.planning import Task
from nsq_spark.replay.positions import SENDING, Block, Mark
from nsq_spark.replay.progress import ReplayCounts, TaskLine
from nsq_spark.replay.task import Attempt, Sink, TaskContext, TaskResult
from nsqd_py.settings.durations import HOUR_NS, MINUTE_NS, SECOND_NS, format_duration

_DAY_NS = 24 * HOUR_NS
_FIRST = 10
_BODY_BYTES = 200
_MOST_BUCKETS = 2048
# Widths of buckets; each is a multiple of the one before it.
_BUCKETS_S = (1, 5, 15, 60, 300, 900, 3600, 21_600, *(86_400 * days for days in (1, 7, 28, 84)))
_MOST_ROWS = 24
_BAR_CELLS = 40
_EIGHTHS = " ▏▎▍▌▋▊▉█"
# Widths of rows that people read easily.
_ROWS_NS = (
    *(number * unit for unit in (SECOND_NS, MINUTE_NS) for number in (1, 2, 5, 10, 15, 30)),
    *(number * HOUR_NS for number in (1, 2, 3, 6, 12)),
    *(number * _DAY_NS for number in (1, 2, 7, 28, 91, 364)),
)


@dataclass(slots=True)
class TopicCount:
    """The messages of one topic; times are None if they are not known."""

    count: int = 0
    size_bytes: int = 0
    first_ns: int | None = None
    last_ns: int | None = None

    def add(self, other: TopicCount) -> None:
        self.count += other.count
        self.size_bytes += other.size_bytes
        self.first_ns = min((ns for ns in (self.first_ns, other.first_ns) if ns is not None), default=None)
        self.last_ns = max((ns for ns in (self.last_ns, other.last_ns) if ns is not None), default=None)


@dataclass(slots=True)
class Look:
    """What a dry run finds.

    buckets  the number of messages in each `bucket_ns`, from a multiple of it on
    first    the first messages as lines of text, with their marks
    """

    topics: dict[str, TopicCount] = field(default_factory=dict)
    buckets: Counter[int] = field(default_factory=Counter)
    bucket_ns: int = SECOND_NS
    first: list[tuple[Mark, str]] = field(default_factory=list)

    def add(self, other: Look) -> None:
        for topic, found in other.topics.items():
            self.topics.setdefault(topic, TopicCount()).add(found)
        while self.bucket_ns < other.bucket_ns:
            self._widen()
        self.count_times({bucket * other.bucket_ns: messages for bucket, messages in other.buckets.items()})
        self.first = sorted([*self.first, *other.first])[:_FIRST]

    def count_times(self, counts: Mapping[int, int]) -> None:
        """Add the number of messages by their times in ns."""
        for time_ns, messages in counts.items():
            self.buckets[time_ns // self.bucket_ns] += messages
        while len(self.buckets) > _MOST_BUCKETS:
            self._widen()

    def _widen(self) -> None:
        width_ns = next((s * SECOND_NS for s in _BUCKETS_S if s * SECOND_NS > self.bucket_ns), 2 * self.bucket_ns)
        self.buckets, self.bucket_ns = _regrouped(self.buckets, width_ns // self.bucket_ns), width_ns

    def take(self, block: Block) -> None:
        chunk, times_ns = block.chunk, block.times_ns
        found = TopicCount(chunk.count, chunk.size_bytes)
        if times_ns is not None:
            found.first_ns, found.last_ns = int(times_ns.min()), int(times_ns.max())
            numbers, counts = np.unique(times_ns // self.bucket_ns, return_counts=True)
            self.count_times(dict(zip((numbers * self.bucket_ns).tolist(), counts.tolist(), strict=True)))
        self.topics.setdefault(chunk.topic, TopicCount()).add(found)
        # Blocks come in order, so the first messages that come are the first of the task.
        wanted = max(0, min(block.count, _FIRST - len(self.first)))
        rows = chunk.slice(0, wanted).arrow(("timestamp_ns", "id", "body")).to_pylist()
        self.first += [(block.marks.at(number), _row_text(chunk.topic, **row)) for number, row in enumerate(rows)]


def _row_text(topic: str, timestamp_ns: int | None, id: str | None, body: bytes) -> str:
    time = "-" if timestamp_ns is None else time_text(timestamp_ns)
    text = shown(body) if len(body) <= _BODY_BYTES else f"{shown(body[:_BODY_BYTES])}... ({size_text(len(body))})"
    return " ".join((time, shown(topic), "-" if id is None else shown(id), text))


def _regrouped(buckets: Mapping[int, int], times: int) -> Counter[int]:
    """Return buckets that are `times` as wide."""
    found: Counter[int] = Counter()
    for bucket, messages in buckets.items():
        found[bucket // times] += messages
    return found


class LookSink(Sink):
    """Counts the messages of a task. What earlier runs have sent does not count."""

    columns = (*SENDING, "id")

    def __init__(self, context: TaskContext, task: Task, attempt: Attempt, line: TaskLine) -> None:
        super().__init__(context, task, attempt, line)
        self._look = Look()

    def take(self, block: Block, lane: str, last: Mark) -> None:
        self._look.take(block)

    def report(self, result: TaskResult) -> None:
        result.payload = self._look


# ---- what it prints


def dry_run_text(look: Look, counts: ReplayCounts) -> str:
    """Return the whole output. Bytes of messages cannot control the terminal."""
    if not look.topics:
        return f"nothing matches, of {count_text(counts.read, 'message')} that were read"
    first = "\n".join([f"the first {count_text(len(look.first), 'message')}", *(text for _, text in look.first)])
    return "\n\n".join(filter(None, (topics_text(look.topics), histogram_text(look.buckets, look.bucket_ns), first)))


def topics_text(topics: Mapping[str, TopicCount]) -> str:
    """Return a row for each topic, and one for all of them."""
    rows = [("topic", "messages", "size", "first", "last")]
    rows += [_topic_row(shown(name), topics[name]) for name in sorted(topics)]
    if len(topics) > 1:
        everything = TopicCount()
        for found in topics.values():
            everything.add(found)
        rows.append(_topic_row("all", everything))
    return rows_text(rows, right=(1, 2), indent="")


def _topic_row(name: str, found: TopicCount) -> tuple[str, str, str, str, str]:
    first, last = ("-" if time_ns is None else time_text(time_ns) for time_ns in (found.first_ns, found.last_ns))
    return (name, f"{found.count:,}", size_text(found.size_bytes), first, last)


def histogram_text(buckets: Mapping[int, int], bucket_ns: int) -> str:
    """Return a bar for each period, as many as fit on a screen; empty if no times are known."""
    if not buckets:
        return ""
    width_ns = row_width(min(buckets) * bucket_ns, max(buckets) * bucket_ns, bucket_ns)
    rows = _regrouped(buckets, width_ns // bucket_ns)
    most = max(rows.values())
    lines = [(time_text(row * width_ns), f"{rows[row]:,}", bar(rows[row] / most)) for row in range(min(rows), max(rows) + 1)]
    days, rest = divmod(width_ns, _DAY_NS)
    width = re.sub(r"(?<=[hm])0[ms]", "", format_duration(width_ns)) if rest else count_text(days, "day")
    return f"messages in each {width}\n{rows_text(lines, right=(1,), indent='')}"


def row_width(first_ns: int, last_ns: int, bucket_ns: int) -> int:
    """Return the least width of which few enough periods cover all: whole buckets, and one that people read easily."""

    def fits(width_ns: int) -> bool:
        return width_ns % bucket_ns == 0 and last_ns // width_ns - first_ns // width_ns < _MOST_ROWS

    return next(filter(fits, chain(_ROWS_NS, count(bucket_ns, bucket_ns))))


def bar(part: float) -> str:
    """Return a bar for a part of the whole, to an eighth of a cell; every part above 0 is visible."""
    eighths = max(round(part * _BAR_CELLS * 8), 1 if part > 0 else 0)
    return (_EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()
