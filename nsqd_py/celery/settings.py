"""The settings of a broker: its URL, `broker_transport_options`, and how queues are named on nsqd."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlsplit

from celery.exceptions import ImproperlyConfigured

from nsqd_py.client.errors import BadClientOption
from nsqd_py.client.lookup import addresses_of
from nsqd_py.client.options import ClientOptions
from nsqd_py.protocol.names import EPHEMERAL_SUFFIX, MAX_NAME_LENGTH, is_valid_name

DEFAULT_PORT = 4150
_DIGEST_CHARACTERS = 8
_REFUSED_CHARACTER = re.compile(r"[^.a-zA-Z0-9_-]")

_LOOKUPD_POLL_S = 5.0
_REDIAL_S = 1.0

_OWN_OPTIONS = (
    "nsqd_tcp_addresses",
    "lookupd_http_addresses",
    "nsqd_http_addresses",
    "channel",
    "longest_defer_s",
    "publish_timeout_s",
)
# Options that kombu itself reads.
_OF_KOMBU = (
    "body_encoding",
    "callback",
    "connect_retries_timeout",
    "errback",
    "interval_max",
    "interval_start",
    "interval_step",
    "max_retries",
    "polling_interval",
)


def nsq_name(name: str, *, is_ephemeral: bool = False) -> str:
    """Return the topic or channel of a queue or exchange.

    It has the same name if NSQ allows that. Otherwise `-` replaces what NSQ refuses, and a hash of the name ends it.
    """
    suffix = EPHEMERAL_SUFFIX if is_ephemeral else ""
    most = MAX_NAME_LENGTH - len(suffix)
    if len(name) <= most and "#" not in name and is_valid_name(name.encode()):
        return name + suffix
    digest = sha256(name.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    shortened = _REFUSED_CHARACTER.sub("-", name)[: most - len(digest) - 1]
    return f"{shortened}-{digest}{suffix}"


@dataclass(frozen=True)
class Settings:
    """The addresses and options of a broker URL and `broker_transport_options`.

    channel            the NSQ channel of all queues
    longest_defer_s    the longest delay that nsqd accepts: its --max-defer-timeout and --max-req-timeout
    """

    nsqds: tuple[str, ...]
    lookupds: tuple[str, ...]
    https: tuple[str, ...]
    channel: str
    longest_defer_s: float
    publish_timeout_s: float
    options: ClientOptions

    @classmethod
    def of(cls, url: str, port: int | None, options: Mapping[str, Any]) -> Settings:
        """Read a broker URL, or a host with its port. Raises ImproperlyConfigured."""
        nsqds, lookupds = _addresses_in(url, port)
        own = {name: options[name] for name in _OWN_OPTIONS if name in options}
        client = {name: value for name, value in options.items() if name not in (*own, *_OF_KOMBU)}
        try:
            found = addresses_of(
                "broker_url",
                [*nsqds, *_list_of(own.get("nsqd_tcp_addresses"))],
                [*lookupds, *_list_of(own.get("lookupd_http_addresses"))],
            )
            # nsqd sends each message at once. The interval also limits the time until a lost nsqd is dialled again.
            interval_s = _LOOKUPD_POLL_S if found[1] else _REDIAL_S
            defaults = ClientOptions.of(output_buffer_size=-1, lookupd_poll_interval=interval_s)
            return cls(
                *found,
                https=tuple(_list_of(own.get("nsqd_http_addresses"))),
                channel=str(own.get("channel", "celery")),
                longest_defer_s=float(own.get("longest_defer_s", 3600)),
                publish_timeout_s=float(own.get("publish_timeout_s", 30)),
                options=defaults.with_settings(**client),
            )
        except (BadClientOption, TypeError, ValueError) as error:
            names = ", ".join(_OWN_OPTIONS)
            raise ImproperlyConfigured(
                f"broker_url or broker_transport_options: {error}; options of this transport alone are {names}"
            ) from error


def _list_of(addresses: str | Iterable[str] | None) -> list[str]:
    if isinstance(addresses, str):
        return [address for address in addresses.split(",") if address]
    return list(addresses or ())


def _addresses_in(url: str, port: int | None) -> tuple[list[str], list[str]]:
    """Return the nsqds and nsqlookupds of a broker URL. Raises ImproperlyConfigured."""
    if "://" not in url:
        return ([f"{url}:{port or DEFAULT_PORT}"] if ":" not in url else [url]), []
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ImproperlyConfigured(
            "broker_url: NSQ has no users and passwords; set auth_secret in broker_transport_options"
        )
    query = parse_qs(parts.query)
    lookupds = query.pop("lookupd_http_address", [])
    if query or parts.path.strip("/"):
        raise ImproperlyConfigured(
            f"broker_url {url}: only addresses of nsqds and ?lookupd_http_address=host:port may stand in it; "
            "set other options in broker_transport_options"
        )
    nsqds = [_with_port(address) for address in parts.netloc.split(",") if address]
    return nsqds, [address for text in lookupds for address in text.split(",")]


def _with_port(address: str) -> str:
    has_port = ":" in address.rpartition("]")[2]
    return address if has_port else f"{address}:{DEFAULT_PORT}"


def refusal(what: str, remedy: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{what}: NSQ cannot do this; {remedy}")
