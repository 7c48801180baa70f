"""The addresses of a client; requests to nsqlookupds, and their answers. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from nsqd_py.client.addresses import address_list, parse_address
from nsqd_py.client.errors import BadClientOption, NsqClientError
from nsqd_py.client.options import ClientOptions
from nsqd_py.net.addresses import is_host, join_address
from nsqd_py.runtime.documents import MOST_NSQDS
from nsqd_py.runtime.logs.hidden import hidden_url
from nsqd_py.settings.flags import addresses_from_environment

_SCHEMES = ("http", "https")


class LookupFailed(NsqClientError):
    """An nsqlookupd did not answer, or its answer could not be used; str(error) has its address."""


def addresses_of(
    role: str, nsqds: str | Iterable[str], lookupds: str | Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the addresses of nsqds and nsqlookupds, each once: the given ones or, without any, the environment's.

    Raises BadClientOption, BadAddress.
    """
    given: tuple[Iterable[str], Iterable[str]] = address_list(nsqds), address_list(lookupds)
    nsqds, lookupds = given if any(given) else addresses_from_environment()
    found = (
        tuple(dict.fromkeys(str(parse_address(address)) for address in nsqds)),
        tuple(dict.fromkeys(lookupds)),
    )
    for address in found[1]:
        nodes_url(address)
    if not any(found):
        raise BadClientOption(f"a {role} needs the address of an nsqd (host:port) or of an nsqlookupd")
    return found


def lookup_url(address: str, topic: str) -> str:
    """Return the URL for the nsqds of a topic. `address` is host:port or a URL. Raises BadClientOption."""
    parts = _parts(address)
    query = urlencode([*parse_qsl(parts.query), ("topic", topic)])
    path = parts.path.rstrip("/") or "/lookup"
    return urlunsplit(parts._replace(path=path, query=query))


def nodes_url(address: str) -> str:
    """Return the URL for all nsqds. Raises BadClientOption."""
    return urlunsplit(_parts(address)._replace(path="/nodes"))


def _parts(address: object) -> SplitResult:
    if not isinstance(address, str):
        kind = type(address).__name__
        raise BadClientOption(f"an address is a str such as '127.0.0.1:4161', not {kind}: {address!r}")
    scheme, separator, host_port = address.rpartition("://")
    if separator and scheme not in _SCHEMES:
        raise BadClientOption(
            f"{hidden_url(address)}: the address of an nsqlookupd is host:port or http://host:port, not {scheme}://"
        )
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        is_good = parts.scheme in _SCHEMES and bool(parts.port)
        is_good = is_good and (":" in (parts.hostname or "") or is_host(parts.hostname or ""))
    except ValueError:
        is_good = False
    if not is_good and host_port and ":" not in host_port:
        raise BadClientOption(
            f"{hidden_url(address)} has no port: nsqlookupd needs host:port, as in {host_port}:4161"
        )
    if not is_good:
        raise BadClientOption(
            f"{hidden_url(address)}: the address of an nsqlookupd is host:port, as in 127.0.0.1:4161"
        )
    return parts


def lookup_headers(options: ClientOptions) -> dict[str, str]:
    """Return the headers of each request."""
    headers = {"Accept": "application/vnd.nsq; version=1.0", "User-Agent": options.user_agent}
    if options.auth_secret and options.lookupd_authorization:
        headers["Authorization"] = f"Bearer {options.auth_secret}"
    return headers


def nsqds_in(document: Any) -> tuple[str, ...]:
    """Return the TCP addresses in an answer to /lookup or /nodes, each once, up to MOST_NSQDS. Raises ValueError."""
    return tuple(dict.fromkeys(map(_address, producers_in(document))))[:MOST_NSQDS]


def producers_in(document: Any) -> list[Any]:
    """Return the producers in an answer to /lookup or /nodes. Raises ValueError."""
    data = _value_in(document, "data")
    if isinstance(data, dict):
        document = data  # nsqlookupds before 1.0
    producers = _value_in(document, "producers")
    if not isinstance(producers, list):
        raise ValueError("the answer has no list of producers")
    return producers


def _value_in(document: Any, key: str) -> Any:
    """Return the value of a key; None if it is missing, or the document is no object."""
    if isinstance(document, dict):
        return document.get(key)
    return None


def _address(producer: Any) -> str:
    host = _value_in(producer, "broadcast_address")
    port = _value_in(producer, "tcp_port")
    if not (isinstance(host, str) and host and isinstance(port, int)):
        raise ValueError("a producer in the answer has no broadcast_address and tcp_port")
    return join_address(host if host.isprintable() else ascii(host), port)  # it is logged


def poll_after_s(options: ClientOptions, chance: float) -> float:
    """Return when to ask an nsqlookupd again. `chance`, 0 to 1, spreads consumers that start together over the jitter."""
    return options.lookupd_poll_interval_s * (1 + options.lookupd_poll_jitter * chance)
