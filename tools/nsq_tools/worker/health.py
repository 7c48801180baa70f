"""/healthz, /readyz and /metrics of all processes, over HTTP.

A thread serves each request, and reads the board of the supervisor once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from threading import Thread
from time import monotonic

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from nsq_tools.worker.reports import BOUNDS_S, HandlerCounts
from nsq_tools.worker.verdict import Board, problems_of, unconnected
from nsqd_py.net.addresses import join_address, parse_host_port
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.settings.program import ToolError

# A client that sends or reads nothing for this time is disconnected.
_CLIENT_TIMEOUT_S = 5.0
_TEXT = "text/plain; charset=utf-8"
_LABELS = ("handler", "topic", "channel")
# Field of HandlerCounts: the metric, and its help.
_COUNTERS = {
    "handled": ("nsq_worker_handled", "Messages that a handler has finished."),
    "failed": ("nsq_worker_failed", "Calls of a handler that raised."),
    "retried": ("nsq_worker_retried", "Messages that were requeued after a failure."),
    "dead_letters": ("nsq_worker_dead_letters", "Messages that were given up."),
    "timed_out": ("nsq_worker_timeouts", "Calls of a handler that took longer than its time limit."),
}
_GAUGES = {
    "in_flight": ("nsq_worker_in_flight", "Messages that handlers have at present."),
    "connections": ("nsq_worker_connections", "Connections to nsqds."),
}


class HealthServer:
    """Serves until the process ends."""

    def __init__(self, address: str, board: Callable[[], Board], log: Log) -> None:
        """Listen. Raises ToolError if the address cannot be used."""
        host, port = parse_host_port(address, lowest_port=0)

        class Server(ThreadingHTTPServer):
            address_family = AF_INET6 if ":" in host else AF_INET
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                """Write nothing for a client that is gone, and one line for a fault of ours."""
                error = sys.exc_info()[1]
                if not isinstance(error, OSError):
                    log.error("HTTP: %s: %r", client_address, error)

        class Handler(_Handler):
            pages = Pages(board)

        try:
            self._server = Server((host, port), Handler)
        except OSError as error:
            raise ToolError(f"--health-address: cannot listen on {address}: {error.strerror}") from error

    @property
    def address(self) -> str:
        """Where it listens; with port 0, the system has chosen the port."""
        host, port = self._server.server_address[:2]
        return join_address(str(host), port)

    def start(self) -> None:
        Thread(target=self._server.serve_forever, name="health", daemon=True).start()


class Pages:
    """The answers, from a board."""

    def __init__(self, board: Callable[[], Board], clock: Callable[[], float] = monotonic) -> None:
        self._board = board
        self._clock = clock
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Counts(board))

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Return the status, the type and the body for a path."""
        if path == "/metrics":
            return 200, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(self._registry)
        if path not in ("/healthz", "/readyz"):
            return 404, _TEXT, b"there are /healthz, /readyz and /metrics\n"
        board = self._board()
        problems = problems_of(board, self._clock())
        if path == "/readyz":
            problems += unconnected(board)
        body = "".join(f"{problem}\n" for problem in problems) or "OK\n"
        return 503 if problems else 200, _TEXT, body.encode()


class _Handler(BaseHTTPRequestHandler):
    pages: Pages
    timeout = _CLIENT_TIMEOUT_S

    def do_GET(self) -> None:
        self.wfile.write(self._answer_head())

    def do_HEAD(self) -> None:
        self._answer_head()

    def _answer_head(self) -> bytes:
        """Send the head of an answer. Return its body."""
        status, kind, body = self.pages.answer(self.path.partition("?")[0])
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        return body

    def log_message(self, *_: object) -> None:
        """Write no line for a request."""


class _Counts(Collector):
    """The metrics of a board."""

    def __init__(self, board: Callable[[], Board]) -> None:
        self._board = board

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        board = self._board()
        for field, (name, text) in _COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=_LABELS)
            for labels, counts in _rows(board):
                counter.add_metric(labels, getattr(counts, field))
            yield counter
        for field, (name, text) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=_LABELS)
            for labels, counts in _rows(board):
                gauge.add_metric(labels, getattr(counts, field))
            yield gauge
        yield _durations(board)
        running = sum(1 for process in board.processes if process.pid)
        yield GaugeMetricFamily("nsq_worker_processes", "Processes that run.", running)
        yield CounterMetricFamily(
            "nsq_worker_restarts", "Processes that were started because one ended.", board.restarts
        )


def _rows(board: Board) -> Iterator[tuple[tuple[str, str, str], HandlerCounts]]:
    """Yield the labels and counts of each handler."""
    for _, counts in sorted(board.counts.items()):
        yield (counts.handler, counts.topic, counts.channel), counts


def _durations(board: Board) -> HistogramMetricFamily:
    histogram = HistogramMetricFamily(
        "nsq_worker_duration_seconds", "Time of the calls of handlers.", labels=_LABELS
    )
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    for labels, counts in _rows(board):
        buckets = []
        count = 0
        for bound, more in zip(bounds, counts.durations, strict=True):
            count += more
            buckets.append((bound, count))
        histogram.add_metric(labels, buckets, counts.total_s)
    return histogram
