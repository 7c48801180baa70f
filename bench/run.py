"""What a load is given, and what it gives back."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench import procfs

TOOL_COMMAND = "BENCH_TOOL"  # an environment variable


class LoadError(Exception):
    """The load ran, and the server did not do what it should have done."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A running server on 127.0.0.1. `started_s` is the time of `time.perf_counter`, which all processes share.

    `restart` kills it, starts another one on the same ports, and does not wait for it to listen.
    """

    tcp_port: int
    http_port: int
    pid: int
    started_s: float
    restart: Callable[[], "Endpoint"]


@dataclass(frozen=True, slots=True)
class Amount:
    """How long a load runs: whichever comes first, for loads that look at both."""

    seconds: float
    messages: int


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement. `value` is in the unit of its scenario; the rest shows what it cost.

    `others_cpu_s` is what the rest of the machine did meanwhile: far from zero, it spoils the figure.
    """

    value: float
    messages: int
    elapsed_s: float
    client_cpu_s: float
    server_cpu_s: float
    others_cpu_s: float
    details: dict[str, float] = field(default_factory=dict)


Load = Callable[[Endpoint, Amount], Run]


class Stopwatch:
    """Wall clock and CPU of both processes, from construction to `stop`."""

    def __init__(self, server_pid: int) -> None:
        self._server_pid = server_pid
        self._server_cpu_s = procfs.cpu_s(server_pid)
        self._client_cpu_s = time.process_time()
        self._busy_s = procfs.busy_s()
        self.started_s = time.perf_counter()
        self.elapsed_s = self.client_cpu_s = self.server_cpu_s = self.others_cpu_s = 0.0

    def turn_to(self, server: Endpoint) -> None:
        """The server was restarted: time runs from then on, and its CPU is that of the new process."""
        self._server_pid, self._server_cpu_s = server.pid, 0.0
        self._client_cpu_s, self._busy_s = time.process_time(), procfs.busy_s()
        self.started_s = server.started_s

    def stop(self) -> None:
        self.elapsed_s = time.perf_counter() - self.started_s
        self.client_cpu_s = time.process_time() - self._client_cpu_s
        self.server_cpu_s = procfs.cpu_s(self._server_pid) - self._server_cpu_s
        self.others_cpu_s = max(procfs.busy_s() - self._busy_s - self.client_cpu_s - self.server_cpu_s, 0.0)

    def run(self, value: float, messages: int, **details: float) -> Run:
        return Run(
            value=value,
            messages=messages,
            elapsed_s=self.elapsed_s,
            client_cpu_s=self.client_cpu_s,
            server_cpu_s=self.server_cpu_s,
            others_cpu_s=self.others_cpu_s,
            details=details,
        )

    def rate(self, messages: int, **details: float) -> Run:
        """A run whose value is messages per second."""
        return self.run(messages / self.elapsed_s, messages, **details)
