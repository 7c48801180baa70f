"""/metrics for Prometheus: topics, channels, the log, the event loop, the process.

prometheus-client writes the text. It iterates over the samples of a family, so that the work can pause in between: a
thousand topics of three channels have 40,000 samples, and one takes 3 us.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Any, NamedTuple

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    GCCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from nsqd_py.broker.broker import Broker
from nsqd_py.clock import wall_ns
from nsqd_py.debug.collector import COLLECTIONS
from nsqd_py.runtime.histogram import Histogram
from nsqd_py.runtime.pacing import Pace
from nsqd_py.stats.collect import Figures, collect
from nsqd_py.version import NSQ_VERSION

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

COUNTER, GAUGE = "counter", "gauge"
_NS_PER_S = 1_000_000_000

Labels = dict[str, str]


class Family(NamedTuple):
    """A metric of each topic, channel or log. `name` is without the `_total` of a counter."""

    name: str
    kind: str
    help: str
    value: Callable[[Any], float]


def _figure(key: str) -> Callable[[Figures], float]:
    return lambda figures: float(figures[key])


def _age_s(timestamp_ns: int) -> float:
    """Return the time since a timestamp; 0 if it is 0, or in the future."""
    return max(0.0, (wall_ns() - timestamp_ns) / _NS_PER_S) if timestamp_ns else 0.0


# fmt: off
TOPIC_FAMILIES = (
    Family("nsqd_topic_messages", COUNTER, "Messages published to the topic.", _figure("message_count")),
    Family("nsqd_topic_message_bytes", COUNTER, "Bytes of messages published to the topic.", _figure("message_bytes")),
    Family("nsqd_topic_depth", GAUGE, "Messages that no channel has received yet.", _figure("depth")),
    Family("nsqd_topic_backend_depth", GAUGE, "Messages of the depth that are not in memory.",
        _figure("backend_depth")),
    Family("nsqd_topic_paused", GAUGE, "1 while the topic is paused.", _figure("paused")),
)
CHANNEL_FAMILIES = (
    Family("nsqd_channel_messages", COUNTER, "Messages that the channel received.", _figure("message_count")),
    Family("nsqd_channel_requeued", COUNTER, "Messages that consumers requeued.", _figure("requeue_count")),
    Family("nsqd_channel_timed_out", COUNTER, "Messages that timed out in flight.", _figure("timeout_count")),
    Family("nsqd_channel_depth", GAUGE, "Messages queued for delivery.", _figure("depth")),
    Family("nsqd_channel_backend_depth", GAUGE, "Messages of the depth that are not in memory.",
        _figure("backend_depth")),
    Family("nsqd_channel_in_flight", GAUGE, "Messages in flight.", _figure("in_flight_count")),
    Family("nsqd_channel_deferred", GAUGE, "Deferred messages.", _figure("deferred_count")),
    Family("nsqd_channel_clients", GAUGE, "Connected consumers.", _figure("client_count")),
    Family("nsqd_channel_finished", COUNTER, "Messages that consumers finished.", _figure("finish_count")),
    Family("nsqd_channel_paused", GAUGE, "1 while the channel is paused.", _figure("paused")),
)
OWN_TOPIC_FAMILIES = (
    Family("nsqd_topic_oldest_message_age_seconds", GAUGE,
        "Age of the oldest message that no channel has received yet; 0 if there is none.",
        lambda topic: _age_s(topic.oldest_ns)),
    Family("nsqd_topic_memory_bytes", GAUGE, "Bytes of the topic's messages in memory.",
        lambda topic: topic.held_bytes),
    Family("nsqd_topic_expired", COUNTER, "Messages that expired before a channel received them.",
        lambda topic: topic.expired_count),
)
OWN_CHANNEL_FAMILIES = (
    Family("nsqd_channel_oldest_message_age_seconds", GAUGE,
        "Age of the oldest message queued for delivery; 0 if there is none.",
        lambda channel: _age_s(channel.oldest_ns)),
    Family("nsqd_channel_lost", COUNTER, "Messages of the channel that could not be read and were skipped.",
        lambda channel: channel.lost_count),
    Family("nsqd_channel_unreadable", GAUGE, "Messages of the channel that cannot be read at present.",
        lambda channel: channel.distributor.unreadable_count),
    Family("nsqd_channel_expired", COUNTER, "Messages that expired in the channel.",
        lambda channel: channel.distributor.expired_count),
    Family("nsqd_channel_dead_letters", COUNTER, "Messages moved to the dead-letter topic.",
        lambda channel: channel.dead_letter_count),
)
# Labelled with the address of the standby, or on the standby with that of its primary.
STANDBY_FAMILIES = (
    Family("nsqd_standby_lag_messages", GAUGE, "Messages that the standby has not acknowledged.",
           _figure("lag_messages")),
    Family("nsqd_standby_lag_bytes", GAUGE, "Bytes that the standby has not acknowledged.", _figure("lag_bytes")),
    Family("nsqd_standby_lag_seconds", GAUGE, "Age of the oldest change that the standby has not acknowledged.",
           lambda lag: lag["lag_ms"] / 1000),
)
LOG_FAMILIES = (
    Family("nsqd_log_bytes", GAUGE, "Bytes of records in the topic's log.", lambda log: log.size_bytes),
    Family("nsqd_log_files", GAUGE, "Files of the topic's log.", lambda log: len(log.files)),
    Family("nsqd_log_damaged_bytes", COUNTER, "Bytes of the topic's log that could not be read.",
        lambda log: log.damage.bytes_found),
    Family("nsqd_log_missing_messages", COUNTER, "Messages that were in no file of the log at the start.",
        lambda log: log.damage.missing_count),
    Family("nsqd_log_removed_files", COUNTER, "Files that another process removed while nsqd used them.",
        lambda log: log.damage.removed_files),
)
BROKER_FAMILIES = (
    Family("nsqd_healthy", GAUGE, "1 if the health in /stats is OK.", lambda broker: broker.health() is None),
    Family("nsqd_draining", GAUGE, "1 during a drain.", lambda broker: broker.drain.is_active),
    Family("nsqd_answering_alone", GAUGE, "1 while publishers are answered without the standbys of --standby-acks.",
           lambda broker: broker.replication.notice() is not None),
    Family("nsqd_start_time_seconds", GAUGE, "Start time, in seconds since the Unix epoch.",
        lambda broker: broker.start_time),
    Family("nsqd_topics", GAUGE, "Number of topics.", lambda broker: len(broker.topics)),
    Family("nsqd_memory_limit_bytes", GAUGE, "The value of --mem-queue-bytes.",
        lambda broker: broker.memory.limit_bytes),
    Family("nsqd_log_write_errors", COUNTER, "Failed writes to logs.", lambda broker: broker.disk.write_errors),
    Family("nsqd_gc_pause_seconds", COUNTER, "Time that the process stood still for the garbage collector.",
        lambda _: COLLECTIONS.total_pause_ns / _NS_PER_S),
)
# fmt: on


def exposition(broker: Broker) -> bytes:
    """Return all metrics in Prometheus' text format. Blocks this greenlet in its pauses."""
    return generate_latest(_Metrics(broker))


class _Metrics(Collector):
    """The collector of one scrape, for `generate_latest`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._pace = Pace()

    def collect(self) -> Iterator[Metric]:
        broker = self._broker
        topics = collect(broker, "", "", include_clients=False).topics or []
        by_name = sorted(broker.topics.items())
        own = [({"topic": name}, topic) for name, topic in by_name]
        logs = [({"topic": name}, topic.log) for name, topic in by_name if topic.log is not None]
        channels = [
            ({"topic": name, "channel": channel.name}, channel)
            for name, topic in by_name
            for channel in topic.channels.values()
        ]
        yield InfoMetricFamily("nsqd_build", "Versions of this nsqd.", _build_info())
        yield from self._families(BROKER_FAMILIES, [({}, broker)])
        yield from _connections(broker)
        yield _memory(broker)
        yield from self._families(TOPIC_FAMILIES, _labelled_topics(topics))
        yield from self._families(CHANNEL_FAMILIES, _labelled_channels(topics))
        yield from self._families(OWN_TOPIC_FAMILIES, own)
        yield from self._families(OWN_CHANNEL_FAMILIES, channels)
        yield from self._latencies(topics)
        yield from self._families(LOG_FAMILIES, logs)
        yield from self._families(STANDBY_FAMILIES, [({"peer": peer}, lag) for peer, lag in broker.replication.lags()])
        yield _histogram("nsqd_log_sync_duration_seconds", "Duration of fsyncs of logs.", broker.sync.durations_s)
        yield _histogram("nsqd_event_loop_lag_seconds", "Delay of the event loop.", broker.loop_lag.lags_s)
        yield from _process_metrics()

    def _families(self, families: Iterable[Family], things: list[tuple[Labels, Any]]) -> Iterator[Metric]:
        for family in families:
            samples = ((labels, family.value(thing)) for labels, thing in things)
            yield self._metric(family.name, family.help, family.kind, samples)

    def _metric(self, name: str, text: str, kind: str, values: Iterable[tuple[Labels, float]]) -> Metric:
        """Return a metric whose samples are generated when they are read."""
        metric = Metric(name, text, kind)
        metric.samples = self._samples(name + "_total" if kind is COUNTER else name, values)  # type: ignore[assignment]
        return metric

    def _samples(self, name: str, values: Iterable[tuple[Labels, float]]) -> Iterator[Sample]:
        for labels, value in values:
            self._pace.rest_if_due()
            yield Sample(name, labels, value)

    def _latencies(self, topics: list[Figures]) -> Iterator[Metric]:
        """Yield the metrics of percentiles, if percentiles are configured."""
        for things, name, text in (
            (_labelled_topics(topics), "nsqd_topic_e2e_latency_seconds", "From publish to finish, all channels."),
            (_labelled_channels(topics), "nsqd_channel_e2e_latency_seconds", "From publish to finish."),
        ):
            values = [
                (labels | {"quantile": repr(entry["quantile"])}, entry["value"] / _NS_PER_S)
                for labels, figures in things
                for entry in figures["e2e_processing_latency"]["percentiles"] or ()
            ]
            if values:
                yield self._metric(name, text, GAUGE, values)


def _labelled_topics(topics: list[Figures]) -> list[tuple[Labels, Figures]]:
    return [({"topic": topic["topic_name"]}, topic) for topic in topics]


def _labelled_channels(topics: list[Figures]) -> list[tuple[Labels, Figures]]:
    return [
        ({"topic": topic["topic_name"], "channel": channel["channel_name"]}, channel)
        for topic in topics
        for channel in topic["channels"]
    ]


def _build_info() -> Labels:
    return {"version": NSQ_VERSION, "python": ".".join(map(str, sys.version_info[:3]))}


def _memory(broker: Broker) -> Metric:
    """Return the bytes that count towards --mem-queue-bytes."""
    budget = broker.memory
    family = GaugeMetricFamily("nsqd_memory_bytes", "Bytes of messages and buffers in memory.", labels=["kind"])
    family.add_metric(["log"], budget.cached_bytes)
    family.add_metric(["ephemeral"], budget.ephemeral_bytes)
    family.add_metric(["buffers"], budget.buffer_bytes)
    return family


def _connections(broker: Broker) -> Iterator[Metric]:
    """Yield the numbers of open, refused and timed-out connections."""
    connected = GaugeMetricFamily("nsqd_connections", "Open connections.", labels=["protocol"])
    connected.add_metric(["tcp"], len(broker.clients))
    connected.add_metric(["http"], len(broker.http_clients))
    yield connected
    if broker.connections is None:
        return
    for name, text, counts in (
        ("nsqd_connections_refused", "Connections that were refused.", broker.connections.refused),
        ("nsqd_connections_timed_out", "Connections that timed out.", broker.connections.timed_out),
    ):
        family = CounterMetricFamily(name, text, labels=["reason"])
        for reason, count in sorted(counts.items()):
            family.add_metric([reason], count)
        yield family


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    buckets = [("+Inf" if bound == inf else repr(bound), float(count)) for bound, count in histogram.cumulative()]
    return HistogramMetricFamily(name, text, buckets, histogram.total)


def _process_metrics() -> Iterator[Metric]:
    """Yield processor time, memory, descriptors and collections, with the library's usual names."""
    registry = CollectorRegistry()  # not the library's global one, which belongs to a program that embeds nsqd
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    yield from registry.collect()
