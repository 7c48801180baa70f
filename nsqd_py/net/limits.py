"""Limits against abuse: how many connections there may be, and how long a client may keep a daemon waiting.

All connections of a daemon stand in one table, which is swept about once a second. So a time limit costs a connection
no timer, and a request no look at the clock: a connection notes that something happened, and the sweep when.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from nsqd_py.net.addresses import host_of
from nsqd_py.runtime.logs import Log
from nsqd_py.settings.groups import LimitOptions

# Why a connection is closed, and not let in: what `Connections` counts, and the log's words for it.
HANDSHAKE, HEAD, BODY, IDLE, WRITE = "handshake", "head", "body", "idle", "write"
ALL, ADDRESS, DESCRIPTORS = "all", "address", "descriptors"
WORDS = {
    HANDSHAKE: "said nothing in time",
    HEAD: "no request in time",
    BODY: "the body of a request came too slowly",
    IDLE: "no further request",
    WRITE: "failed to write - i/o timeout",
    ALL: "as many as --max-connections are there",
    ADDRESS: "as many as --max-connections-per-address are there from its address",
    DESCRIPTORS: "the last file descriptors are kept for files",
}

# Of the descriptors that the process may have, this part is for files only; but not more than so many.
_KEPT_PART = 16
# Of those of a daemon with many files: they have more while there are few connections.
_KEPT_PART_OF_MANY = 8
_LEAST_KEPT_OF_MANY = 64
_MOST_KEPT = 1024
_SWEEP_S = 1.0
_SHORTEST_SWEEP_S = 0.05
_LOG_INTERVAL_S = 10.0


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """How long a client may keep a daemon waiting, in s; 0 is for ever.

    handshake_s  for the magic of a TCP connection
    head_s       for the first byte of an HTTP connection, for the head of a request, for progress of its body
    idle_s       for the next request
    write_s      for it to take anything of what is sent to it
    """

    handshake_s: float = 0.0
    head_s: float = 0.0
    idle_s: float = 0.0
    write_s: float = 0.0

    @property
    def sweep_s(self) -> float:
        """How often to look: often enough for the shortest of them."""
        wanted = [limit_s / 4 for limit_s in (self.handshake_s, self.head_s, self.idle_s, self.write_s) if limit_s]
        return max(_SHORTEST_SWEEP_S, min([_SWEEP_S, *wanted]))


class Guest(Protocol):
    """A connection as the table knows it; `nsqd_py.net.transport.Stream` is one."""

    peer: str
    owner: Any

    def overdue(self, now_s: float, limits: TimeLimits) -> str:
        """For what it keeps the daemon waiting too long; empty where it does not."""

    def time_out(self, reason: str) -> None:
        """End it for that reason."""


class Connections:
    """All connections of a daemon. It closes those that keep it waiting, and says who may not come in.

    refused, timed_out  how many so far, by reason (`WORDS` has them)
    on_sweep            called after each look at them, about once a second
    """

    def __init__(self, most: int, most_per_host: int, times: TimeLimits, log: Log, loop: Any) -> None:
        self.on_sweep: Callable[[], None] | None = None
        self._close_files: Callable[[], int] | None = None
        self._most = most
        self._most_per_host = most_per_host
        self._highest_descriptor = self._files_yield_above = 0
        self._times = times
        self._log = log
        self._loop = loop
        self._timer = loop.timer(times.sweep_s, times.sweep_s)
        self._hosts: dict[Guest, str] = {}
        self._per_host: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.timed_out: Counter[str] = Counter()
        self._to_log: dict[str, tuple[int, str]] = {}
        self._logged_s = -_LOG_INTERVAL_S

    def __len__(self) -> int:
        return len(self._hosts)

    def share_with_files(self, close_files: Callable[[], int]) -> None:
        """Where there are few descriptors, `close_files` closes some files for each new connection; how many."""
        self._close_files = close_files

    # ---- who is here

    def refuses(self, peer: str, descriptor: int) -> str:
        """Why another connection is not let in; empty where it is. Counted and logged here.

        `descriptor` is that of its socket: the system gives the lowest that is free, so a high one says that there
        are few left, whoever has them.
        """
        reason = self._why_refused(peer, descriptor)
        if reason:
            self.refused[reason] += 1
            self._note(reason, peer)
        return reason

    def _why_refused(self, peer: str, descriptor: int) -> str:
        if self._most and len(self._hosts) >= self._most:
            return ALL
        if descriptor > self._files_yield_above:
            is_room_made = self._close_files is not None and self._close_files()
            if descriptor > self._highest_descriptor and not is_room_made:
                return DESCRIPTORS
        if self._most_per_host:
            host = host_of(peer)
            if host and self._per_host[host] >= self._most_per_host:
                return ADDRESS
        return ""

    def add(self, guest: Guest) -> None:
        """It is let in; it says `remove` when it closes."""
        host = host_of(guest.peer)
        guest.owner = self
        self._hosts[guest] = host
        self._per_host[host] += 1

    def remove(self, guest: Guest) -> None:
        host = self._hosts.pop(guest)
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]

    # ---- time

    def start(self) -> None:
        """Begin to sweep. The limit of descriptors is the one of this moment."""
        self._highest_descriptor = self._files_yield_above = highest_descriptor()
        if self._close_files is not None:
            self._highest_descriptor = highest_descriptor(_KEPT_PART_OF_MANY, _LEAST_KEPT_OF_MANY)
            # Some time before: files may have to be synced before they are closed.
            self._files_yield_above = self._highest_descriptor * 3 // 4
        self._timer.start(self._on_timer)

    def close(self) -> None:
        self._timer.close()

    def _on_timer(self) -> None:
        self.sweep(self._loop.now())

    def sweep(self, now_s: float) -> None:
        """Close whoever is overdue."""
        times = self._times
        late = [(guest, reason) for guest in self._hosts if (reason := guest.overdue(now_s, times))]
        for guest, reason in late:
            if guest in self._hosts:  # else the end of another was its end too
                self.timed_out[reason] += 1
                self._note(reason, guest.peer)
                guest.time_out(reason)
        self._log_noted(now_s)
        self._log.of_clients.tell()
        if self.on_sweep is not None:
            self.on_sweep()

    # ---- the log: under attack it gets a line in a while, not one for each connection

    def _note(self, reason: str, peer: str) -> None:
        count, _ = self._to_log.get(reason, (0, ""))
        self._to_log[reason] = count + 1, peer

    def _log_noted(self, now_s: float) -> None:
        if not self._to_log or now_s - self._logged_s < _LOG_INTERVAL_S:
            return
        self._logged_s = now_s
        for reason, (count, peer) in self._to_log.items():
            if reason in self.refused:
                self._log.warning("refused %d connections, the last of client(%s) - %s", count, peer, WORDS[reason])
            else:
                self._log.info("closed %d connections, the last of client(%s) - %s", count, peer, WORDS[reason])
        self._to_log.clear()


def connections(options: LimitOptions, log: Log, loop: Any) -> Connections:
    """Return the table of a daemon's connections."""
    times = TimeLimits(
        handshake_s=options.handshake_timeout_ns / 1e9,
        head_s=options.http_head_timeout_ns / 1e9,
        idle_s=options.http_idle_timeout_ns / 1e9,
        write_s=options.write_timeout_ns / 1e9,
    )
    return Connections(options.max_connections, options.max_connections_per_address, times, log, loop)


def highest_descriptor(kept_part: int = _KEPT_PART, least_kept: int = 0) -> int:
    """The highest number that a socket may have, where one part in `kept_part`, or `least_kept`, is for files."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return 1 << 31
    return limit - 1 - min(_MOST_KEPT, max(limit // kept_part, min(least_kept, limit // 4)))
