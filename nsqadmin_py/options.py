"""The settings of nsqadmin. Settings of Go's nsqadmin have the same names; `Only here` marks the others."""

from __future__ import annotations

import ipaddress
import posixpath
from collections.abc import Sequence

from nsqadmin_py.address_blocks import UNIX
from nsqadmin_py.permissions import read_rule
from nsqd_py.cluster.problems.limits import DEFAULT_MAX_MESSAGE_AGE_NS, check_ages
from nsqd_py.net import tls_options
from nsqd_py.net.addresses import check_listen_address
from nsqd_py.settings.declaration import (
    BadOptions,
    Options,
    at_least,
    bad_options,
    check_one_of,
    check_package,
    not_negative,
    setting,
    string,
    strings,
    switch,
    urls,
)
from nsqd_py.settings.durations import SECOND_NS, format_duration
from nsqd_py.settings.kinds import ByTopic, by_topic
from nsqd_py.settings.program import (
    OBSOLETE_VERBOSE,
    VERBOSE,
    LogOptions,
    Program,
    ProgramOptions,
    log_prefix_setting,
)
from nsqd_py.settings.types import DURATION, INT, STRING, URL, WEBHOOK

LOG_PREFIX = "[nsqadmin] "
_SHORTEST_POLL_NS = SECOND_NS // 4
# RFC 9110, 5.6.2
_NOT_IN_TOKENS = frozenset(' "(),/:;<=>?@[\\]{}')
_ALERTS = "Prometheus alerts on nsqadmin's /metrics: see contrib/prometheus"
_REMOVED = {
    "attention-max-age": "--max-message-age",
    "attention-max-depth": _ALERTS,
    "client-opt": "dead letters are requeued over HTTP, with the options --http-client-...",
}


def _check_header(name: str) -> str | None:
    is_token = name.isascii() and name.isprintable() and _NOT_IN_TOKENS.isdisjoint(name)
    return None if is_token else "must be the name of a header"


# Each setting: name, type, default, then its help.


class _AdminGeneral(LogOptions, title="General"):
    log_prefix: str = log_prefix_setting(LOG_PREFIX)
    verbose: bool = VERBOSE
    obsolete_keys = OBSOLETE_VERBOSE | {
        "template_dir": "the page is part of nsqadmin",
        "use_statsd_prefixes": "set statsd_counter_format",
    }


class _Cluster(Options, title="Cluster"):
    lookupd_http_address: tuple[str, ...] = urls(
        "HTTP address (host:port) of an nsqlookupd (may be given several times).",
        config_key="nsqlookupd_http_addresses",
    )
    nsqd_http_address: tuple[str, ...] = urls(
        "HTTP address (host:port) of an nsqd, for clusters without nsqlookupd (may be given several times).",
        config_key="nsqd_http_addresses",
    )
    poll_interval_ns: int = setting(
        DURATION,
        2 * SECOND_NS,
        "Time between two requests to each nsqlookupd and nsqd.",
        check=at_least(_SHORTEST_POLL_NS, format_duration),
    )
    max_message_age_ns: ByTopic[int] = setting(
        by_topic(DURATION, DEFAULT_MAX_MESSAGE_AGE_NS),
        ByTopic(DEFAULT_MAX_MESSAGE_AGE_NS),
        "Age from which the oldest waiting message of a channel is listed under Attention; 0s means never. "
        "With topic=, for topics with that name or pattern (`reports.*=24h`; may be given several times).",
        check=check_ages,
    )
    history_file: str = setting(
        STRING,
        "nsqadmin-history.db",
        "File that keeps the metrics of the last day across restarts; if empty, they are kept in memory "
        "only.",
    )


class _Http(Options, title="HTTP"):
    http_address: str = setting(
        STRING,
        "0.0.0.0:4171",
        "Address of the page and the API: host:port, or the path of a unix socket.",
        check=check_listen_address,
    )
    base_path: str = setting(
        STRING, "/", "Prefix of all paths, for a proxy that also serves other applications."
    )
    dev_static_dir: str = string(
        "Directory that replaces the page, for development: index.html, and files below /static."
    )
    max_connections: int = setting(
        INT,
        0,
        "Maximum number of HTTP connections; 0 means all file descriptors. Each open page has one.",
        check=not_negative,
    )
    tls_cert: str = string("Server certificate (PEM file). The page is then at https://.")
    tls_key: str = tls_options.KEY_FILE


class _Safety(Options, title="Access"):
    acl_http_header: str = setting(
        STRING,
        "X-Forwarded-User",
        "Header in which an authenticating proxy sends the name of the user.",
        check=_check_header,
    )
    acl_http_header_from: tuple[str, ...] = strings(
        "Addresses of the proxies that may send --acl-http-header: a CIDR block, or unix for unix sockets "
        "(may be given several times). The header is ignored from other addresses. If not given, the header "
        "is accepted from everyone, unless there is an --http-auth-file."
    )
    admin_user: tuple[str, ...] = strings(
        "User who may change things, by the name in --acl-http-header or in --http-auth-file (may be given "
        "several times); if not given, every user may.",
        config_key="admin_users",
    )
    topic_permission: tuple[str, ...] = strings(
        "Permission on topics, as PERMISSION TOPICS WHO (may be given several times): view, publish or "
        "administer, a topic name or pattern (orders.*), and a user, group:NAME or * for everybody. Once "
        "there is one, users other than --admin-user see and change only what these grant.",
        config_key="topic_permissions",
    )
    acl_groups_http_header: str = setting(
        STRING,
        "X-Forwarded-Groups",
        "Header in which the proxy of --acl-http-header sends the groups of the user, separated by commas.",
        check=_check_header,
    )
    http_auth_file: str = tls_options.HTTP_AUTH_FILE
    http_allowed_hosts: tuple[str, ...] = tls_options.HTTP_ALLOWED_HOSTS
    read_only: bool = switch("Refuse all actions.")
    allow_config_from_cidr: str = setting(
        STRING,
        "127.0.0.1/8",
        "Addresses that may use /config, as a CIDR block; if empty, all addresses. Requests that a proxy "
        "passed on are from an unknown address.",
    )
    notification_http_endpoint: str = setting(
        WEBHOOK, "", "URL that receives a POST with JSON for every action."
    )


class _Problems(Options, title="Reports of problems"):
    attention_http_endpoint: str = setting(
        WEBHOOK,
        "",
        "URL that receives a POST with JSON when a problem that is an error or a warning has been under "
        "Attention for 10 s, and when it has ended.",
    )
    attention_quiet_time_ns: int = setting(
        DURATION,
        120 * SECOND_NS,
        "Time for which a problem must be gone before its end is reported. If it comes back earlier, "
        "nothing is reported.",
        check=not_negative,
    )
    page_url: str = setting(
        URL,
        "",
        "Address of this page in reports, such as https://nsqadmin.example.org; by default the host name "
        "and the port of --http-address.",
    )
    runbooks_url: str = setting(
        URL,
        "docs/runbooks.md",
        "Address of the runbooks in reports; the kind of the problem follows after #.",
    )


class _AdminRequests(tls_options.HttpClientOptions, title="Requests to nsqd and nsqlookupd"):
    http_client_tls_insecure_skip_verify: bool = switch("Accept any certificate from nsqd and nsqlookupd.")
    http_client_token_file: str = string(
        "File with the bearer token for nsqds and nsqlookupds that have an --http-auth-file. It is sent "
        "only to --nsqd-http-address, --lookupd-http-address and --http-client-token-host, and over HTTPS "
        "to servers with a certificate of --http-client-tls-root-ca-file."
    )
    http_client_token_host: tuple[str, ...] = strings(
        "host:port of an nsqd, found by nsqlookupds, that receives the token; or a host, IP address or "
        "CIDR block, with all its ports (may be given several times)."
    )


class _Graphite(Options, title="Graphite"):
    graphite_url: str = setting(
        URL, "", "URL of a Graphite server with the metrics that nsqd sends to statsd."
    )
    proxy_graphite: bool = switch("Forward requests for /render to Graphite.")
    statsd_counter_format: str = setting(
        STRING,
        "stats.counters.%s.count",
        "Format of the names that statsd gives to counters; only /config shows it.",
    )
    statsd_gauge_format: str = setting(
        STRING, "stats.gauges.%s", "Format of the names that statsd gives to gauges; only /config shows it."
    )
    statsd_prefix: str = setting(
        STRING, "nsq.%s", "Prefix of nsqd's metrics (%s is the host); only /config shows it."
    )
    statsd_interval_ns: int = setting(
        DURATION, 60 * SECOND_NS, "Time between two reports of nsqd to statsd; the same as in nsqd."
    )


class NsqadminOptions(
    ProgramOptions, _AdminGeneral, _Cluster, _Http, _Safety, _Problems, _AdminRequests, _Graphite
):
    """The options of nsqadmin."""


NSQADMIN = Program(
    "nsqadmin",
    "nsqadmin-py",
    "A web console for the nsqds and nsqlookupds of a cluster. "
    "Flags have one dash or two; their values follow after a space or =.",
    NsqadminOptions,
    [
        (
            "To look at a cluster from this machine",
            "nsqadmin-py --lookupd-http-address=127.0.0.1:4161 --http-address=127.0.0.1:4171",
        )
    ],
    removed=_REMOVED,
)


def read_options(argv: Sequence[str]) -> NsqadminOptions:
    """Return nsqadmin's options from its command line and config file, settled. Raises as `Program.read`."""
    options = NSQADMIN.read(argv)
    return options.replace(base_path=clean_base_path(options.base_path))


def clean_base_path(path: str) -> str:
    """Return a path that begins with a slash and does not end with one."""
    return "/" + posixpath.normpath("/" + path).strip("/")


def check_options(options: NsqadminOptions) -> None:
    """Raise BadOptions if nsqadmin cannot start with `options`. Read the TLS files, and change nothing."""
    options.check_values()
    _check_addresses(options)
    _check_client_tls(options)
    _check_networks(options)
    _check_permissions(options)
    checked = {
        "notification-http-endpoint": options.notification_http_endpoint,
        "attention-http-endpoint": options.attention_http_endpoint,
        "page-url": options.page_url,
    }
    if "://" in options.runbooks_url:  # else a path
        checked["runbooks-url"] = options.runbooks_url
    if options.graphite_url or options.proxy_graphite:
        _check_url(f"parse --graphite-url ({options.graphite_url})", options.graphite_url)
    for flag, url in checked.items():
        if url:
            _check_url(f"parse --{flag} ({url})", url)
    if options.tls_cert or options.tls_key:
        tls_options.check_certificate(options.tls_cert, options.tls_key, level=options.tls_security_level)
    tls_options.check_auth_file(options.http_auth_file)
    check_package("werkzeug", "admin", "nsqadmin")


def _check_addresses(options: NsqadminOptions) -> None:
    lookupds = options.lookupd_http_address
    nsqds = options.nsqd_http_address
    check_one_of(options, "nsqd_http_address", "lookupd_http_address")
    for address in (*lookupds, *nsqds):
        url = address if "://" in address else f"http://{address}/"
        _check_url(f"resolve --{'lookupd' if lookupds else 'nsqd'}-http-address ({address})", url)


def _check_url(what: str, url: str) -> None:
    from nsqd_py.net.http import parse_url  # here: 37 ms, which --help does not need

    with bad_options(f"failed to {what} - "):
        parse_url(url)


def _check_client_tls(options: NsqadminOptions) -> None:
    cert = options.http_client_tls_cert
    key = options.http_client_tls_key
    if cert or key:
        tls_options.check_certificate(cert, key, "http-client-tls", level=options.tls_security_level)
    if options.http_client_tls_root_ca_file:
        tls_options.check_authorities(options.http_client_tls_root_ca_file, "--http-client-tls-root-ca-file")


def _check_networks(options: NsqadminOptions) -> None:
    config_blocks = []
    if options.allow_config_from_cidr:
        config_blocks = [options.allow_config_from_cidr]
    blocks_of = {
        "allow-config-from-cidr": config_blocks,
        "acl-http-header-from": [block for block in options.acl_http_header_from if block != UNIX],
    }
    for flag, blocks in blocks_of.items():
        for block in blocks:
            with bad_options(f"failed to parse --{flag} ({block}) - "):
                ipaddress.ip_network(block, strict=False)


def _check_permissions(options: NsqadminOptions) -> None:
    for text in options.topic_permission:
        with bad_options(f"failed to parse --topic-permission ({text}) - "):
            read_rule(text)
    if options.topic_permission and not (options.acl_http_header_from or options.http_auth_file):
        raise BadOptions(
            "--topic-permission needs --acl-http-header-from or --http-auth-file: without them every client "
            "may choose its user name"
        )
