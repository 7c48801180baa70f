"""What a dry run shows: how many messages of which topics, when they were published, and the first of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count

from nsq_spark.replay.command.figures import count_text, rows_text, shown, size_text, time_text
from nsq_spark.replay.look import Look, Match, TopicCount
from nsq_spark.replay.outcome import Outcome
from nsqd_py.settings.durations import HOUR_NS, MINUTE_NS, SECOND_NS, format_duration

_DAY_NS = 24 * HOUR_NS
_MOST_ROWS = 24
_BAR_CELLS = 40
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_WIDTHS_NS = (
    *(count * SECOND_NS for count in (1, 2, 5, 10, 15, 30)),
    *(count * MINUTE_NS for count in (1, 2, 5, 10, 15, 30)),
    *(count * HOUR_NS for count in (1, 2, 3, 6, 12)),
    *(count * _DAY_NS for count in (1, 2, 7, 28, 91, 364)),
)


def dry_run_text(look: Look, outcome: Outcome) -> str:
    """All of it. What messages bring along cannot steer a terminal."""
    if not look.topics:
        return f"nothing matches, of {count_text(outcome.counts.read, 'message')} that were read"
    parts = [topics_text(look.topics), histogram_text(look.buckets, look.bucket_ns), _first_text(look)]
    return "\n\n".join(filter(None, parts))


def topics_text(topics: Mapping[str, TopicCount]) -> str:
    """A row for each topic, and one for all of them."""
    rows = [("topic", "messages", "size", "first", "last")]
    rows += [_row(shown(name), topics[name]) for name in sorted(topics)]
    if len(topics) > 1:
        everything = TopicCount()
        for found in topics.values():
            everything.add(found)
        rows.append(_row("all", everything))
    return rows_text(rows, right=(1, 2), indent="")


def _row(name: str, found: TopicCount) -> tuple[str, str, str, str, str]:
    times = ["-" if time_ns is None else time_text(time_ns) for time_ns in (found.first_ns, found.last_ns)]
    return (name, f"{found.count:,}", size_text(found.size_bytes), times[0], times[1])


# ---- over time


def histogram_text(buckets: Mapping[int, int], bucket_ns: int) -> str:
    """A bar for each stretch of time, of as many stretches as fit on a screen; empty where no times are known."""
    if not buckets:
        return ""
    width_ns = row_width(min(buckets) * bucket_ns, max(buckets) * bucket_ns, bucket_ns)
    rows: dict[int, int] = {}
    for bucket, messages in buckets.items():
        row = bucket * bucket_ns // width_ns
        rows[row] = rows.get(row, 0) + messages
    most = max(rows.values())
    lines = [
        (time_text(row * width_ns), f"{rows.get(row, 0):,}", bar(rows.get(row, 0) / most))
        for row in range(min(rows), max(rows) + 1)
    ]
    return f"messages in each {_width_text(width_ns)}\n{rows_text(lines, right=(1,), indent='')}"


def row_width(first_ns: int, last_ns: int, bucket_ns: int) -> int:
    """Of the stretches, so that few enough of them cover all: whole buckets, and of a length that people count in."""

    def fits(width_ns: int) -> bool:
        return last_ns // width_ns - first_ns // width_ns < _MOST_ROWS

    narrowest_ns = next(width_ns for width_ns in count(bucket_ns, bucket_ns) if fits(width_ns))
    good_ns = (width_ns for width_ns in _WIDTHS_NS if width_ns % bucket_ns == 0 and fits(width_ns))
    return next((width_ns for width_ns in good_ns if width_ns <= 4 * narrowest_ns), narrowest_ns)


def bar(part: float) -> str:
    """As long as the part of the whole, to an eighth of a cell; what is not nothing can be seen."""
    eighths = max(round(part * _BAR_CELLS * 8), 1 if part > 0 else 0)
    return (_EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def _width_text(width_ns: int) -> str:
    if width_ns % _DAY_NS == 0:
        return count_text(width_ns // _DAY_NS, "day")
    return re.sub(r"(?<=[hm])0[ms]", "", format_duration(width_ns))


# ---- the first ones


def _first_text(look: Look) -> str:
    return "\n".join([f"the first {count_text(len(look.first), 'message')}", *map(_match, look.first)])


def _match(match: Match) -> str:
    return " ".join(_words(match))


def _words(match: Match) -> Iterator[str]:
    yield "-" if match.timestamp_ns is None else time_text(match.timestamp_ns)
    yield shown(match.topic)
    yield "-" if match.id is None else shown(match.id)
    body = shown(match.body)
    left = match.size_bytes - len(match.body)
    yield f"{body}... ({size_text(match.size_bytes)})" if left else body
