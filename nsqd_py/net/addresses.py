"""Addresses as text: `host:port`, `:port` and `[v6]:port`. Anything else is the path of a unix socket. Pure."""

from __future__ import annotations

from typing import Any


def split_address(address: str) -> tuple[str, int] | None:
    """Return the host and the port; None for the path of a unix socket."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or "/" in address:
        return None
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    return None if ":" in host else (host, int(port))


def join_address(host: str, port: int) -> str:
    """Return `host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_and_port(address: str) -> tuple[str, str]:
    """Return the host without brackets, and the port as text; ("", address) if there is no colon."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), port


def socket_address(name: Any) -> str:
    """Return the text of a socket's name: `host:port`, an IPv4 address on an IPv6 socket as IPv4; else its path."""
    if not isinstance(name, tuple):
        return str(name)
    return join_address(name[0].removeprefix("::ffff:").partition("%")[0], name[1])


def is_loopback(host: str) -> bool:
    """True if a host without its port is a loopback address, or `localhost`."""
    is_v4 = host.startswith("127.") and host.replace(".", "").isdecimal()
    return is_v4 or host in ("::1", "localhost")


def host_of(peer: str) -> str:
    """Return the IP address of a peer; "" for a unix socket. An IPv4 address on an IPv6 socket is returned as IPv4."""
    parts = split_address(peer)
    return parts[0].removeprefix("::ffff:") if parts is not None else ""
