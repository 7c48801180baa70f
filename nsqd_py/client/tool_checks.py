"""Checks of the settings that several tools share, and the options of their clients. Imports the client: not for --help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nsqd_py.client.addresses import parse_address
from nsqd_py.client.errors import BadClientOption
from nsqd_py.client.lookup import nodes_url
from nsqd_py.client.options import USER_AGENT, ClientOptions
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.settings.declaration import BadOptions, bad_options, check_one_of
from nsqd_py.settings.tools import SourceOptions
from nsqd_py.version import NSQ_VERSION

# --- checks; each raises BadOptions


def check_sources(options: SourceOptions) -> None:
    """Require exactly one kind of source."""
    check_one_of(options, "nsqd_tcp_address", "lookupd_http_address")
    check_nsqd_addresses(options.nsqd_tcp_address)
    check_lookupd_addresses(options.lookupd_http_address)


def check_nsqd_addresses(addresses: Sequence[str], flag: str = "nsqd-tcp-address") -> None:
    """Check that the client accepts each address."""
    _check_each(addresses, parse_address, flag)


def check_lookupd_addresses(addresses: Sequence[str]) -> None:
    """Check that each address of an nsqlookupd is host:port or a URL."""
    _check_each(addresses, nodes_url, "lookupd-http-address")


def _check_each(addresses: Sequence[str], parse: Callable[[str], object], flag: str) -> None:
    for address in addresses:
        with bad_options(f"--{flag}: ", BadClientOption):
            parse(address)


def check_topics(topics: Sequence[str]) -> None:
    """Require at least one topic, and valid names."""
    if not any(topics):
        raise BadOptions("--topic required")
    for topic in topics:
        check_name(topic, "topic")


def check_name(name: str, flag: str) -> None:
    """Check that nsqd accepts the name of a topic or channel."""
    if not is_valid_name(name.encode("utf-8", "surrogateescape")):
        raise BadOptions(
            f"--{flag} {name!r} is not a valid name: 1 to 64 of a-z A-Z 0-9 . _ -, and optionally #ephemeral at the end"
        )


# --- clients made from options


def client_options(given: Sequence[str], flag: str, **settings: Any) -> ClientOptions:
    """Return the options of a client: `settings`, overridden by --consumer-opt or --producer-opt.

    Raises BadOptions if one of these is unknown or out of range. All have the names of go-nsq's Config.
    """
    with bad_options(f"--{flag}: ", BadClientOption):
        return ClientOptions.parse(given, **settings)


def user_agent(tool: str) -> str:
    """Return the user agent of a tool, with the versions of NSQ and of this project: `nsq_tail/1.3.0 nsqd-py/1.0.0rc1`."""
    return f"{tool}/{NSQ_VERSION} {USER_AGENT}"
