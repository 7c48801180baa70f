"""The Spark pipeline on an archive, without Spark's start but where that is what is measured.

Warm means that the same Spark has done the same before, into a sink.
"""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import procfs
from bench.admin import Admin
from bench.loads.tools import Child, running
from bench.run import Amount, Endpoint, LoadError, Run, Stopwatch
from bench.spark.archive import Archive, write_archive
from bench.spark.sink import Sink

_WARM_UPS = 4
_FIRST_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.005
_WEIGH_EVERY_S = 0.1


def to_sink(endpoint: Endpoint, amount: Amount) -> Run:
    """Messages that are read, a second. The sink is a thread of this process: its CPU stands for that of a server."""
    with _archive(amount) as archive, Sink() as sink, _warm(archive, sink) as worker:
        return worker.timed(endpoint, sink.port)


def to_nsqd(endpoint: Endpoint, amount: Amount) -> Run:
    with _archive(amount) as archive, Sink() as sink, _warm(archive, sink) as worker:
        run = worker.timed(endpoint, endpoint.tcp_port)
        count = Admin(endpoint.http_port).topic()["message_count"]
        if count != archive.messages:
            raise LoadError(f"nsqd has {count} messages, {archive.messages} were to be sent")
        return run


def cold_start(endpoint: Endpoint, amount: Amount) -> Run:
    """Seconds from the start of the command until its first message is there."""
    with _archive(amount) as archive, Sink() as sink:
        watch = Stopwatch(endpoint.pid)
        with _command(archive, sink) as child:
            while sink.first_s is None:
                child.check()
                if time.perf_counter() - watch.started_s > _FIRST_WITHIN_S:
                    raise LoadError(f"no message within {_FIRST_WITHIN_S:g} s")
                time.sleep(_LOOK_EVERY_S)
            watch.stop()
            return watch.run(sink.first_s - watch.started_s, archive.messages)


def memory(endpoint: Endpoint, amount: Amount) -> Run:
    """Memory of the command, with Spark's JVM and the Python processes of that, at its peak; in MB."""
    with _archive(amount) as archive, Sink() as sink:
        watch = Stopwatch(endpoint.pid)
        with _command(archive, sink) as child:
            most_bytes = 0
            while child.process.poll() is None:
                most_bytes = max(most_bytes, procfs.pss_bytes(child.process.pid))
                time.sleep(_WEIGH_EVERY_S)
            child.check()
        watch.stop()
        archive_gb = archive.path.stat().st_size / 1e9
        return watch.run(most_bytes / 1e6, archive.messages, archive_gb=archive_gb, sent=sink.messages)


@contextmanager
def _archive(amount: Amount) -> Iterator[Archive]:
    with tempfile.TemporaryDirectory(prefix="bench-archive-") as name:
        yield write_archive(Path(name) / "bench.nsqf", amount.messages)


@contextmanager
def _command(archive: Archive, sink: Sink) -> Iterator[Child]:
    """spark-replay."""
    words = [str(archive.path), f"--nsqd-tcp-address=127.0.0.1:{sink.port}", "--yes"]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    with running(words, archive.path.parent, **streams) as child:
        yield child


class _Worker:
    """One of `bench.clients` that does what it is told, line by line."""

    def __init__(self, child: Child, archive: Archive) -> None:
        self._child = child
        self._archive = archive
        self._heard()

    def work(self, port: int) -> None:
        """All of the archive, once."""
        stdin = self._child.process.stdin
        assert stdin is not None
        stdin.write(f"{self._archive.path} {port} {self._archive.messages}\n".encode())
        stdin.flush()
        done = int(self._heard())
        if done != self._archive.messages:
            raise LoadError(f"{done} messages were done, {self._archive.messages} were to be")

    def timed(self, endpoint: Endpoint, port: int) -> Run:
        watch = Stopwatch(endpoint.pid)
        cpu_s = procfs.cpu_s(self._child.process.pid)
        self.work(port)
        cpu_s = procfs.cpu_s(self._child.process.pid) - cpu_s
        watch.stop()
        watch.others_cpu_s = max(watch.others_cpu_s - cpu_s, 0)
        watch.server_cpu_s += watch.client_cpu_s
        watch.client_cpu_s = cpu_s
        return watch.rate(self._archive.messages)

    def _heard(self) -> bytes:
        stdout = self._child.process.stdout
        assert stdout is not None
        line: bytes = stdout.readline()
        if not line:
            self._child.process.wait()
            self._child.check()
            raise LoadError("the tool ended too soon")
        return line


@contextmanager
def _warm(archive: Archive, sink: Sink) -> Iterator[_Worker]:
    with running([], archive.path.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        worker = _Worker(child, archive)
        for _ in range(_WARM_UPS):
            worker.work(sink.port)
        yield worker
