"""The settings of nsqadmin. Those that Go's has are named as there; `Only here` are ours."""

from __future__ import annotations

import ipaddress
import posixpath
from collections.abc import Sequence

from nsq_tools.options import HTTP_TIMEOUTS, HTTP_TLS

from nsqadmin_py.web.proxies import UNIX
from nsqd_py.net.tls_options import (
    HTTP_AUTH_SETTING,
    KEY_SETTING,
    check_auth_file,
    check_authorities,
    check_certificate,
)
from nsqd_py.settings.declaration import BadOptions, Options, Program, Setting
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.log_options import VERBOSE_SETTING, log_settings
from nsqd_py.settings.types import BOOL, DURATION, INT, STRING, STRINGS

LOG_PREFIX = "[nsqadmin] "
_SHORTEST_POLL_NS = SECOND_NS // 4


def _check_poll_interval(value: int) -> str | None:
    return None if value >= _SHORTEST_POLL_NS else "--poll-interval must be at least 250ms"


def _check_not_negative(value: int) -> str | None:
    return None if value >= 0 else "--max-connections must not be negative"


# Each: name, kind, default; then what it does.
# fmt: off
_GENERAL = (*log_settings(LOG_PREFIX), VERBOSE_SETTING)

_CLUSTER = (
    Setting("lookupd-http-address", STRINGS, (),
        "HTTP address (host:port) of an nsqlookupd (may be given several times).",
        config_key="nsqlookupd_http_addresses"),
    Setting("nsqd-http-address", STRINGS, (),
        "HTTP address (host:port) of an nsqd, where there is no nsqlookupd (may be given several times).",
        config_key="nsqd_http_addresses"),
    Setting("poll-interval", DURATION, 2 * SECOND_NS,
        "How often all of them are asked for what the page shows.", check=_check_poll_interval),
    Setting("history-file", STRING, "nsqadmin-history.db",
        "Where the figures of the last day are kept across restarts; empty keeps them in memory only."),
)

_HTTP = (
    Setting("http-address", STRING, "0.0.0.0:4171",
        "Where the page and the API are: host:port, or the path of a unix socket."),
    Setting("base-path", STRING, "/", "What all paths begin with, behind a proxy that serves other things too."),
    Setting("dev-static-dir", STRING, "",
        "Folder to take the page from instead of ours: its index.html, and what that asks for below /static."),
    Setting("max-connections", INT, 0,
        "Most HTTP connections, each open page is one; 0 is as many as there are file descriptors for.",
        check=_check_not_negative),
    Setting("tls-cert", STRING, "", "Certificate file (PEM); the page is then at https://."),
    KEY_SETTING,
)

_SAFETY = (
    Setting("acl-http-header", STRING, "X-Forwarded-User",
        "Header in which a proxy that knows its users names who asks."),
    Setting("acl-http-header-from", STRINGS, (),
        "Addresses of such proxies, as a CIDR block, or unix for those at a unix socket (may be given several times); "
        "what others say in that header counts for nothing. Without any, all are believed, as long as there is no "
        "--http-auth-file."),
    Setting("admin-user", STRINGS, (),
        "User who may change things, by --acl-http-header or by a login of --http-auth-file (may be given several "
        "times); without any, all may.",
        config_key="admin_users"),
    HTTP_AUTH_SETTING,
    Setting("read-only", BOOL, False, "Refuse every action: this nsqadmin only looks."),
    Setting("allow-config-from-cidr", STRING, "127.0.0.1/8",
        "Addresses from which /config may be asked, as a CIDR block; empty lets all."),
    Setting("notification-http-endpoint", STRING, "", "URL that is told of every action, by a POST of JSON."),
)

_CLIENT = (
    *HTTP_TIMEOUTS,
    *HTTP_TLS,
    Setting("http-client-tls-insecure-skip-verify", BOOL, False, "Take any certificate from nsqd and nsqlookupd."),
    Setting("http-client-token-file", STRING, "",
        "File with the bearer token for nsqd and nsqlookupd that have an --http-auth-file. Over plain HTTP only hosts "
        "that --nsqd-http-address, --lookupd-http-address and --http-client-token-host name get to see it."),
    Setting("http-client-token-host", STRINGS, (),
        "Host, IP address or CIDR block of nsqds that nsqlookupds name and that may see the token over plain HTTP "
        "(may be given several times)."),
    Setting("client-opt", STRINGS, (),
        "Option of the TCP connections over which dead letters are moved, as name,value with the names of go-nsq's "
        "Config, such as tls_v1,true or auth_secret,... (may be given several times)."),
)

_GRAPHITE = (
    Setting("graphite-url", STRING, "", "URL of a Graphite that has what nsqd sends to statsd."),
    Setting("proxy-graphite", BOOL, False, "Ask Graphite through this nsqadmin, at /render."),
    Setting("statsd-counter-format", STRING, "stats.counters.%s.count",
        "How statsd names a counter towards Graphite; empty where it changes nothing."),
    Setting("statsd-gauge-format", STRING, "stats.gauges.%s",
        "How statsd names a gauge towards Graphite; empty where it changes nothing."),
    Setting("statsd-prefix", STRING, "nsq.%s",
        "What nsqd begins its names for statsd with (%s is the host); as nsqd has it."),
    Setting("statsd-interval", DURATION, 60 * SECOND_NS, "How often nsqd reports to statsd; as nsqd has it."),
)
# fmt: on

NSQADMIN = Program(
    "nsqadmin",
    "nsqadmin-py",
    "A console over all nsqd and nsqlookupd of a cluster. "
    "Flags may have one dash or two, and their values follow after a space or =.",
    {
        "General": _GENERAL, "Cluster": _CLUSTER, "HTTP": _HTTP, "Safety": _SAFETY,
        "Questions to nsqd and nsqlookupd": _CLIENT, "Graphite": _GRAPHITE,
    },
    [("To look at a cluster:", "nsqadmin-py --lookupd-http-address=127.0.0.1:4161")],
)  # fmt: skip


def read_options(argv: Sequence[str]) -> Options:
    """nsqadmin's options from its command line, as `Program.read` gives them, settled."""
    options = NSQADMIN.read(argv)
    return options.replace(base_path=clean_base_path(options.base_path))


def clean_base_path(path: str) -> str:
    """With a slash before it and none behind it."""
    return "/" + posixpath.normpath("/" + path).strip("/")


def check_options(options: Options) -> None:
    """Raises BadOptions where nsqadmin cannot start with `options`. Reads the TLS files; changes nothing."""
    options.check()
    _check_addresses(options)
    _check_client_tls(options)
    _check_client_options(options)
    _check_urls(options)
    _check_networks(options)
    if options.tls_cert or options.tls_key:
        check_certificate(options.tls_cert, options.tls_key, level=options.tls_security_level)
    check_auth_file(options)
    check_packages()


def _check_addresses(options: Options) -> None:
    lookupds, nsqds = options.lookupd_http_address, options.nsqd_http_address
    if not nsqds and not lookupds:
        raise BadOptions("--nsqd-http-address or --lookupd-http-address required")
    if nsqds and lookupds:
        raise BadOptions("use --nsqd-http-address or --lookupd-http-address not both")
    from nsqd_py.net.http.client import parse_url

    for flag, addresses in (("lookupd", lookupds), ("nsqd", nsqds)):
        for address in addresses:
            try:
                parse_url(f"http://{address}/")
            except ValueError as error:
                raise BadOptions(f"failed to resolve --{flag}-http-address ({address}) - {error}") from error


def _check_client_tls(options: Options) -> None:
    cert, key = options.http_client_tls_cert, options.http_client_tls_key
    if cert and not key:
        raise BadOptions("--http-client-tls-key must be specified with --http-client-tls-cert")
    if key and not cert:
        raise BadOptions("--http-client-tls-cert must be specified with --http-client-tls-key")
    if cert:
        check_certificate(cert, key, "http-client-tls", level=options.tls_security_level)
    if options.http_client_tls_root_ca_file:
        check_authorities(options.http_client_tls_root_ca_file, "--http-client-tls-root-ca-file")


def _check_client_options(options: Options) -> None:
    from nsqd_py.client.errors import BadClientOption
    from nsqd_py.client.options import ClientOptions
    from nsqd_py.client.tls import client_context

    try:
        client = ClientOptions.parse(options.client_opt)
        if client.tls_v1:
            client_context(client)
    except (BadClientOption, OSError) as error:
        raise BadOptions(f"--client-opt: {error}") from error


def _check_networks(options: Options) -> None:
    wanted = {
        "allow-config-from-cidr": [options.allow_config_from_cidr] if options.allow_config_from_cidr else [],
        "acl-http-header-from": [block for block in options.acl_http_header_from if block != UNIX],
    }
    for flag, blocks in wanted.items():
        for block in blocks:
            try:
                ipaddress.ip_network(block, strict=False)
            except ValueError as error:
                raise BadOptions(f"failed to parse --{flag} ({block}) - {error}") from error


def _check_urls(options: Options) -> None:
    from nsqd_py.net.http.client import parse_url

    wanted = {"graphite-url": options.graphite_url, "notification-http-endpoint": options.notification_http_endpoint}
    for flag, url in wanted.items():
        if url or (flag == "graphite-url" and options.proxy_graphite):
            try:
                parse_url(url)
            except ValueError as error:
                raise BadOptions(f"failed to parse --{flag} ({url}) - {error}") from error


def check_packages() -> None:
    """Raises BadOptions where what nsqadmin needs besides is not installed."""
    try:
        import jinja2  # noqa: F401  only whether it is there
        import werkzeug  # noqa: F401
    except ImportError as error:
        raise BadOptions(f"{error.name} is not installed: pip install 'nsqd-py[admin]'") from error
