"""nsqadmin over 120 nsqds with 300 topics of 3 channels each, of which a tenth moves all the time.

The nsqds are made up (`tests/support/fake_cluster.py`); the nsqd of the bench does nothing.
"""

import http.client
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench import procfs
from bench.loads.tools import Child, running
from bench.percentiles import percentile
from bench.run import Amount, Endpoint, LoadError, Run, Stopwatch
from bench.server import free_ports
from tests.support import fake_cluster

_NODES, _TOPICS, _CHANNELS, _MOVING = 120, 300, 3, 0.1
_LIST = f"/api/v2/topics?limit={_TOPICS}&sort=depth"
_TOPIC, _COUNTER = "/api/topics/orders.region-007", "/api/counter"
_PAUSE_S = 0.05
_ASKED_FOR_MEMORY = 5
_ALL_KNOWN_WITHIN_S = 60.0
# What was new at the start, and is so once only, is over after so many rounds.
_ROUNDS_BEFORE = 3


def list_page(endpoint: Endpoint, amount: Amount) -> Run:
    """Return the 99th percentile of the whole list of topics in ms, with gzip; asked while polls go on."""
    with _cluster() as page:
        tick = page.tick()
        watch, took_ms = _ask(page, _LIST, amount.seconds)
        rounds = page.tick() - tick
        if not rounds:
            raise LoadError("no round ended meanwhile")
        gzip_kb = len(page.get(_LIST)) / 1000
        return _run(page, watch, took_ms, gzip_kb=gzip_kb, cpu_s_per_round=watch.server_cpu_s / rounds)


def topic(endpoint: Endpoint, amount: Amount) -> Run:
    """Return the 99th percentile of the counts of one topic in ms."""
    with _cluster() as page:
        return _run(page, *_ask(page, _TOPIC, amount.seconds))


def counter(endpoint: Endpoint, amount: Amount) -> Run:
    """Return the 99th percentile of the sum of all messages in ms."""
    with _cluster() as page:
        return _run(page, *_ask(page, _COUNTER, amount.seconds))


def memory(endpoint: Endpoint, amount: Amount) -> Run:
    """Return resident memory in MB after some requests."""
    with _cluster() as page:
        watch = Stopwatch(page.child.process.pid)
        for _ in range(_ASKED_FOR_MEMORY):
            page.get(_TOPIC)
            page.get(_COUNTER)
        watch.stop()
        return watch.run(procfs.rss_bytes(page.child.process.pid) / 1e6, _ASKED_FOR_MEMORY)


def _ask(page: "_Page", path: str, seconds: float) -> tuple[Stopwatch, list[float]]:
    """Return how long each answer took in ms, sorted."""
    watch, took_ms = Stopwatch(page.child.process.pid), list[float]()
    while time.perf_counter() - watch.started_s < seconds:
        began_s = time.perf_counter()
        page.get(path)
        took_ms.append((time.perf_counter() - began_s) * 1000)
        time.sleep(_PAUSE_S)
    watch.stop()
    return watch, sorted(took_ms)


def _run(page: "_Page", watch: Stopwatch, took_ms: list[float], **details: float) -> Run:
    return watch.run(
        percentile(took_ms, 0.99), len(took_ms), p50_ms=percentile(took_ms, 0.5), max_ms=took_ms[-1],
        rss_mb=procfs.rss_bytes(page.child.process.pid) / 1e6, **details,
    )  # fmt: skip


class _Page:
    def __init__(self, child: Child, port: int) -> None:
        self.child = child
        self._port = port

    def get(self, path: str) -> bytes:
        """Return the answer, of lists with gzip. Raises OSError if there is none, and LoadError if it is not 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("GET", path, headers={"Accept-Encoding": "gzip"} if path == _LIST else {})
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise LoadError(f"GET {path}: {response.status} {body[:200]!r}")
        return body

    def tick(self) -> int:
        return int(self.overview()["tick"])

    def overview(self) -> dict[str, Any]:
        return dict(json.loads(self.get("/api/v2/overview")))

    def wait_until_ready(self) -> None:
        """Wait until it answers; ours also until it knows the cluster: Go's asks for each request."""
        deadline_s, whole_tick = time.monotonic() + _ALL_KNOWN_WITHIN_S, 0
        is_ours = "-m" in self.child.process.args  # type: ignore[operator]
        while time.monotonic() < deadline_s:
            self.child.check()
            with suppress(OSError):
                if not is_ours:
                    self.get("/ping")
                    return
                seen = self.overview()
                if seen["channels"] == _TOPICS * _CHANNELS:
                    whole_tick = whole_tick or seen["tick"]
                    if seen["tick"] >= whole_tick + _ROUNDS_BEFORE:
                        return
            time.sleep(0.2)
        raise LoadError(f"the cluster is not known within {_ALL_KNOWN_WITHIN_S:g} s")


@contextmanager
def _cluster() -> Iterator[_Page]:
    """Start the nsqds, and an nsqadmin that is ready."""
    with (
        fake_cluster.running(_NODES, _TOPICS, _CHANNELS, _MOVING) as lookupd,
        tempfile.TemporaryDirectory(prefix="bench-nsqadmin-") as name,
    ):
        (port,) = free_ports(1)  # not before the others have theirs
        flags = [f"--http-address=127.0.0.1:{port}", f"--lookupd-http-address={lookupd}", "--log-level=warn"]
        # Ours keeps its history in the current directory.
        with running(flags, Path(name), cwd=name) as child:
            page = _Page(child, port)
            page.wait_until_ready()
            yield page
