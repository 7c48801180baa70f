"""Addresses as text: `host:port`, `:port` and `[v6]:port`. Anything else is the path of a unix socket. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

MAX_PORT = 65535
_LONGEST_LABEL = 63
_NOT_IN_NAMES = frozenset(" \t\r\n/\\[]@:,?#\"'")
# That of Linux's sockaddr_un, without the zero byte at its end.
_LONGEST_SOCKET_PATH_BYTES = 107


def split_address(address: str) -> tuple[str, int] | None:
    """Return the host and the port; None for the path of a unix socket."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or "/" in address:
        return None
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    if ":" in host:
        return None
    return host, int(port)


def parse_host_port(address: str, lowest_port: int = 1) -> tuple[str, int]:
    """Return the host, which may be empty, and the port of a configured address. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon:
        raise ValueError(f'"{address}" has no port (host:port or [::1]:port)')
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if ip_version(host) != 6:
            raise ValueError(f'"{address}": "{host}" is not an IPv6 address')
    elif ":" in host and "/" not in host:
        raise ValueError(f'"{address}": an IPv6 address belongs in brackets, as in [::1]:4150')
    elif _is_numeric(host) and not is_host(host):
        raise ValueError(f'"{address}": "{host}" is not an IPv4 address')
    elif host and not is_host(host):
        raise ValueError(
            f'"{address}": "{host}" is not a host: host:port, without http:// or anything around it'
        )
    if port.isascii() and port.isdecimal() and len(port) <= len(str(MAX_PORT)):
        number = int(port)
    else:
        number = -1
    if not lowest_port <= number <= MAX_PORT:
        raise ValueError(f'"{address}": "{port}" is no port ({lowest_port} to {MAX_PORT})')
    return host, number


def ip_version(host: str) -> int:
    """Return 4 or 6 for an IP address without brackets; 0 for anything else."""
    import ipaddress  # slow to import; few addresses need it

    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0


def is_host(host: str) -> bool:
    """True for a host name or IPv4 address that a resolver can take; it may not exist."""
    if not host.isprintable() or not _NOT_IN_NAMES.isdisjoint(host):
        return False
    if _is_numeric(host):
        return _is_ipv4(host)
    try:
        ascii_host = host
        if not host.isascii():
            ascii_host = host.encode("idna").decode()
        labels = ascii_host.removesuffix(".").split(".")
    except UnicodeError:
        return False
    return all(0 < len(label) <= _LONGEST_LABEL for label in labels)


def _is_numeric(host: str) -> bool:
    """True if only an IPv4 address can be meant: no name ends in a number."""
    return host.isascii() and host.replace(".", "").isdecimal()


def _is_ipv4(host: str) -> bool:
    """True if a resolver takes this number as an IPv4 address: `127.0.0.1`, and as `127.1` or `0` with the last part longer."""
    *parts, last = host.split(".")
    has_parts = all(part and int(part) < 256 for part in parts)
    return has_parts and len(parts) < 4 and last != "" and int(last) < 256 ** (4 - len(parts))


def check_host(host: str) -> None:
    """Raise OSError if no resolver can take the host. gevent's resolver would print a traceback."""
    if host and not is_host(host):
        raise OSError(f"{host!a:.100} is not a host name")


def check_listen_address(address: str) -> None:
    """The check of a setting: `host:port`, where port 0 lets the system choose, or the path of a unix socket."""
    is_foreign = "://" in address or address.startswith("unix:")
    if ("/" in address or address.endswith(".sock")) and not is_foreign:
        _check_socket_path(address)
        return
    if is_foreign or ":" not in address:
        raise ValueError(f'"{address}" must be host:port, or for a unix socket a path with a slash')
    parse_host_port(address, lowest_port=0)


def _check_socket_path(path: str) -> None:
    size_bytes = len(path.encode())
    if size_bytes > _LONGEST_SOCKET_PATH_BYTES:
        raise ValueError(
            f"{path} has {size_bytes} bytes, and the path of a unix socket at most {_LONGEST_SOCKET_PATH_BYTES}"
        )


def check_broadcast_address(host: str) -> str | None:
    """The check of a setting that may be empty: a host for other machines, without a port."""
    if not host or is_host(host) or ip_version(host):
        return None
    return "must be a host name or an IP address, without a port"


def check_peer_address(address: str) -> None:
    """The check of a setting that may be empty: `host:port` of another program. Without a host, it is this machine."""
    if address:
        parse_host_port(address)


def optional(check: Callable[[str], None]) -> Callable[[str], None]:
    """Return the check of an address that may be empty."""
    return lambda address: check(address) if address else None


def check_peer_addresses(addresses: Sequence[str]) -> None:
    """The check of a setting with several addresses: each is `host:port`."""
    for address in addresses:
        parse_host_port(address)


def check_port(port: int) -> str | None:
    """The check of a setting: a port, or 0 for a default."""
    if 0 <= port <= MAX_PORT:
        return None
    return f"must be a port, 0 to {MAX_PORT}"


def join_address(host: str, port: int) -> str:
    """Return `host:port`, with an IPv6 address in brackets.

    Brackets also keep what is no host, and may come from anyone, from being read as a path, a login or a query.
    """
    if _NOT_IN_NAMES.isdisjoint(host):
        return f"{host}:{port}"
    return f"[{host.replace(']', '')}]:{port}"


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


def is_loopback_address(address: str) -> bool:
    """True for a loopback host with or without a port, for a unix socket, and for no address at all."""
    parsed = split_address(address)
    if parsed is not None:
        return is_loopback(parsed[0])
    return "/" in address or not address or is_loopback(address)


def host_of(peer: str) -> str:
    """Return the IP address of a peer; "" for a unix socket. An IPv4 address on an IPv6 socket is returned as IPv4."""
    parts = split_address(peer)
    if parts is not None:
        return parts[0].removeprefix("::ffff:")
    return ""
