"""A dry run: count messages instead of sending them, and show topics and the first messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from nsq_spark.replay.texts import rows_text, shown, size_text, time_text

_FIRST = 10
_BODY_BYTES = 200


@dataclass(slots=True)
class TopicCount:
    """The messages of one topic; times are None if they are not known."""

    count: int = 0
    size_bytes: int = 0
    first_ns: int | None = None
    last_ns: int | None = None


@dataclass(slots=True)
class Look:
    """What a dry run finds.

    first  some of the messages as lines of text
    """

    topics: dict[str, TopicCount] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)


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
    rows = [("topic", "messages", "size", "first", "last")]
    rows += [_topic_row(shown(name), look.topics[name]) for name in sorted(look.topics)]
    total = sum(found.count for found in look.topics.values())
    return "\n".join([rows_text(rows, right=(1, 2), indent=""), "", f"{len(look.first)} of {total:,} messages:", *look.first])


def _topic_row(name: str, found: TopicCount) -> tuple[str, str, str, str, str]:
    first, last = ("-" if time_ns is None else time_text(time_ns) for time_ns in (found.first_ns, found.last_ns))
    return (name, f"{found.count:,}", size_text(found.size_bytes), first, last)
