"""/metrics for Prometheus: topics, channels, the log, the event loop, the process.

Ten thousand topics of one channel have 230,000 samples. The work pauses now and then, so that messages continue to
flow, and the text is sent in pieces: at once, 16 MB would hold the event loop for 250 ms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from math import inf
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeVar

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from nsqd_py.broker.broker import Broker
from nsqd_py.clock import wall_ns
from nsqd_py.debug.memory import PAUSES
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.histogram import Histogram
from nsqd_py.runtime.pacing import ONE_ROUND_S, Pace
from nsqd_py.stats.collect import latency_figures
from nsqd_py.version import NSQ_VERSION

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

COUNTER, GAUGE = "counter", "gauge"
_NS_PER_S = 1_000_000_000

_LINES_IN_A_PIECE = 1000
_number: Callable[[float], str] = floatToGoString

Labels = dict[str, str]
_Thing = TypeVar("_Thing")


class Family(NamedTuple):
    """A metric of each topic, channel or log. `name` is without the `_total` of a counter."""

    name: str
    kind: str
    help: str
    value: Callable[[Any], float]


class _Place(NamedTuple):
    """A channel and its topic."""

    topic: Topic
    channel: Channel


def _age_s(timestamp_ns: int) -> float:
    """Return the time since a timestamp; 0 if it is 0, or in the future."""
    return max(0.0, (wall_ns() - timestamp_ns) / _NS_PER_S) if timestamp_ns else 0.0


TOPIC_FAMILIES = (
    Family("nsqd_topic_messages", COUNTER, "Messages published to the topic.", attrgetter("message_count")),
    Family("nsqd_topic_message_bytes", COUNTER, "Bytes of messages published to the topic.", attrgetter("message_bytes")),
    Family("nsqd_topic_depth", GAUGE, "Messages that no channel has received yet.", attrgetter("depth")),
    Family("nsqd_topic_backend_depth", GAUGE, "Messages of the depth that are not in memory.", attrgetter("backend_depth")),
    Family("nsqd_topic_paused", GAUGE, "1 while the topic is paused.", attrgetter("is_paused")),
)
CHANNEL_FAMILIES = (
    Family("nsqd_channel_messages", COUNTER, "Messages that the channel received.", attrgetter("channel.message_count")),
    Family("nsqd_channel_requeued", COUNTER, "Messages that consumers requeued.", attrgetter("channel.requeue_count")),
    Family("nsqd_channel_timed_out", COUNTER, "Messages that timed out in flight.", attrgetter("channel.timeout_count")),
    Family("nsqd_channel_depth", GAUGE, "Messages queued for delivery.", attrgetter("channel.depth")),
    Family(
        "nsqd_channel_backend_depth",
        GAUGE,
        "Messages of the depth that are not in memory.",
        lambda place: place.channel.backend_depth(place.topic.first_in_memory),
    ),
    Family("nsqd_channel_in_flight", GAUGE, "Messages in flight.", attrgetter("channel.in_flight_count")),
    Family("nsqd_channel_deferred", GAUGE, "Deferred messages.", attrgetter("channel.deferred_count")),
    Family("nsqd_channel_clients", GAUGE, "Connected consumers.", lambda place: len(place.channel.clients)),
    Family("nsqd_channel_finished", COUNTER, "Messages that consumers finished.", attrgetter("channel.finish_count")),
    Family("nsqd_channel_paused", GAUGE, "1 while the channel is paused.", attrgetter("channel.is_paused")),
)
OWN_TOPIC_FAMILIES = (
    Family(
        "nsqd_topic_oldest_message_age_seconds",
        GAUGE,
        "Age of the oldest message that no channel has received yet; 0 if there is none.",
        lambda topic: _age_s(topic.oldest_ns),
    ),
    Family("nsqd_topic_memory_bytes", GAUGE, "Bytes of the topic's messages in memory.", attrgetter("held_bytes")),
    Family("nsqd_topic_expired", COUNTER, "Messages that expired before a channel received them.", attrgetter("expired_count")),
)
OWN_CHANNEL_FAMILIES = (
    Family(
        "nsqd_channel_oldest_message_age_seconds",
        GAUGE,
        "Age of the oldest message queued for delivery; 0 if there is none.",
        lambda place: _age_s(place.channel.oldest_ns),
    ),
    Family(
        "nsqd_channel_lost",
        COUNTER,
        "Messages of the channel that could not be read and were skipped.",
        attrgetter("channel.lost_count"),
    ),
    Family(
        "nsqd_channel_unreadable",
        GAUGE,
        "Messages of the channel that cannot be read at present.",
        attrgetter("channel.distributor.unreadable_count"),
    ),
    Family(
        "nsqd_channel_expired", COUNTER, "Messages that expired in the channel.", attrgetter("channel.distributor.expired_count")
    ),
    Family(
        "nsqd_channel_dead_letters", COUNTER, "Messages moved to the dead-letter topic.", attrgetter("channel.dead_letter_count")
    ),
)
# Labelled with the address of the standby, or on the standby with that of its primary.
STANDBY_FAMILIES = (
    Family("nsqd_standby_lag_messages", GAUGE, "Messages that the standby has not acknowledged.", itemgetter("lag_messages")),
    Family("nsqd_standby_lag_bytes", GAUGE, "Bytes that the standby has not acknowledged.", itemgetter("lag_bytes")),
    Family(
        "nsqd_standby_lag_seconds",
        GAUGE,
        "Age of the oldest change that the standby has not acknowledged.",
        lambda lag: lag["lag_ms"] / 1000,
    ),
)
LOG_FAMILIES = (
    Family("nsqd_log_bytes", GAUGE, "Bytes of records in the topic's log.", lambda log: log.size_bytes),
    Family("nsqd_log_files", GAUGE, "Files of the topic's log.", lambda log: len(log.files)),
    Family(
        "nsqd_log_damaged_bytes", COUNTER, "Bytes of the topic's log that could not be read.", lambda log: log.damage.bytes_found
    ),
    Family(
        "nsqd_log_missing_messages",
        COUNTER,
        "Messages that were in no file of the log at the start.",
        lambda log: log.damage.missing_count,
    ),
    Family(
        "nsqd_log_removed_files",
        COUNTER,
        "Files that another process removed or cut while nsqd used them.",
        lambda log: log.damage.removed_files,
    ),
)
BROKER_FAMILIES = (
    Family("nsqd_healthy", GAUGE, "1 if the health in /stats is OK.", lambda broker: broker.health() is None),
    Family("nsqd_draining", GAUGE, "1 during a drain.", lambda broker: broker.drain.is_active),
    Family(
        "nsqd_answering_alone",
        GAUGE,
        "1 while publishers are answered without the standbys of --standby-acks.",
        lambda broker: bool(broker.replication.figures().get("standbys", {}).get("is_alone")),
    ),
    Family("nsqd_start_time_seconds", GAUGE, "Start time, in seconds since the Unix epoch.", lambda broker: broker.start_time),
    Family("nsqd_disk_free_bytes", GAUGE, "Free bytes of the disk of --data-path.", lambda broker: broker.space.free_bytes),
    Family(
        "nsqd_disk_left_ratio",
        GAUGE,
        "Part of the disk, or of --max-disk-bytes if that is less, that publishes may still take: 0 to 1.",
        lambda broker: broker.space.left_percent() / 100,
    ),
    Family("nsqd_topics", GAUGE, "Number of topics.", lambda broker: len(broker.topics)),
    Family("nsqd_memory_limit_bytes", GAUGE, "The value of --mem-queue-bytes.", lambda broker: broker.memory.limit_bytes),
    Family("nsqd_log_write_errors", COUNTER, "Failed writes to logs.", lambda broker: broker.disk.write_errors),
    Family(
        "nsqd_gc_pause_seconds",
        COUNTER,
        "Time that the process stood still for the garbage collector.",
        lambda _: PAUSES.total_ns / _NS_PER_S,
    ),
)

_TOPIC_LATENCY = Family("nsqd_topic_e2e_latency_seconds", GAUGE, "From publish to finish, all channels.", float)
_CHANNEL_LATENCY = Family("nsqd_channel_e2e_latency_seconds", GAUGE, "From publish to finish.", float)


def exposition(broker: Broker) -> Iterator[bytes]:
    """Yield all metrics in Prometheus' text format, in pieces. Blocks this greenlet in its pauses."""
    return _Exposition(broker).pieces()


class _Exposition:
    """The text of one scrape. The lines of topics and channels are written here: a tenth of the library's time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._pace = Pace(ONE_ROUND_S)

    def pieces(self) -> Iterator[bytes]:
        broker = self._broker
        topics = [(_labels(topic=name), topic) for name, topic in self._paced(sorted(broker.topics.items()))]
        logs = [(labels, topic.log) for labels, topic in self._paced(topics) if topic.log is not None]
        channels = [
            (_labels(channel=channel.name, topic=topic.name), _Place(topic, channel))
            for _, topic in self._paced(topics)
            for channel in self._paced(list(topic.channels.values()))
        ]
        yield _written([InfoMetricFamily("nsqd_build", "Versions of this nsqd.", _build_info())])
        yield from self._families(BROKER_FAMILIES, [("", broker)])
        yield _written([*_connections(broker), _memory(broker)])
        yield from self._families(TOPIC_FAMILIES, topics)
        yield from self._families(CHANNEL_FAMILIES, channels)
        yield from self._families(OWN_TOPIC_FAMILIES, topics)
        yield from self._families(OWN_CHANNEL_FAMILIES, channels)
        of_topics = (({"topic": topic.name}, list(topic.channels.values())) for _, topic in topics)
        of_channels = (({"topic": place.topic.name, "channel": place.channel.name}, [place.channel]) for _, place in channels)
        yield from self._latencies(_TOPIC_LATENCY, of_topics)
        yield from self._latencies(_CHANNEL_LATENCY, of_channels)
        yield from self._families(LOG_FAMILIES, logs)
        yield _written(
            [
                *_standbys(broker),
                _histogram("nsqd_log_sync_duration_seconds", "Duration of fsyncs of logs.", broker.sync.durations_s),
                _histogram("nsqd_event_loop_lag_seconds", "Delay of the event loop.", broker.loop_lag.lags_s),
                *_process_metrics(),
            ]
        )

    def _paced(self, things: Iterable[_Thing]) -> Iterator[_Thing]:
        for thing in things:
            self._pace.rest_if_due()
            yield thing

    def _families(self, families: Iterable[Family], things: list[tuple[str, Any]]) -> Iterator[bytes]:
        for family in families:
            value_of = family.value
            yield from self._lines(family, ((labels, value_of(thing)) for labels, thing in things))

    def _lines(self, family: Family, values: Iterable[tuple[str, float]]) -> Iterator[bytes]:
        """Yield the lines of one metric. The values are computed meanwhile."""
        name = f"{family.name}_total" if family.kind == COUNTER else family.name
        lines = [f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n"]
        for labels, value in self._paced(values):
            lines.append(f"{name}{labels} {_number(value) if value else '0.0'}\n")
            if len(lines) == _LINES_IN_A_PIECE:
                yield "".join(lines).encode()
                lines.clear()
        yield "".join(lines).encode()

    def _latencies(self, family: Family, groups: Iterable[tuple[Labels, list[Channel]]]) -> Iterator[bytes]:
        """Yield a metric of the percentiles of these channels, if percentiles are configured."""
        values = [
            (_labels(**labels, quantile=repr(float(entry["quantile"]))), entry["value"] / _NS_PER_S)
            for labels, channels in self._paced(groups)
            for entry in latency_figures(channels)["percentiles"] or ()
        ]
        if values:
            yield from self._lines(family, values)


def _labels(**labels: str) -> str:
    """Return labels as they follow a metric's name. Their values need no quoting: no name contains a quote."""
    return "{" + ",".join([f'{name}="{labels[name]}"' for name in sorted(labels)]) + "}"


class _Given(Collector):
    """Metrics for `generate_latest`."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _written(metrics: Iterable[Metric]) -> bytes:
    return generate_latest(_Given(metrics))


def _standbys(broker: Broker) -> Iterator[Metric]:
    for family in STANDBY_FAMILIES:
        metric = Metric(family.name, family.help, family.kind)
        for peer, lag in broker.replication.lags():
            metric.add_sample(family.name, {"peer": peer}, family.value(lag))
        yield metric


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
