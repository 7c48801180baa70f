"""The settings that several tools share, with the names and defaults of Go's tools, and their checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nsqd_py.client.addresses import parse_address
from nsqd_py.client.errors import BadClientOption
from nsqd_py.client.lookup import nodes_url
from nsqd_py.client.options import USER_AGENT, ClientOptions
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.settings.declaration import BadOptions, Options, at_least, setting
from nsqd_py.settings.types import CLIENT_OPTIONS, INT, STRING, STRINGS, URLS
from nsqd_py.version import NSQ_VERSION

TOPIC = setting(STRING, "", "NSQ topic.")
TOPICS = setting(STRINGS, (), "NSQ topic (may be given several times).")
MAX_IN_FLIGHT = setting(INT, 200, "Maximum number of messages in flight.", check=at_least(1))
CONSUMER_OPT = setting(
    CLIENT_OPTIONS,
    (),
    "Option of the consumer as name,value with the names of go-nsq's Config, such as tls_v1,true or "
    "msg_timeout,30s (may be given several times).",
)
PRODUCER_OPT = setting(
    CLIENT_OPTIONS,
    (),
    "Option of the producer as name,value with the names of go-nsq's Config, such as snappy,true or "
    "dial_timeout,5s (may be given several times).",
)


class SourceOptions(Options):
    """The settings of a tool that consumes: addresses of nsqds, or of nsqlookupds that list them."""

    nsqd_tcp_address: tuple[str, ...] = setting(
        STRINGS, (), "TCP address (host:port) of an nsqd to consume from (may be given several times)."
    )
    lookupd_http_address: tuple[str, ...] = setting(
        URLS, (), "HTTP address (host:port) of an nsqlookupd that lists the nsqds of the topic (may be given several times)."
    )


# --- checks; each raises BadOptions


def check_sources(options: SourceOptions) -> None:
    """Require exactly one kind of source."""
    if not options.nsqd_tcp_address and not options.lookupd_http_address:
        raise BadOptions("--nsqd-tcp-address or --lookupd-http-address required")
    if options.nsqd_tcp_address and options.lookupd_http_address:
        raise BadOptions("use --nsqd-tcp-address or --lookupd-http-address not both")
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
        try:
            parse(address)
        except BadClientOption as error:
            raise BadOptions(f"--{flag}: {error}") from None


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


def client_options(given: Sequence[str], flag: str, **settings: object) -> ClientOptions:
    """Return the options of a client: `settings`, overridden by --consumer-opt or --producer-opt.

    Raises BadOptions if one of these is unknown or out of range. All have the names of go-nsq's Config.
    """
    try:
        return ClientOptions.parse(given, **settings)
    except BadClientOption as error:
        raise BadOptions(f"--{flag}: {error}") from error


def user_agent(tool: str) -> str:
    """Return the user agent of a tool, with the versions of NSQ and of this project: `nsq_tail/1.3.0 nsqd-py/0.1.0`."""
    return f"{tool}/{NSQ_VERSION} {USER_AGENT}"
