"""Limits against abuse: the number of connections, and the time that a client may keep a daemon waiting.

All connections of a daemon are in one table, and a sweep goes through it about once a second. So a time limit needs no
timer for each connection and no clock call for each request: connections note that something happened, and the sweep
notes the time.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Callable, Container
from typing import Any, NamedTuple, Protocol

import gevent

from nsqd_py.net.addresses import host_of
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.pacing import WorkSlices
from nsqd_py.settings.program import LimitOptions

# Reasons to close a connection, and reasons to refuse one. `Connections` counts them; REASON_TEXTS has the log's words.
HANDSHAKE = "handshake"
HEAD = "head"
BODY = "body"
IDLE = "idle"
WRITE = "write"
ALL = "all"
ADDRESS = "address"
DESCRIPTORS = "descriptors"
REASON_TEXTS = {
    HANDSHAKE: "said nothing in time",
    HEAD: "no request in time",
    BODY: "the body of a request came too slowly",
    IDLE: "no further request",
    WRITE: "failed to write - i/o timeout",
    ALL: "as many as --max-connections are there",
    ADDRESS: "as many as --max-connections-per-address are there from its address",
    DESCRIPTORS: "the last file descriptors are kept for files",
}

# One descriptor in this many is reserved for files, within bounds. While there are few connections, files have more.
_RESERVED_PART = 8
_LEAST_RESERVED = 64
_MOST_RESERVED = 1024
# The time limits of nsqd and nsqlookupd, see `TimeLimits`. Clients and load balancers must close idle connections earlier, or
# they send requests on connections that are being closed.
HANDSHAKE_S = 10.0
HEAD_S = 30.0
IDLE_S = 11 * 60.0
WRITE_S = 60.0

_SWEEP_S = 1.0
_SHORTEST_SWEEP_S = 0.05


class TimeLimits(NamedTuple):
    """The times for which a daemon waits for a client, in s; 0 means no limit.

    handshake_s  for the magic of a TCP connection
    head_s       for the first byte of an HTTP connection, for the head of a request, for progress of its body
    idle_s       for the next request
    write_s      for the client to accept any of the bytes that are sent to it
    """

    handshake_s: float = 0.0
    head_s: float = 0.0
    idle_s: float = 0.0
    write_s: float = 0.0

    @property
    def sweep_s(self) -> float:
        """The time between two sweeps: at most a quarter of the shortest limit."""
        quarters = [
            limit_s / 4 for limit_s in (self.handshake_s, self.head_s, self.idle_s, self.write_s) if limit_s
        ]
        return max(_SHORTEST_SWEEP_S, min([_SWEEP_S, *quarters]))


class LimitedConnection(Protocol):
    """A connection in the table; `nsqd_py.net.transport.Stream` is one."""

    peer: str
    owner: Any

    def overdue(self, now_s: float, limits: TimeLimits) -> str:
        """Return the reason to close a connection that keeps the daemon waiting too long; else ""."""

    def time_out(self, reason: str) -> None:
        """Close the connection for that reason, and count it."""

    def close(self, reason: str) -> None:
        """Close the connection immediately."""

    def abort(self, reason: str) -> None:
        """Close it, and drop what the peer has not taken yet."""


class Connections:
    """All connections of a daemon. It closes those that keep the daemon waiting, and refuses those above a limit.

    refused, timed_out  numbers of connections since the start, by reason (see `REASON_TEXTS`)
    on_sweep            called after each sweep, about once a second
    """

    def __init__(self, most: int, most_per_host: int, times: TimeLimits, log: Log, loop: Any) -> None:
        self.on_sweep: Callable[[WorkSlices], None] | None = None
        self._close_files: Callable[[], int] | None = None
        self._most = most
        self._most_per_host = most_per_host
        self._highest_descriptor = 0
        self._files_yield_above = 0
        self._times = times
        self._log = log
        self._loop = loop
        self._timer = loop.timer(times.sweep_s, times.sweep_s)
        self._sweeper: gevent.Greenlet[..., None] = gevent.Greenlet()
        self._hosts: dict[LimitedConnection, str] = {}
        self._per_host: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.timed_out: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._hosts)

    def share_with_files(self, close_files: Callable[[], int]) -> None:
        """Call `close_files` for a new connection while few descriptors are left; it returns the number it closed."""
        self._close_files = close_files

    # ---- adding and removing

    def refuses(self, peer: str, descriptor: int) -> str:
        """Return the reason to refuse another connection; "" to accept it. A refusal is counted and logged here.

        `descriptor` is the number of its socket. The system assigns the lowest free number, so a high one shows that
        few are left.
        """
        reason = self._why_refused(peer, descriptor)
        if reason:
            self.refused[reason] += 1
            self._log.of_clients.warning("refused client(%s) - " + REASON_TEXTS[reason], peer)
        return reason

    def _why_refused(self, peer: str, descriptor: int) -> str:
        if self._most and len(self._hosts) >= self._most:
            return ALL
        if descriptor > self._files_yield_above:
            closed_files = self._close_files is not None and self._close_files()
            if descriptor > self._highest_descriptor and not closed_files:
                return DESCRIPTORS
        if self._most_per_host:
            host = host_of(peer)
            if host and self._per_host[host] >= self._most_per_host:
                return ADDRESS
        return ""

    def add(self, connection: LimitedConnection) -> None:
        """Add an accepted connection. It calls `remove` when it closes."""
        host = host_of(connection.peer)
        connection.owner = self
        self._hosts[connection] = host
        self._per_host[host] += 1

    def remove(self, connection: LimitedConnection) -> None:
        host = self._hosts.pop(connection)
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]

    # ---- time

    def start(self) -> None:
        """Begin to sweep. The limit on descriptors is read now."""
        self._highest_descriptor = self._files_yield_above = _highest_descriptor()
        if self._close_files is not None:
            # Close files early: they may have to be synced first.
            self._files_yield_above = self._highest_descriptor * 3 // 4
        self._timer.start(self._begin_sweep)

    def close_all(self, reason: str, *, aborts: bool = False) -> None:
        """Close all connections, also those that have not said anything yet.

        With `aborts`, drop what their peers have not taken yet: none of it arrives later.
        """
        for connection in list(self._hosts):
            (connection.abort if aborts else connection.close)(reason)

    def close_others(self, reason: str, retained: Container[object]) -> None:
        """Close all connections except those in `retained`."""
        for connection in list(self._hosts):
            if connection not in retained:
                connection.close(reason)

    def close(self) -> None:
        self._timer.close()
        self._sweeper.kill()

    def _begin_sweep(self) -> None:
        if not self._sweeper:
            self._sweeper = gevent.spawn(self.sweep, self._loop.now())

    def sweep(self, now_s: float) -> None:
        """Close the connections that are overdue. Blocks this greenlet in its pauses: 10,000 connections take 30 ms."""
        slices = WorkSlices()
        for connection in list(self._hosts):
            # Closing one connection may close another.
            if connection in self._hosts and (reason := connection.overdue(now_s, self._times)):
                self.timed_out[reason] += 1
                self._log.of_clients.info("closed client(%s) - " + REASON_TEXTS[reason], connection.peer)
                connection.time_out(reason)
            slices.sleep_if_due()
        if self.on_sweep is not None:
            self.on_sweep(slices)


def connections(options: LimitOptions, log: Log, loop: Any) -> Connections:
    """Return the table of a daemon's connections."""
    most = options.max_connections
    most_per_host = options.max_connections_per_address
    return Connections(most, most_per_host, TimeLimits(HANDSHAKE_S, HEAD_S, IDLE_S, WRITE_S), log, loop)


def _highest_descriptor() -> int:
    """Return the highest descriptor for a socket."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return 1 << 31
    return limit - 1 - min(_MOST_RESERVED, max(limit // _RESERVED_PART, min(_LEAST_RESERVED, limit // 4)))
