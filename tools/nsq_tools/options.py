"""Settings that several tools share, with the names and defaults of Go's tools, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsq_tools.cli import BadUsage
from nsqd_py.net.tls_level import advised, set_level, set_lowest_version
from nsqd_py.net.tls_options import DEFAULT_TLS_VERSION, LEVEL_SETTING
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.runtime.logs import INFO, TEXT
from nsqd_py.settings.declaration import Options, Setting
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.types import DURATION, INT, LOG_FORMAT, LOG_LEVEL, STRING, STRINGS

if TYPE_CHECKING:
    from nsqd_py.client.options import ClientOptions
    from nsqd_py.net.http.client import HttpClient, Url

# fmt: off
NSQD_TCP = Setting("nsqd-tcp-address", STRINGS, (),
    "TCP address (host:port) of an nsqd to consume from (may be given several times).")
LOOKUPD_HTTP = Setting("lookupd-http-address", STRINGS, (),
    "HTTP address (host:port) of an nsqlookupd that knows who has the topic (may be given several times).")
SOURCES = (NSQD_TCP, LOOKUPD_HTTP)

TOPIC = Setting("topic", STRING, "", "NSQ topic.")
TOPICS = Setting("topic", STRINGS, (), "NSQ topic (may be given several times).")
MAX_IN_FLIGHT = Setting("max-in-flight", INT, 200, "How many messages may be in flight at a time.",
    check=lambda value: None if value > 0 else "--max-in-flight must be at least 1")
CONSUMER_OPT = Setting("consumer-opt", STRINGS, (),
    "Option of the consumer as name,value with the names of go-nsq's Config, such as tls_v1,true or "
    "msg_timeout,30s (may be given several times).")
PRODUCER_OPT = Setting("producer-opt", STRINGS, (),
    "Option of the producer as name,value with the names of go-nsq's Config, such as snappy,true or "
    "dial_timeout,5s (may be given several times).")

HTTP_TIMEOUTS = (
    Setting("http-client-connect-timeout", DURATION, 2 * SECOND_NS, "How long an HTTP connection may take."),
    Setting("http-client-request-timeout", DURATION, 5 * SECOND_NS, "How long an HTTP answer may take."),
)
HTTP_TLS = (
    Setting("http-client-tls-root-ca-file", STRING, "",
        "File with the certificate authorities to trust for https:// addresses (PEM); the system's by default."),
    Setting("http-client-tls-cert", STRING, "", "Certificate file to show for https:// addresses (PEM)."),
    Setting("http-client-tls-key", STRING, "", "Key file of that certificate (PEM)."),
    LEVEL_SETTING,
)

def log_settings(prefix: str) -> tuple[Setting, ...]:
    """The settings of what a tool says on standard error."""
    return (
        Setting("log-level", LOG_LEVEL, INFO,
            "Write log lines of this level and above: debug, info, warn, error, fatal."),
        Setting("log-format", LOG_FORMAT, TEXT, "Form of the log on stderr: text, or json (an object a line)."),
        Setting("log-prefix", STRING, prefix, "What every log line begins with."),
    )
# fmt: on


# --- checks; each raises BadUsage


def check_sources(options: Options) -> None:
    """Exactly one kind of source has to be named."""
    if not options.nsqd_tcp_address and not options.lookupd_http_address:
        raise BadUsage("--nsqd-tcp-address or --lookupd-http-address required")
    if options.nsqd_tcp_address and options.lookupd_http_address:
        raise BadUsage("use --nsqd-tcp-address or --lookupd-http-address not both")
    check_nsqd_addresses(options.nsqd_tcp_address)
    check_lookupd_addresses(options.lookupd_http_address)


def check_nsqd_addresses(addresses: Sequence[str], flag: str = "nsqd-tcp-address") -> None:
    """Each has to be host:port, or another form that the client takes."""
    from nsqd_py.client.addresses import parse_address
    from nsqd_py.client.errors import BadAddress

    for address in addresses:
        try:
            parse_address(address)
        except BadAddress as error:
            raise BadUsage(f"--{flag}: {error}") from None


def check_lookupd_addresses(addresses: Sequence[str]) -> None:
    """Each has to be host:port, or a URL."""
    from nsqd_py.client.errors import BadClientOption
    from nsqd_py.client.lookup import nodes_url

    for address in addresses:
        try:
            nodes_url(address)
        except BadClientOption as error:
            raise BadUsage(f"--{LOOKUPD_HTTP.name}: {error}") from None


def check_topics(topics: Sequence[str]) -> None:
    """At least one, and each has to be a valid name."""
    if not any(topics):
        raise BadUsage("--topic required")
    for topic in topics:
        check_name(topic, "topic")


def check_name(name: str, flag: str) -> None:
    """The name of a topic or channel has to be one that nsqd takes."""
    if not is_valid_name(name.encode("utf-8", "surrogateescape")):
        raise BadUsage(f"--{flag} {name!r} is no valid name: 1 to 64 of a-z A-Z 0-9 . _ - (and #ephemeral at its end)")


def check_client_options(given: Sequence[str], flag: str) -> None:
    """The values of --consumer-opt or --producer-opt have to be known and in range."""
    client_options(given, flag)


# --- what the options mean


def client_options(given: Sequence[str], flag: str, **settings: object) -> ClientOptions:
    """The values of a --consumer-opt or --producer-opt, on top of `settings` (go-nsq's names). Raises BadUsage."""
    from nsqd_py.client.errors import BadClientOption
    from nsqd_py.client.options import ClientOptions

    try:
        return ClientOptions.parse(given, **settings)
    except BadClientOption as error:
        raise BadUsage(f"--{flag}: {error}") from error


def user_agent(tool: str) -> str:
    """Return the user agent of a tool, with the versions of NSQ and of this project: `nsq_tail/1.3.0 nsqd-py/0.1.0`."""
    from nsqd_py.client.options import USER_AGENT
    from nsqd_py.version import NSQ_VERSION

    return f"{tool}/{NSQ_VERSION} {USER_AGENT}"


def http_url(address: str, path: str = "/") -> Url:
    """`host:port`, `http://host:port` or `https://host:port` with a path. Raises BadUsage."""
    from nsqd_py.net.http.client import parse_url

    text = address if "://" in address else f"http://{address}"
    try:
        return parse_url(text.rstrip("/") + path)
    except ValueError as error:
        raise BadUsage(f"{address!r} is no HTTP address: {error}") from error


def http_client(options: Options) -> HttpClient:
    """Asks with the tool's time-outs and certificates. Raises BadUsage for files that cannot be used."""
    from nsqd_py.net.http.client import HttpClient, limit_s

    return HttpClient(
        connect_timeout_s=limit_s(options.http_client_connect_timeout_ns),
        request_timeout_s=limit_s(options.http_client_request_timeout_ns),
        tls=_tls_context(options),
    )


def _tls_context(options: Options) -> object:
    from gevent import ssl

    try:
        context = ssl.create_default_context(cafile=options.http_client_tls_root_ca_file or None)
        set_level(context, options.tls_security_level)
        set_lowest_version(context, options.tls_security_level, DEFAULT_TLS_VERSION)
        if options.http_client_tls_cert:
            key = options.http_client_tls_key or None
            # With an empty password, a key that needs one fails instead of asking on the terminal.
            context.load_cert_chain(options.http_client_tls_cert, key, password="")
    except OSError as error:  # SSLError is one
        raise BadUsage(f"cannot use the files of --http-client-tls-…: {advised(error.strerror or error)}") from error
    return context
