"""/metrics for Prometheus: topics, channels, the log, the event loop, the process.

Ten thousand topics of one channel have 230,000 samples. The work pauses now and then, so that messages continue to
flow, and the text is sent in pieces: at once, 16 MB would hold the event loop for 250 ms.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import gevent
from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    GCCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.utils import floatToGoString

from nsqd_py.broker.broker import Broker
from nsqd_py.queue.channel import Channel
from nsqd_py.runtime.pacing import ONE_ROUND_S, Histogram, WorkSlices
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.stats import metrics
from nsqd_py.stats.collect import latency_statistics
from nsqd_py.stats.metric import COUNTER, ChannelOfTopic, Metric
from nsqd_py.version import NSQ_VERSION, PROJECT_VERSION

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_LINES_IN_A_PIECE = 1000
_number: Callable[[float], str] = floatToGoString

_Thing = TypeVar("_Thing")


class Exposition:
    """The text of one scrape. The lines of topics and channels are written here: a tenth of the library's time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._slices = WorkSlices(ONE_ROUND_S)

    def pieces(self) -> Iterator[bytes]:
        """Yield all metrics in Prometheus' text format. Blocks this greenlet in its pauses."""
        broker = self._broker
        memory = broker.memory
        connections = broker.connections
        by_name = sorted(broker.topics.items())
        topics = [(_labels(topic=name), topic) for name, topic in self._paced(by_name)]
        logs = [(labels, topic.log) for labels, topic in self._paced(topics) if topic.log is not None]
        channels = []
        for _, topic in self._paced(topics):
            for channel in self._paced(list(topic.channels.values())):
                labels = _labels(channel=channel.name, topic=topic.name)
                channels.append((labels, ChannelOfTopic(topic, channel)))
        python = ".".join(map(str, sys.version_info[:3]))
        versions = _labels(python=python, project_version=PROJECT_VERSION, version=NSQ_VERSION)
        yield from self._lines(metrics.BUILD, [(versions, 1)])
        yield from self._all(metrics.BROKER, [("", broker)])
        if broker.scrub is not None:
            yield from self._all(metrics.SCRUB, [("", broker.scrub)])
        open_counts = {"tcp": len(broker.clients), "http": len(broker.http_clients)}
        yield from self._by_label(metrics.CONNECTIONS, "protocol", open_counts)
        if connections is not None:
            yield from self._by_label(metrics.REFUSED, "reason", connections.refused)
            yield from self._by_label(metrics.TIMED_OUT, "reason", connections.timed_out)
        used_bytes = {
            "log": memory.cached_bytes,
            "ephemeral": memory.ephemeral_bytes,
            "buffers": memory.buffer_bytes,
        }
        yield from self._by_label(metrics.MEMORY, "kind", used_bytes)
        yield from self._all(metrics.TOPIC, topics)
        yield from self._all(metrics.CHANNEL, channels)
        of_topics = (({"topic": topic.name}, list(topic.channels.values())) for _, topic in topics)
        of_channels = (_of_channel(row) for _, row in channels)
        yield from self._latencies(metrics.TOPIC_LATENCY, of_topics)
        yield from self._latencies(metrics.CHANNEL_LATENCY, of_channels)
        yield from self._all(metrics.LOG, logs)
        lags = [(_labels(peer=peer), lag) for peer, lag in broker.replication.lags()]
        yield from self._all(metrics.STANDBY, lags)
        yield from self._of_store()
        yield _histogram(
            "nsqd_log_sync_duration_seconds", "Duration of fsyncs of logs.", broker.sync.durations_s
        )
        yield _histogram("nsqd_event_loop_lag_seconds", "Delay of the event loop.", broker.loop_lag.lags_s)
        # It lists the open files: 10 ms for 9,000 connections. Not in a thread of the disk, which may be stalled.
        yield gevent.get_hub().threadpool.apply(_of_process)

    def _of_store(self) -> Iterator[bytes]:
        """Yield the metrics of the store; without one, their names and no samples."""
        store = self._broker.additions.statistics().get("store")
        stores = [] if store is None else [("", store)]
        requests = {} if store is None else store["requests"]
        yield from self._all(metrics.STORE, stores)
        yield from self._by_label(metrics.STORE_REQUESTS, "kind", requests)

    def _paced(self, things: Iterable[_Thing]) -> Iterator[_Thing]:
        for thing in things:
            self._slices.sleep_if_due()
            yield thing

    def _all(self, of_kind: Iterable[Metric], things: list[tuple[str, Any]]) -> Iterator[bytes]:
        for metric in of_kind:
            value_of = metric.value
            yield from self._lines(metric, ((labels, value_of(thing)) for labels, thing in things))

    def _by_label(self, metric: Metric, label: str, counts: dict[str, int]) -> Iterator[bytes]:
        rows = [(_labels(**{label: name}), count) for name, count in sorted(counts.items())]
        return self._lines(metric, rows)

    def _lines(self, metric: Metric, values: Iterable[tuple[str, float]]) -> Iterator[bytes]:
        """Yield the lines of one metric. `values` are computed in the meantime."""
        name = f"{metric.name}_total" if metric.kind == COUNTER else metric.name
        lines = [f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n"]
        for labels, value in self._paced(values):
            lines.append(f"{name}{labels} {_number(value) if value else '0.0'}\n")
            if len(lines) == _LINES_IN_A_PIECE:
                yield "".join(lines).encode()
                lines.clear()
        yield "".join(lines).encode()

    def _latencies(
        self, metric: Metric, groups: Iterable[tuple[dict[str, str], list[Channel]]]
    ) -> Iterator[bytes]:
        """Yield a metric of the percentiles of these channels, if percentiles are configured."""
        values = []
        for labels, channels in self._paced(groups):
            for entry in latency_statistics(channels)["percentiles"] or ():
                quantile = repr(float(entry["quantile"]))
                values.append((_labels(**labels, quantile=quantile), entry["value"] / SECOND_NS))
        if values:
            yield from self._lines(metric, values)


def _of_channel(row: ChannelOfTopic) -> tuple[dict[str, str], list[Channel]]:
    return {"topic": row.topic.name, "channel": row.channel.name}, [row.channel]


def _labels(**labels: str) -> str:
    """Return labels as they follow a metric's name. Their values need no quoting: no name or address contains a quote."""
    return "{" + ",".join([f'{name}="{labels[name]}"' for name in sorted(labels)]) + "}"


def _histogram(name: str, text: str, histogram: Histogram) -> bytes:
    lines = [f"# HELP {name} {text}\n# TYPE {name} histogram\n"]
    count = 0
    for bound, count in histogram.cumulative():
        lines.append(f"{name}_bucket{_labels(le=_number(bound))} {_number(count)}\n")
    return "".join(
        [*lines, f"{name}_count {_number(count)}\n{name}_sum {_number(histogram.total)}\n"]
    ).encode()


def _of_process() -> bytes:
    """Return processor time, memory, descriptors and collections, with the library's usual names."""
    # Not the library's global one, which belongs to a program that embeds nsqd.
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return generate_latest(registry)
