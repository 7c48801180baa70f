"""Rows of nsq-stat with the counts that a test names."""

from __future__ import annotations

from collections.abc import Sequence

from nsq_tools.stat.rows import Name, Row
from nsqd_py.cluster.counts import ChannelCounts, Rates
from nsqd_py.cluster.statistics import NO_CHANNEL


def counts(**named: int) -> ChannelCounts:
    return NO_CHANNEL._replace(**named)


def row(
    topic: str,
    channel: str = "",
    rates: Rates | None = None,
    node: str = "",
    *,
    depths: Sequence[float] = (0,),
    grows: bool = False,
    is_paused: bool = False,
    **named: int,
) -> Row:
    return Row(Name(topic, channel), node, counts(**named), rates, is_paused, tuple(depths), grows)
