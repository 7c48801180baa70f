"""Reports to statsd over UDP, with the keys of Go's nsqd. A counter is sent as its increase since the last report.

`StatsdReports` makes the lines of a report, `StatsdReporter` sends them.

A report is collected at once. Its packets are spread over the interval, except for the last second of it, so that
statsd's socket buffer need not hold them all.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator

import gevent
from gevent.event import Event

from nsqd_py.broker.broker import Broker
from nsqd_py.debug.memory import memory_statistics
from nsqd_py.lookup.host import Endpoint, parse_address, resolve
from nsqd_py.protocol.names import is_ephemeral
from nsqd_py.runtime.pacing import WorkSlices
from nsqd_py.stats.collect import Statistics, collect
from nsqd_py.stats.metric import COUNTER, GAUGE, Metric
from nsqd_py.stats.metrics import CHANNEL, TOPIC

DEFAULT_PACKET_BYTES = 4096  # if the option is 0
_NOT_SPREAD_S = 1.0
_STOP_S = 1.0


# ---- the lines of a report


class StatsdReports:
    """Makes the lines of each report, `key:value|c` or `key:value|g`, and remembers the counters of the last one."""

    def __init__(self, prefix: str, *, exclude_ephemeral: bool) -> None:
        self._prefix = prefix
        self._exclude_ephemeral = exclude_ephemeral
        self._counted: dict[str, int] = {}
        self._counting: dict[str, int] = {}

    def lines(self, topics: Iterable[Statistics], memory: Statistics | None) -> Iterator[str]:
        """Yield the lines of the next report. The caller must iterate to the end."""
        self._counting = {}
        for topic in self._included(topics, "topic_name"):
            prefix = f"topic.{topic['topic_name']}."
            yield from self._metrics(prefix, TOPIC, topic)
            yield from self._percentiles(prefix, topic)
            for channel in self._included(topic["channels"], "channel_name"):
                channel_prefix = f"{prefix}channel.{channel['channel_name']}."
                yield from self._metrics(channel_prefix, CHANNEL, channel)
                yield from self._percentiles(channel_prefix, channel)
        for key, value in (memory or {}).items():
            is_counter = key == "gc_total_runs"
            yield self._line(
                "mem.", "gc_runs" if is_counter else key, value, COUNTER if is_counter else GAUGE
            )
        self._counted = self._counting

    def _included(self, things: Iterable[Statistics], name: str) -> Iterator[Statistics]:
        for thing in things:
            if not (self._exclude_ephemeral and is_ephemeral(thing[name])):
                yield thing

    def _metrics(self, prefix: str, metrics: Iterable[Metric], statistics: Statistics) -> Iterator[str]:
        for metric in metrics:
            if metric.statsd:
                yield self._line(prefix, metric.statsd, statistics[metric.key], metric.kind)

    def _percentiles(self, prefix: str, statistics: Statistics) -> Iterator[str]:
        for entry in statistics["e2e_processing_latency"]["percentiles"] or ():
            yield self._line(
                prefix, f"e2e_processing_latency_{entry['quantile'] * 100:.0f}", int(entry["value"]), GAUGE
            )

    def _line(self, prefix: str, name: str, value: int, kind: str) -> str:
        """Return a line. A counter that is lower than in the last report belongs to a new topic or channel of that name."""
        key = prefix + name
        if kind is COUNTER:
            self._counting[key] = value
            before = self._counted.get(key, 0)
            value -= before if value >= before else 0
        return f"{self._prefix}{key}:{value}|{kind[0]}\n"


def packets(lines: Iterable[str], size_bytes: int) -> list[bytes]:
    """Join lines to packets of up to `size_bytes`. A longer line is a packet by itself."""
    most = size_bytes if size_bytes > 0 else DEFAULT_PACKET_BYTES
    joined: list[bytes] = []
    for line in lines:
        data = line.encode("utf-8", "surrogateescape")
        if joined and len(joined[-1]) + len(data) <= most:
            joined[-1] += data
        else:
            joined.append(data)
    return joined


# ---- sending


class StatsdReporter:
    """A greenlet that sends a report every `--statsd-interval`. The prefix in the options must be complete."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._stopping = Event()
        self._greenlet: gevent.Greenlet[..., None] = gevent.spawn(self._run)

    def stop(self) -> None:
        """Send the rest of a report at once, and end. Resolving statsd's name may take at most _STOP_S."""
        self._stopping.set()
        self._greenlet.join(_STOP_S)
        self._greenlet.kill()

    def _run(self) -> None:
        options = self._broker.options
        reports = StatsdReports(options.statsd_prefix, exclude_ephemeral=options.statsd_exclude_ephemeral)
        interval_s = options.statsd_interval_ns / 1e9
        due_s = time.monotonic() + interval_s
        while not self._stopping.wait(max(0.0, due_s - time.monotonic())):
            try:
                self._report(reports, max(0.0, interval_s - _NOT_SPREAD_S))
            except Exception as error:  # after a bug, the next report must follow
                self._broker.log.exception("STATSD: a report ended early - %r", error)
            due_s = max(due_s + interval_s, time.monotonic())
        self._broker.log.info("STATSD: closing")

    def _report(self, reports: StatsdReports, spread_s: float) -> None:
        broker = self._broker
        address = broker.options.statsd_address
        try:
            parsed = parse_address(address)
            endpoint, *_ = resolve(parsed.host, parsed.port)
            sock = socket.socket(endpoint.family, socket.SOCK_DGRAM)
        except (OSError, ValueError) as error:
            broker.log.error("failed to create UDP socket to statsd(%s) - %s", address, error)
            return
        with sock:
            broker.log.info("STATSD: pushing stats to %s", address)
            sent = packets(self._lines(reports), broker.options.statsd_udp_packet_size)
            refused = self._send(sock, endpoint, sent, spread_s)
        if refused is not None:
            broker.log.warning("STATSD: %s did not take all of it - %s", address, refused)

    def _lines(self, reports: StatsdReports) -> Iterator[str]:
        broker = self._broker
        slices = WorkSlices()
        topics = collect(broker, "", "", include_clients=False).topics or ()
        memory = memory_statistics() if broker.options.statsd_mem_stats else None
        for line in reports.lines(topics, memory):
            slices.sleep_if_due()
            yield line

    def _send(
        self, sock: socket.socket, endpoint: Endpoint, report: list[bytes], spread_s: float
    ) -> OSError | None:
        """Send packets, spread over `spread_s`; return the last error, or None. Packets with an error are lost."""
        last_error = None
        try:
            sock.setblocking(False)
            sock.connect(endpoint.target)
        except OSError as error:
            return error
        for packet in report:
            try:
                sock.send(packet)
            except OSError as error:
                last_error = error
            self._stopping.wait(spread_s / len(report))
        return last_error
