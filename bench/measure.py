"""One run of a row: start the server, make the load, and return the value with what it cost."""

import json
import os
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from bench import procfs
from bench.client import LoadError, fill
from bench.rows import Row
from bench.server import Nsqd

# Value, elapsed_s, messages, and CPU seconds of the server, the load and all other processes.
Run = dict[str, float]
OWN_LOAD = (sys.executable, "-m", "bench.load")
_SPARK = (sys.executable, "-m", "bench.spark")
_LONGEST_S = 900.0
_SETTLE_S = 1.0
_STARTS_WITHIN_S = 120.0
_SIZE_BYTES = 1000


class Stopwatch:
    """Wall-clock time, and processor time of the server, of the load's processes that ended, and of all others."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._loop_s = self._loop_now_s()
        self._server_s, self._load_s, self._busy_s = self._now()
        self._started_s = time.perf_counter()

    def stop(self, value: float, rate: float = 0, **details: float) -> Run:
        """Return a run; `rate` is the number of messages a second."""
        elapsed_s = time.perf_counter() - self._started_s
        server_s, load_s, busy_s = self._now()
        server_s -= self._server_s
        load_s -= self._load_s
        others_s = max(busy_s - self._busy_s - server_s - load_s, 0.0)
        if rate:
            details["server_cpu_us"] = server_s / (rate * elapsed_s) * 1e6
            details["loop_cpu_us"] = (self._loop_now_s() - self._loop_s) / (rate * elapsed_s) * 1e6
        return {
            "value": value,
            "elapsed_s": elapsed_s,
            "server_cpu_s": server_s,
            "client_cpu_s": load_s,
            "others_cpu_s": others_s,
            **details,
        }

    def _loop_now_s(self) -> float:
        return sum(procfs.loop_cpu_s(pid) for pid in self._pids)

    def _now(self) -> tuple[float, float, float]:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        load_s = sum(one.ru_utime + one.ru_stime for one in used)
        return sum(procfs.cpu_s(pid) for pid in self._pids), load_s, procfs.busy_s()


def generate(nsqd: Nsqd, command: Sequence[str], *, consumes: bool = False) -> Run:
    """Run a load as another process; the time counts from the line `measuring`, if it prints one."""
    watch = Stopwatch(nsqd.pids)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        text = ""
        for line in process.stdout:
            if line == "measuring\n":
                watch = Stopwatch(nsqd.pids)
            else:
                text = line
                break
        errors = "" if text else process.stderr.read()
        if text:
            found = json.loads(text)
            # Before the wait: the load has ended its measurement, and the server is idle.
            value = found["consumed_s" if consumes else "published_s"]
            details = {name: found[name] for name in found if name.endswith("_us")}
            run = watch.stop(value, value, published_s=found["published_s"], **details)
        process.communicate(timeout=_LONGEST_S)
    if not text or found["errors"] or not value:
        raise LoadError(errors.strip().rpartition("\n")[2] or f"the load failed: {text}")
    return run


def publish(nsqd: Nsqd, row: Row, command: Sequence[str], seconds: float) -> Run:
    """Messages published a second."""
    return generate(nsqd, _load(nsqd, row, command, seconds))


def consume(nsqd: Nsqd, row: Row, command: Sequence[str], seconds: float) -> Run:
    """Messages finished a second while publishers are at work."""
    return generate(nsqd, _load(nsqd, row, command, seconds), consumes=True)


def spark(nsqd: Nsqd, row: Row, command: Sequence[str], seconds: float) -> Run:
    """Rows a second."""
    return generate(nsqd, [*_SPARK, row.arguments, f"127.0.0.1:{nsqd.tcp_port}"])


def memory(nsqd: Nsqd, row: Row, command: Sequence[str], seconds: float) -> Run:
    """Resident MB with so many messages."""
    watch = Stopwatch(nsqd.pids)
    fill(nsqd.tcp_port, "load00000", int(row.arguments), 200)
    time.sleep(_SETTLE_S)
    return watch.stop(sum(procfs.rss_bytes(pid) for pid in nsqd.pids) / 1e6)


def start(nsqd: Nsqd, row: Row, command: Sequence[str], seconds: float) -> Run:
    """Seconds from a start to the first OK, after SIGKILL with so many messages of 1,000 bytes in the log."""
    fill(nsqd.tcp_port, "load00000", int(row.arguments), _SIZE_BYTES)
    nsqd.kill()
    os.sync()
    nsqd.start()
    watch = Stopwatch(nsqd.pids)
    deadline_s = time.perf_counter() + _STARTS_WITHIN_S
    while time.perf_counter() < deadline_s:
        with suppress(OSError):
            fill(nsqd.tcp_port, "first", 100, 1)
            run = watch.stop(0)
            return run | {"value": run["elapsed_s"]}
        time.sleep(0.002)
    raise LoadError(f"nsqd did not start within {_STARTS_WITHIN_S:g} s")


def _load(nsqd: Nsqd, row: Row, command: Sequence[str], seconds: float) -> list[str]:
    return [
        *command,
        "-addr",
        f"127.0.0.1:{nsqd.tcp_port}",
        "-seconds",
        f"{seconds:g}",
        *shlex.split(row.arguments),
    ]


LOADS: dict[str, Callable[[Nsqd, Row, Sequence[str], float], Run]] = {
    "publish": publish,
    "consume": consume,
    "memory": memory,
    "start": start,
    "spark": spark,
}
