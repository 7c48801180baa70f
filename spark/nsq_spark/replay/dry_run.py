"""A dry run: count messages instead of sending them, and show topics, a histogram, and the first messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from nsq_spark.replay.texts import count_text, rows_text, shown, size_text, time_text
from nsqd_py.settings.durations import HOUR_NS, MINUTE_NS, SECOND_NS, format_duration

_DAY_NS = 24 * HOUR_NS
_FIRST = 10
_BODY_BYTES = 200
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

    buckets  the number of messages in each `bucket_ns`, by the time at which it begins
    first    some of the messages as lines of text
    """

    topics: dict[str, TopicCount] = field(default_factory=dict)
    buckets: dict[int, int] = field(default_factory=dict)
    bucket_ns: int = SECOND_NS
    first: list[str] = field(default_factory=list)

    @property
    def all_topics(self) -> TopicCount:
        found = TopicCount()
        for one in self.topics.values():
            found.add(one)
        return found


def look_at(rows: DataFrame, limit: int | None) -> Look:
    """Count the rows, in a few queries of Spark."""
    if limit is not None:
        rows = rows.limit(limit)
    time = F.col("timestamp_ns")
    counts = rows.groupBy("topic").agg(F.count("*"), F.sum(F.octet_length("body")), F.min(time), F.max(time)).collect()
    look = Look({topic: TopicCount(*found) for topic, *found in counts})
    everything = look.all_topics
    if everything.first_ns is not None and everything.last_ns is not None:
        look.bucket_ns = row_width(everything.first_ns, everything.last_ns)
        bucket = (time - F.pmod(time, F.lit(look.bucket_ns))).alias("bucket")
        look.buckets = {at: count for at, count in rows.groupBy(bucket).count().collect() if at is not None}
    first = rows.select("topic", "timestamp_ns", "id", "body").limit(_FIRST).collect()
    look.first = [_row_text(*row) for row in sorted(first, key=lambda row: row.timestamp_ns or 0)]
    return look


def _row_text(topic: str, timestamp_ns: int | None, id: str | None, body: Any) -> str:
    time, body = "-" if timestamp_ns is None else time_text(timestamp_ns), bytes(body)
    text = shown(body) if len(body) <= _BODY_BYTES else f"{shown(body[:_BODY_BYTES])}... ({size_text(len(body))})"
    return " ".join((time, shown(topic), "-" if id is None else shown(id), text))


def row_width(first_ns: int, last_ns: int) -> int:
    """Return the least width, of those that people read easily, of which few enough rows cover all."""
    return next((ns for ns in _ROWS_NS if last_ns // ns - first_ns // ns < _MOST_ROWS), 100 * _ROWS_NS[-1])


# ---- what it prints


def dry_run_text(look: Look) -> str:
    """Return the whole output. Bytes of messages cannot control the terminal."""
    if not look.topics:
        return "nothing matches"
    some = "\n".join([f"{count_text(len(look.first), 'message')} of these", *look.first])
    return "\n\n".join(filter(None, (_topics_text(look), histogram_text(look.buckets, look.bucket_ns), some)))


def _topics_text(look: Look) -> str:
    """Return a row for each topic, and one for all of them."""
    rows = [("topic", "messages", "size", "first", "last")]
    rows += [_topic_row(shown(name), look.topics[name]) for name in sorted(look.topics)]
    if len(look.topics) > 1:
        rows.append(_topic_row("all", look.all_topics))
    return rows_text(rows, right=(1, 2), indent="")


def _topic_row(name: str, found: TopicCount) -> tuple[str, str, str, str, str]:
    first, last = ("-" if time_ns is None else time_text(time_ns) for time_ns in (found.first_ns, found.last_ns))
    return (name, f"{found.count:,}", size_text(found.size_bytes), first, last)


def histogram_text(buckets: Mapping[int, int], width_ns: int) -> str:
    """Return a bar for each period; empty if no times are known."""
    if not buckets:
        return ""
    most = max(buckets.values())
    periods = range(min(buckets), max(buckets) + 1, width_ns)
    lines = [(time_text(at), f"{buckets.get(at, 0):,}", _bar(buckets.get(at, 0) / most)) for at in periods]
    width = format_duration(width_ns) if width_ns % _DAY_NS else count_text(width_ns // _DAY_NS, "day")
    return f"messages in each {width}\n{rows_text(lines, right=(1,), indent='')}"


def _bar(part: float) -> str:
    """Return a bar for a part of the whole, to an eighth of a cell; every part above 0 is visible."""
    eighths = max(round(part * _BAR_CELLS * 8), 1 if part > 0 else 0)
    return (_EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()
