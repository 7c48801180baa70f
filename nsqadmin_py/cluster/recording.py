"""Selects the figures of the cluster that go into the history after each round. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nsqadmin_py.cluster.standby_views import Roles
from nsqadmin_py.history.series import LAGS, LATENCIES, MOST_QUANTILES, Key, Values
from nsqd_py.cluster.figures import MILLI, ChannelCounts, Latency, Numbers, Rates
from nsqd_py.cluster.model import Cluster, totals

Record = tuple[Key, Values, tuple[float, ...]]


def records(cluster: Cluster) -> Iterator[Record]:
    """Yield a record for the cluster, and one for each topic, channel and nsqd whose figures are known.

    The depth of a topic includes the depths of its channels.
    """
    yield _cluster(cluster)
    for name, topic in cluster.topics.items():
        counts, rates = topic.channel_totals()
        latency = cluster.latency_of(topic, name)
        yield _record(Key(name), topic.counts[0] + counts.depth, counts, topic.rates, rates, latency)
        for channel_name, channel in topic.channels.items():
            of_channel = channel.figures
            latency = cluster.latency_of(channel, name, channel_name)
            key = Key(name, channel_name)
            yield _record(key, of_channel.depth, of_channel, channel.rates, Rates._make(channel.rates), latency)
    roles = Roles(cluster)
    for address, node in cluster.nodes.items():
        if node.is_whole:
            counts = ChannelCounts._make(node.of_channels.counts)
            depth = node.of_topics.counts[0] + counts.depth
            rates = Rates._make(node.of_channels.rates)
            key, values, quantiles = _record(Key(node=address), depth, counts, node.of_topics.rates, rates, node.latency)
            about = roles.json_of(node)
            lags = {name: about[name] for name in LAGS if about[name] is not None}
            yield key, {**values, **lags}, quantiles


def _cluster(cluster: Cluster) -> Record:
    topics, topic_rates, channels, channel_rates = totals(cluster)
    counts = ChannelCounts._make(channels)
    return _record(Key(), topics[0] + counts.depth, counts, topic_rates, channel_rates, ())


def _record(key: Key, depth: int, counts: ChannelCounts, flow: Numbers, rates: Rates, latency: Latency) -> Record:
    values: dict[str, float] = {
        "depth": depth,
        "in_flight": counts.in_flight,
        "deferred": counts.deferred,
        "message_rate": flow[0] / MILLI,
        "finish_rate": rates.finished / MILLI,
        "requeue_rate": rates.requeued / MILLI,
        "timeout_rate": rates.timed_out / MILLI,
    }
    if not latency:
        return key, values, ()
    values.update((name, value_ns) for name, (_, value_ns) in zip(LATENCIES, latency, strict=False))
    return key, values, tuple(quantile for quantile, _ in latency[:MOST_QUANTILES])
