"""Addresses of nsqlookupds as configured, and the endpoints that they resolve to. Pure but for interface names."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nsqd_py.net.addresses import join_address, parse_host_port


class Endpoint(NamedTuple):
    """An IP address and port, in the form that sockets take."""

    family: int
    target: tuple[str, int] | tuple[str, int, int, int]

    @property
    def ip(self) -> str:
        return self.target[0]

    def __str__(self) -> str:
        return join_address(self.target[0], self.target[1])


class Address(NamedTuple):
    """A configured address: its text, host and port. An empty host means this machine."""

    text: str
    host: str
    port: int

    @property
    def endpoint(self) -> Endpoint | None:
        """The endpoint if the host is an IP address, None if it is a name."""
        return literal_endpoint(self.host, self.port)


def parse_address(text: str) -> Address:
    """Parse `host:port`, `:port` or `[v6]:port`. Raises ValueError."""
    host, port = parse_host_port(text)
    return Address(text, host or "localhost", port)


def literal_endpoint(host: str, port: int) -> Endpoint | None:
    """Return the endpoint of an IP address, None for a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.version == 4:
        return Endpoint(socket.AF_INET, (host, port))
    bare, _, scope = host.partition("%")
    return Endpoint(socket.AF_INET6, (bare, port, 0, _scope_id(scope)))


def _scope_id(scope: str) -> int:
    if not scope or scope.isdecimal():
        return int(scope or 0)
    try:
        return socket.if_nametoindex(scope)
    except OSError:
        return 0


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
        """Take the endpoints that the name has now. An endpoint that is gone is kept until its connection ends."""
        self._leaving = tuple(endpoint for endpoint in self.in_use if endpoint not in endpoints and is_connected(endpoint))
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
