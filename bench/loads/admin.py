"""nsqadmin over 120 nsqds with 300 topics of 3 channels each, of which a tenth moves all the time.

The nsqds are made up (`tests/support/fake_cluster.py`); the nsqd of the bench does nothing.
"""

import http.client
import json
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import procfs
from bench.loads.tools import Child, running
from bench.run import Amount, Endpoint, LoadError, Run, Stopwatch
from tests.support import fake_cluster

_NODES, _TOPICS, _CHANNELS, _MOVING = 120, 300, 3, 0.1
_LIST = f"/api/v2/topics?limit={_TOPICS}&sort=depth"
_PAUSE_S = 0.05
_ALL_KNOWN_WITHIN_S = 60.0
# What was new at the start, and is so once only, is over after so many rounds.
_ROUNDS_BEFORE = 3


def list_page(endpoint: Endpoint, amount: Amount) -> Run:
    """The 99th percentile of the whole list of topics in ms, with gzip; asked all the time, while rounds go on."""
    with fake_cluster.running(_NODES, _TOPICS, _CHANNELS, _MOVING) as lookupd, _nsqadmin(lookupd) as (child, page):
        _wait_until_known(child, page)
        watch = Stopwatch(child.process.pid)
        tick, took_ms, size = page.tick(), list[float](), 0
        while time.perf_counter() - watch.started_s < amount.seconds:
            began_s = time.perf_counter()
            size = len(page.get(_LIST))
            took_ms.append((time.perf_counter() - began_s) * 1000)
            time.sleep(_PAUSE_S)
        watch.stop()
        rounds = page.tick() - tick
        if not rounds:
            raise LoadError("no round ended meanwhile")
        took_ms.sort()
        return watch.run(
            took_ms[len(took_ms) * 99 // 100], len(took_ms), p50_ms=took_ms[len(took_ms) // 2], max_ms=took_ms[-1],
            gzip_kb=size / 1000, cpu_s_per_round=watch.server_cpu_s / rounds,
            rss_mb=procfs.rss_bytes(child.process.pid) / 1e6,
        )  # fmt: skip


class _Page:
    def __init__(self, port: int) -> None:
        self._port = port

    def get(self, path: str) -> bytes:
        """With gzip where that is. Raises OSError."""
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

    def overview(self) -> dict[str, Any]:
        return dict(json.loads(self.get("/api/v2/overview")))

    def tick(self) -> int:
        return int(self.overview()["tick"])


@contextmanager
def _nsqadmin(lookupd: str) -> Iterator[tuple[Child, _Page]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flags = [f"--http-address=127.0.0.1:{port}", f"--lookupd-http-address={lookupd}"]
    with (
        tempfile.TemporaryDirectory(prefix="bench-nsqadmin-") as name,
        running([*flags, "--history-file=", "--log-level=warn"], Path(name)) as child,
    ):
        yield child, _Page(port)


def _wait_until_known(child: Child, page: _Page) -> None:
    deadline_s, whole_tick = time.monotonic() + _ALL_KNOWN_WITHIN_S, 0
    while time.monotonic() < deadline_s:
        child.check()
        try:
            seen = page.overview()
        except OSError:
            seen = {"channels": 0, "tick": 0}
        if seen["channels"] == _TOPICS * _CHANNELS:
            whole_tick = whole_tick or seen["tick"]
            if seen["tick"] >= whole_tick + _ROUNDS_BEFORE:
                return
        time.sleep(0.2)
    raise LoadError(f"the cluster is not known within {_ALL_KNOWN_WITHIN_S:g} s")
