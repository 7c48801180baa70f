"""Reports to statsd over UDP, with the keys of Go's nsqd. A counter is sent as its increase since the last report.

A report is collected at once. Its packets are spread over the interval, except for the last second of it, so that
statsd's socket buffer need not hold them all.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing

import gevent
from gevent.event import Event

from nsqd_py.broker.broker import Broker
from nsqd_py.debug.memory import memory_statistics
from nsqd_py.lookup.host import Endpoint, parse_address, resolve
from nsqd_py.protocol.names import is_ephemeral
from nsqd_py.runtime.pacing import Pace
from nsqd_py.stats.collect import Statistics, collect
from nsqd_py.stats.metrics import CHANNEL, COUNTER, GAUGE, TOPIC, Metric, age_ns

DEFAULT_PACKET_BYTES = 4096  # if the option is 0
_NOT_SPREAD_S = 1.0
_STOP_S = 1.0
_NS_PER_MS = 1_000_000

Row = tuple[str, str, str]  # name in statsd, name in /stats, COUNTER or GAUGE
_GAUGES_OF_MEMORY = (
    "heap_objects heap_idle_bytes heap_in_use_bytes heap_released_bytes gc_pause_usec_100 gc_pause_usec_99 gc_pause_usec_95 "
    "next_gc_bytes"
)


def _rows(of_kind: Iterable[Metric]) -> list[Row]:
    return [(metric.statsd, metric.key, metric.kind) for metric in of_kind if metric.statsd]


TOPIC_ROWS, CHANNEL_ROWS = _rows(TOPIC), _rows(CHANNEL)
MEMORY_ROWS: list[Row] = [*((name, name, GAUGE) for name in _GAUGES_OF_MEMORY.split()), ("gc_runs", "gc_total_runs", COUNTER)]


# ---- the lines of a report


class StatsdReports:
    """Makes the lines of each report, `key:value|c` or `key:value|g`, and remembers the counters of the last one."""

    def __init__(self, prefix: str, *, exclude_ephemeral: bool) -> None:
        self._prefix = prefix
        self._exclude_ephemeral = exclude_ephemeral
        self._counted: dict[str, int] = {}
        self._counting: dict[str, int] = {}
        self._aged: set[str] = set()

    def lines(self, topics: Iterable[Statistics], memory: Statistics | None) -> Iterator[str]:
        """Yield the lines of the next report. The caller must iterate to the end."""
        self._counting = {}
        for topic in self._included(topics, "topic_name"):
            place = f"topic.{topic['topic_name']}."
            yield from self._rows(place, TOPIC_ROWS, topic)
            yield from self._percentiles(place, topic)
            for channel in self._included(topic["channels"], "channel_name"):
                inner = f"{place}channel.{channel['channel_name']}."
                yield from self._rows(inner, CHANNEL_ROWS, channel)
                yield from self._percentiles(inner, channel)
                yield from self._age(f"{inner}oldest_message_age_ms", channel)
        if memory is not None:
            yield from self._rows("mem.", MEMORY_ROWS, memory)
        self._counted = self._counting

    def _included(self, things: Iterable[Statistics], name: str) -> Iterator[Statistics]:
        for thing in things:
            if not (self._exclude_ephemeral and is_ephemeral(thing[name])):
                yield thing

    def _rows(self, place: str, rows: Iterable[Row], statistics: Statistics) -> Iterator[str]:
        for name, key, kind in rows:
            value = statistics[key]
            if kind is COUNTER:
                value = self._since_last(place + name, value)
            yield self._line(place + name, value, kind)

    def _percentiles(self, place: str, statistics: Statistics) -> Iterator[str]:
        for entry in statistics["e2e_processing_latency"]["percentiles"] or ():
            name = f"{place}e2e_processing_latency_{entry['quantile'] * 100:.0f}"
            yield self._line(name, int(entry["value"]), GAUGE)

    def _age(self, key: str, channel: Statistics) -> Iterator[str]:
        """Yield the age of the oldest queued message; once 0 when none is left, since statsd keeps the last value."""
        age_ms = age_ns(channel.get("oldest_timestamp", 0)) // _NS_PER_MS
        if age_ms:
            self._aged.add(key)
        if key in self._aged:
            yield self._line(key, age_ms, GAUGE)
        if not age_ms:
            self._aged.discard(key)

    def _since_last(self, key: str, count: int) -> int:
        """Return the increase of a counter. A lower count belongs to a new topic or channel of that name."""
        self._counting[key] = count
        before = self._counted.get(key, 0)
        return count - before if count >= before else count

    def _line(self, key: str, value: int, kind: str) -> str:
        return f"{self._prefix}{key}:{value}|{kind[0]}\n"


def packets(lines: Iterable[str], size_bytes: int) -> list[bytes]:
    """Join lines to packets of up to `size_bytes`. A longer line is a packet by itself."""
    most = size_bytes if size_bytes > 0 else DEFAULT_PACKET_BYTES
    full = []
    packet = b""
    for line in lines:
        data = line.encode("utf-8", "surrogateescape")
        if packet and len(packet) + len(data) > most:
            full.append(packet)
            packet = b""
        packet += data
    return [*full, packet] if packet else full


# ---- sending


class StatsdReporter:
    """A greenlet that sends a report every `--statsd-interval`, if there is a `--statsd-address`."""

    def __init__(self, broker: Broker, resolve: Callable[[str, int], list[Endpoint]] = resolve) -> None:
        self._broker = broker
        self._resolve = resolve
        self._stopping = Event()
        self._greenlet: gevent.Greenlet[..., None] | None = None

    def start(self) -> None:
        """Start reporting, if there is an address. The prefix in the options must be complete."""
        if self._broker.options.statsd_address:
            self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """Send the rest of a report at once, and end. A look-up of statsd's name may take at most _STOP_S."""
        self._stopping.set()
        if self._greenlet is not None:
            self._greenlet.join(_STOP_S)
            self._greenlet.kill()

    def _run(self) -> None:
        options = self._broker.options
        reports = StatsdReports(options.statsd_prefix, exclude_ephemeral=options.statsd_exclude_ephemeral)
        interval_s = options.statsd_interval_ns / 1e9
        due_s = time.monotonic() + interval_s
        while not self._stopping.wait(max(0.0, due_s - time.monotonic())):
            self._report(reports, max(0.0, interval_s - _NOT_SPREAD_S))
            due_s = max(due_s + interval_s, time.monotonic())
        self._broker.log.info("STATSD: closing")

    def _report(self, reports: StatsdReports, spread_s: float) -> None:
        broker = self._broker
        address = broker.options.statsd_address
        try:
            sock = self._connect(address)
        except (OSError, ValueError) as error:
            broker.log.error("failed to create UDP socket to statsd(%s) - %s", address, error)
            return
        with closing(sock):
            broker.log.info("STATSD: pushing stats to %s", address)
            sent = packets(self._lines(reports), broker.options.statsd_udp_packet_size)
            refused = self._send(sock, sent, spread_s)
        if refused is not None:
            broker.log.warning("STATSD: %s did not take all of it - %s", address, refused)

    def _connect(self, address: str) -> socket.socket:
        """Return a connected UDP socket that never blocks. Raises OSError and ValueError."""
        parsed = parse_address(address)
        endpoint, *_ = self._resolve(parsed.host, parsed.port)
        sock = socket.socket(endpoint.family, socket.SOCK_DGRAM)
        try:
            sock.setblocking(False)
            sock.connect(endpoint.target)
        except OSError:
            sock.close()
            raise
        return sock

    def _lines(self, reports: StatsdReports) -> Iterator[str]:
        broker = self._broker
        pace = Pace()
        topics = collect(broker, "", "", include_clients=False).topics or ()
        for line in reports.lines(topics, memory_statistics() if broker.options.statsd_mem_stats else None):
            pace.rest_if_due()
            yield line

    def _send(self, sock: socket.socket, report: list[bytes], spread_s: float) -> OSError | None:
        """Send packets, spread over `spread_s`; return the last error, or None. Packets with an error are lost."""
        last_error = None
        for packet in report:
            try:
                sock.send(packet)
            except OSError as error:
                last_error = error
            self._stopping.wait(spread_s / len(report))
        return last_error
