"""Blocks of addresses: the proxies that may name the user, and hosts that may see a token. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

UNIX = "unix"


class AddressBlocks:
    """Blocks of addresses in CIDR notation; false if empty. `unix` stands for all clients of unix sockets."""

    def __init__(self, blocks: Iterable[str]) -> None:
        """Raises ValueError."""
        named = set(blocks)
        self._has_unix = UNIX in named
        self._networks = [ipaddress.ip_network(block, strict=False) for block in named - {UNIX}]

    def __bool__(self) -> bool:
        return self._has_unix or bool(self._networks)

    @property
    def has_all(self) -> bool:
        """True if a block holds all addresses: it limits nothing."""
        return any(not network.prefixlen for network in self._networks)

    def __contains__(self, host: str) -> bool:
        """True if a block holds `host`, an address as a socket gives it; it is empty for a unix socket."""
        if not host:
            return self._has_unix
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        return any(address in network for network in self._networks)
