"""Addresses of nsqd: `host:port`, `[::1]:port`, `unix:/path`, `nsq://host:port`; and which of them are in use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from nsqd_py.client.errors import BadAddress
from nsqd_py.net.addresses import join_address, parse_host_port
from nsqd_py.runtime.logs.hidden import hidden_url

UNIX_PREFIX = "unix:"
URL_PREFIX = "nsq://"
_DEFAULT_PORT = 4150


@dataclass(frozen=True, slots=True)
class Address:
    """The address of an nsqd: `host` and `port`, or the `path` of a unix socket.

    str() returns the form that is shown and compared.
    """

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return UNIX_PREFIX + self.path
        return join_address(self.host, self.port)


def parse_address(text: str) -> Address:
    """Return the address in `host:port`, `[::1]:port`, `unix:/path` or a path alone. Raises BadAddress.

    `nsq://host:port` is an address too; without a port, it means 4150.
    """
    _check_kind(text)
    if text.startswith(URL_PREFIX):
        return _parse_url(text)
    if text.startswith((UNIX_PREFIX, "/")):
        path = text.removeprefix(UNIX_PREFIX)
        if not path:
            raise BadAddress(f'"{text}" lacks the path of a unix socket (unix:/path)')
        return Address(path=path)
    if "://" in text:
        scheme = text.partition("://")[0]
        raise BadAddress(
            f'"{hidden_url(text)}": not {scheme}://; a client needs the TCP address of nsqd as host:port, by default '
            f"with port {_DEFAULT_PORT} (4151 is for HTTP)"
        )
    if text and ":" not in text:
        raise BadAddress(f'"{text}" has no port: give host:port, as in {text}:{_DEFAULT_PORT}')
    if text.rpartition(":")[0] in ("", "[]"):
        raise BadAddress(f'"{text}" is no address of an nsqd (host:port, [::1]:port or unix:/path)')
    try:
        return Address(*parse_host_port(text))
    except ValueError as error:
        raise BadAddress(str(error)) from None


def _parse_url(text: str) -> Address:
    host_port = text.removeprefix(URL_PREFIX).removesuffix("/")
    _, separator, port = host_port.rpartition(":")
    has_port = bool(separator) and not port.endswith("]")
    return parse_address(host_port if has_port else f"{host_port}:{_DEFAULT_PORT}")


def address_list(addresses: str | Iterable[str]) -> list[str]:
    """Return the addresses of an argument that takes several; a single str is one address. Raises BadAddress."""
    if isinstance(addresses, str | bytes):
        return [addresses]
    if not isinstance(addresses, Iterable):
        raise BadAddress(
            f"addresses are a str or a list of them, not {type(addresses).__name__}: {addresses!r}"
        )
    return list(addresses)


def _check_kind(text: object) -> None:
    if isinstance(text, str) and "," not in text:
        return
    if isinstance(text, str):
        raise BadAddress(f'"{text}" is more than one address: give a list of them')
    raise BadAddress(f"an address is a str such as '127.0.0.1:4150', not {type(text).__name__}: {text!r}")


class Discovery:
    """The nsqds in use. The last answer of each nsqlookupd counts until it gives another.

    So an nsqlookupd that is down removes no nsqd. An unknown topic is an answer without nsqds.
    """

    def __init__(self, direct: Iterable[str] = ()) -> None:
        self._direct = dict.fromkeys(direct)
        self._answers: dict[str, tuple[str, ...]] = {}

    @property
    def needed(self) -> dict[str, None]:
        """Return every address once, beginning with those that were named."""
        return dict.fromkeys(chain(self._direct, *self._answers.values()))

    def add(self, address: str) -> None:
        self._direct[address] = None

    def answered(self, lookupd: str, addresses: Iterable[str]) -> None:
        """Replace the answer of an nsqlookupd."""
        self._answers[lookupd] = tuple(addresses)

    def is_empty(self, lookupds: Iterable[str]) -> bool:
        """True if there is no nsqd, according to all of these nsqlookupds."""
        if self._direct:
            return False
        return all(self._answers.get(lookupd) == () for lookupd in lookupds)
