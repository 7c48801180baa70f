"""A metric, and the functions that declare one: `metrics` has all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from nsqd_py.broker.services import Topic
from nsqd_py.clock import wall_ns
from nsqd_py.queue.channel import Channel
from nsqd_py.settings.durations import SECOND_NS

COUNTER = "counter"
GAUGE = "gauge"


class Metric(NamedTuple):
    """A metric of each thing of one kind.

    name    in /metrics, without _total at the end of a counter's name
    value   computes it for a thing
    statsd  its name in statsd; empty if it is not sent
    key     its name in /stats, where statsd finds it
    """

    name: str
    kind: str
    help: str
    value: Callable[[Any], float]
    statsd: str = ""
    key: str = ""


class ChannelOfTopic(NamedTuple):
    """A channel and its topic."""

    topic: Topic
    channel: Channel


def age_s(timestamp_ns: int) -> float:
    """Return the time since a timestamp; 0 if it is 0, or in the future."""
    if timestamp_ns:
        return max(0, wall_ns() - timestamp_ns) / SECOND_NS
    return 0.0


def time_before_s(ms_ago: int | None) -> float:
    """Return the time, since the Unix epoch, that was this long ago; 0 for None."""
    if ms_ago is None:
        return 0.0
    return wall_ns() / SECOND_NS - ms_ago / 1000


def _metric(
    kind: str, name: str, text: str, value: str | Callable[[Any], float], statsd: str = "", key: str = ""
) -> Metric:
    """Declare a metric. `value` may be the name of an attribute; `key` is `statsd` by default."""
    if isinstance(value, str):
        value = attrgetter(value)
    return Metric(name, kind, text, value, statsd, key or statsd)


counter = partial(_metric, COUNTER)
gauge = partial(_metric, GAUGE)


def of_replication(part: str, name: str) -> Callable[[Any], float]:
    """Return a function that gets a number of the standbys, the copy or the lease from a broker; 0 without one."""
    return lambda broker: float(broker.replication.statistics().get(part, {}).get(name, 0))
