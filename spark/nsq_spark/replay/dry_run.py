"""A dry run: count messages instead of sending them, and show topics and the first messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from nsq_spark.replay.texts import count_text, rows_text, shown, size_text, time_text

_FIRST = 10
_BODY_BYTES = 200


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

    first  some of the messages as lines of text
    """

    topics: dict[str, TopicCount] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)

    @property
    def all_topics(self) -> TopicCount:
        found = TopicCount()
        for one in self.topics.values():
            found.add(one)
        return found


def look_at(rows: DataFrame, limit: int | None) -> Look:
    """Count the rows, in two queries of Spark."""
    if limit is not None:
        rows = rows.limit(limit)
    time = F.col("timestamp_ns")
    counts = rows.groupBy("topic").agg(F.count("*"), F.sum(F.octet_length("body")), F.min(time), F.max(time)).collect()
    look = Look({topic: TopicCount(*found) for topic, *found in counts})
    first = rows.select("topic", "timestamp_ns", "id", "body").limit(_FIRST).collect()
    look.first = [_row_text(*row) for row in sorted(first, key=lambda row: row.timestamp_ns or 0)]
    return look


def _row_text(topic: str, timestamp_ns: int | None, id: str | None, body: Any) -> str:
    time, body = "-" if timestamp_ns is None else time_text(timestamp_ns), bytes(body)
    text = shown(body) if len(body) <= _BODY_BYTES else f"{shown(body[:_BODY_BYTES])}... ({size_text(len(body))})"
    return " ".join((time, shown(topic), "-" if id is None else shown(id), text))


# ---- what it prints


def dry_run_text(look: Look) -> str:
    """Return the whole output. Bytes of messages cannot control the terminal."""
    if not look.topics:
        return "nothing matches"
    some = "\n".join([f"{count_text(len(look.first), 'message')} of these", *look.first])
    return f"{_topics_text(look)}\n\n{some}"


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
