"""Configured addresses of nsqlookupds, and the endpoints that their names resolve to, resolved repeatedly."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass
from random import random
from typing import Any, NamedTuple

import gevent
from gevent import socket as green_socket
from gevent.event import Event

from nsqd_py.net.addresses import check_host, join_address, parse_host_port
from nsqd_py.net.socket_buffers import literal_target
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.logs.outages import Backoff, OutageLog

RESOLVE_EVERY_S = 30.0
# After a failure, the name is resolved again at most this often.
RESOLVE_AT_MOST_EVERY_S = 5.0
_FIRST_RETRY_S = 0.5


# ---- addresses and endpoints


class Endpoint(NamedTuple):
    """An IP address and port, in the form that sockets take."""

    family: int
    target: tuple[str, int] | tuple[str, int, int, int]

    @property
    def ip(self) -> str:
        return self.target[0]

    def __str__(self) -> str:
        return join_address(self.target[0], self.target[1])


class LookupAddress(NamedTuple):
    """A configured address: its text, host and port. An empty host means this machine."""

    text: str
    host: str
    port: int

    @property
    def endpoint(self) -> Endpoint | None:
        """The endpoint if the host is an IP address, None if it is a name."""
        return literal_endpoint(self.host, self.port)


def parse_address(text: str) -> LookupAddress:
    """Parse `host:port`, `:port` or `[v6]:port`. Raises ValueError."""
    host, port = parse_host_port(text)
    return LookupAddress(text, host or "localhost", port)


def literal_endpoint(host: str, port: int) -> Endpoint | None:
    """Return the endpoint of an IP address, None for a name."""
    target: Any = literal_target(host, port)
    if target is None:
        return None
    return Endpoint(*target)


class EndpointSelection:
    """The endpoints of one name that are used: those of one address family.

    IPv4 and IPv6 addresses of a name may belong to the same nsqlookupd, which would list this nsqd twice. The family
    of the resolver's first answer is used until none of its endpoints can be connected.
    """

    def __init__(self) -> None:
        self._resolved: tuple[Endpoint, ...] = ()
        self._leaving: tuple[Endpoint, ...] = ()
        self._family: int | None = None

    @property
    def all(self) -> tuple[Endpoint, ...]:
        """All endpoints that are or may be used."""
        return self._resolved + self._leaving

    @property
    def in_use(self) -> tuple[Endpoint, ...]:
        chosen = tuple(endpoint for endpoint in self._resolved if endpoint.family == self._family)
        return chosen + self._leaving

    def resolved(self, endpoints: Sequence[Endpoint], is_connected: Callable[[Endpoint], bool]) -> None:
        """Take the endpoints that the name has now. An endpoint that is gone is retained until its connection ends."""
        self._leaving = tuple(
            endpoint for endpoint in self.in_use if endpoint not in endpoints and is_connected(endpoint)
        )
        self._resolved = tuple(dict.fromkeys(endpoints))
        families = [endpoint.family for endpoint in self._resolved]
        if families and self._family not in families:
            self._family = families[0]

    def ended(self, endpoint: Endpoint) -> None:
        """Forget an endpoint that is gone, because its connection has ended."""
        self._leaving = tuple(other for other in self._leaving if other != endpoint)

    def change_family(self) -> bool:
        """Use the other address family. Return False if there is none."""
        others = [endpoint.family for endpoint in self._resolved if endpoint.family != self._family]
        if others:
            self._family = others[0]
        return bool(others)


# ---- names


def resolve(
    host: str, port: int, look_up: Callable[..., list[Any]] = green_socket.getaddrinfo
) -> list[Endpoint]:
    """Return the endpoints of a host, the preferred one first. Waits for the system's resolver. Raises OSError."""
    literal = literal_endpoint(host, port)
    if literal is not None:
        return [literal]
    check_host(host)
    found = look_up(host, port, type=socket.SOCK_STREAM)
    endpoints = [Endpoint(int(family), target) for family, _, _, _, target in found]
    return list(dict.fromkeys(endpoints))


@dataclass(eq=False, repr=False)
class LookupHost:
    """Keeps `selection` current, and calls `_on_resolved` after each attempt to resolve the name.

    `was_resolved` is True after the first attempt, also if it failed.
    """

    address: LookupAddress
    _resolve: Callable[[str, int], list[Endpoint]]
    log: InitVar[Log]
    _clock: Callable[[], float]
    _is_connected: Callable[[Endpoint], bool]
    _on_resolved: Callable[[], None]
    was_resolved: bool = False

    def __post_init__(self, log: Log) -> None:
        self.selection = EndpointSelection()
        self._outage = OutageLog(log.of_clients, self._clock)  # addresses may come from PUT /config
        self._backoff = Backoff(_FIRST_RETRY_S, RESOLVE_AT_MOST_EVERY_S, random)
        self._is_requested = Event()
        self._greenlet: gevent.Greenlet[..., None] | None = None

    def start(self) -> None:
        endpoint = self.address.endpoint
        if endpoint is None:
            self._greenlet = gevent.spawn(self._run)
        else:
            self._take([endpoint])

    def stop(self) -> None:
        if self._greenlet is not None:
            self._greenlet.kill(block=False)

    def resolve_soon(self) -> None:
        """Resolve the name soon: an endpoint of it failed, so the name may have moved."""
        self._is_requested.set()

    def _run(self) -> None:
        while True:
            try:
                is_resolved = self.resolve()
            except Exception as error:  # noqa: BLE001 - after a bug, a name that moves must be found again
                self._backoff.failed(self._clock())
                self._outage.report("LOOKUP(%s): %r", self.address.text, error)
                is_resolved = False
            if is_resolved:
                gevent.sleep(RESOLVE_AT_MOST_EVERY_S)
                self._is_requested.wait(RESOLVE_EVERY_S - RESOLVE_AT_MOST_EVERY_S)
            else:
                gevent.sleep(self._backoff.wait_s(self._clock()))
            self._is_requested.clear()

    def resolve(self) -> bool:
        """Resolve the name. Keep the known endpoints if that fails. Return True if it succeeded."""
        address = self.address
        try:
            endpoints = self._resolve(address.host, address.port)
        except (OSError, ValueError) as error:  # ValueError: not a name that can be resolved
            self._backoff.failed(self._clock())
            reason = getattr(error, "strerror", None) or error
            self._outage.report("LOOKUP(%s): failed to resolve - %s", address.text, reason)
            self._take(None)
            return False
        self._backoff.reset()
        self._outage.end("LOOKUP(%s): resolved again", address.text)
        self._take(endpoints)
        return True

    def _take(self, endpoints: list[Endpoint] | None) -> None:
        if endpoints is not None:
            self.selection.resolved(endpoints, self._is_connected)
        self.was_resolved = True
        self._on_resolved()
