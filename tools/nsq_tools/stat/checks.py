"""What `--check` reports of topics and channels: paused, without a consumer, or gone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nsq_tools.stat.model import Name, Row
from nsq_tools.stat.selection import Filter


def problems_of(rows: Sequence[Row], gone: Iterable[Name], wanted: Filter) -> Iterator[str]:
    """Yield a sentence, without a full stop, for each problem of the wanted rows.

    `gone` are topics that nsqlookupds list, and that no nsqd has.
    """
    with_channels = {(row.name.topic, row.node) for row in rows if row.name.channel}
    for row in rows:
        if wanted.shows(row.name):
            problem = _problem_of(row, has_channels=(row.name.topic, row.node) in with_channels)
            if problem:
                yield f"{row.name}{f' on {row.node}' if row.node else ''}: {problem}, {row.counts.depth:.0f} waiting"
    for name in sorted(gone):
        if wanted.shows(name):
            yield f"{name}: listed by an nsqlookupd, but no nsqd has it"


def _problem_of(row: Row, *, has_channels: bool) -> str:
    if row.is_paused:
        return "paused"
    if not row.counts.depth or row.counts.clients or (has_channels and not row.name.channel):
        return ""
    return "no consumer" if row.name.channel else "no channel"
