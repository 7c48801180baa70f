"""The settings of nsqd. Names, kinds and defaults are those of Go's nsqd."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from nsqd_py.fsck.options import CHECK_SETTINGS
from nsqd_py.net.tls_level import advised, set_level
from nsqd_py.net.tls_options import (
    HTTP_AUTH_SETTING,
    KEY_SETTING,
    REQUIREMENT_SETTINGS,
    ROOT_CA_SETTING,
    check_auth_file,
    check_auth_policy,
    check_authorities,
    check_tls,
    implied_tls_required,
)
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.queue.position import TOPOLOGY_AWARE
from nsqd_py.settings.declaration import BadOptions, Options, Program, Setting
from nsqd_py.settings.durations import HOUR_NS, MILLISECOND_NS, MINUTE_NS, SECOND_NS
from nsqd_py.settings.limit_options import LIMIT_SETTINGS
from nsqd_py.settings.log_options import VERBOSE_SETTING, log_settings
from nsqd_py.settings.topic_rules import ByTopic, by_topic, every_value
from nsqd_py.settings.types import BOOL, DURATION, FLOATS, INT, STRING, STRINGS

__all__ = ["NSQD", "BadOptions", "Options", "check_options", "default_node_id", "read_options", "settled"]

LOG_PREFIX = "[nsqd] "

_NODE_IDS = 1024


def default_node_id(hostname: str) -> int:
    """The id that Go's nsqd gives to a host of that name."""
    try:  # hashlib would load OpenSSL, which takes 3 ms of each start
        from _md5 import md5  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from hashlib import md5
    digest = md5(hostname.encode(), usedforsecurity=False).digest()
    return zlib.crc32(digest) % _NODE_IDS


# --- checks of single values


def _check_node_id(value: int) -> str | None:
    return None if 0 <= value < _NODE_IDS else f"--node-id must be [0,{_NODE_IDS})"


def _check_drain_timeout(value: int) -> str | None:
    return None if value >= 0 else "--drain-timeout must not be negative"


def _not_negative(name: str) -> Callable[[Any], str | None]:
    return lambda value: None if value >= 0 else f"--{name} must not be negative"


def _check_topic_name(value: str) -> str | None:
    return None if not value or is_valid_name(value.encode()) else f"--dead-letter-topic: {value} is no topic's name"


def _check_deflate_level(value: int) -> str | None:
    return None if 1 <= value <= 9 else "--max-deflate-level must be [1,9]"


def _check_request_method(value: str) -> str | None:
    return None if value in ("get", "post") else "--auth-http-request-method must be get or post"


def _check_auth_addresses(addresses: tuple[str, ...]) -> str | None:
    if not addresses:
        return None
    from nsqd_py.auth.servers import auth_url  # only where there is one: it needs an HTTP client

    for address in addresses:
        try:
            auth_url(address)
        except ValueError as error:
            return f"--auth-http-address {address}: {error}"
    return None


def _check_percentiles(values: tuple[float, ...]) -> str | None:
    bad = [value for value in values if not 0 < value <= 1]
    return f"--e2e-processing-latency-percentile must be in (0,1], not {bad[0]}" if bad else None


# --- the settings

_HOSTNAME = socket.gethostname()
_TIMER = "accepted for compatibility; one timer serves all deadlines"

# Each: name, kind, default; then what it does.
# fmt: off
_GENERAL = (
    *log_settings(LOG_PREFIX),
    Setting("node-id", INT, default_node_id(_HOSTNAME),
        "Number of this node in [0,1024), part of every message id; give each nsqd of a cluster its own.",
        config_key="id", check=_check_node_id, default_text="a hash of the host name"),
    Setting("drain-timeout", DURATION, 0,
        "Longest time to deliver what is there after SIGUSR1 or POST /drain, before nsqd ends; 0s is any time.",
        check=_check_drain_timeout),
    VERBOSE_SETTING,
    Setting("worker-id", BOOL, False, "Deprecated, without effect: use --node-id.", config_key=""),
)

_ADDRESSES = (
    Setting("tcp-address", STRING, "0.0.0.0:4150",
        "Where TCP clients connect: host:port, or the path of a unix socket."),
    Setting("http-address", STRING, "0.0.0.0:4151",
        "Where HTTP clients connect: host:port, or the path of a unix socket."),
    Setting("https-address", STRING, "0.0.0.0:4152", "Where HTTPS clients connect: host:port."),
    Setting("unix-socket", STRING, "",
        "Path of a unix socket where TCP clients connect too, beside --tcp-address."),
    Setting("http-unix-socket", STRING, "",
        "Path of a unix socket where HTTP clients connect too, beside --http-address."),
    Setting("broadcast-address", STRING, _HOSTNAME,
        "Host name or address under which other machines reach this nsqd; nsqlookupd is told it.",
        default_text="the host name"),
    Setting("broadcast-tcp-port", INT, 0,
        "TCP port under which other machines reach it; 0 is the port of --tcp-address."),
    Setting("broadcast-http-port", INT, 0,
        "HTTP port under which other machines reach it; 0 is the port of --http-address."),
)

_LOOKUP = (
    Setting("lookupd-tcp-address", STRINGS, (),
        "TCP address of an nsqlookupd to register with; may be repeated.",
        config_key="nsqlookupd_tcp_addresses"),
    Setting("lookupd-tls", BOOL, False,
        "Speak TLS with nsqlookupds, on their TCP and on their HTTP port."),
    Setting("lookupd-tls-root-ca-file", STRING, "",
        "File with the certificate authorities that sign for nsqlookupds (PEM); empty is those of the system."),
    Setting("lookupd-tls-cert", STRING, "", "Certificate file (PEM) to show to nsqlookupds."),
    Setting("lookupd-tls-key", STRING, "",
        "Key file of that certificate (PEM); may be empty where the certificate file holds the key."),
    Setting("lookupd-tls-insecure-skip-verify", BOOL, False,
        "Take any certificate from nsqlookupds: encrypted, but with whomever."),
    Setting("auth-http-address", STRINGS, (),
        "Auth server to ask what a client may do, as host:port (the path is /auth) or URL; may be repeated.",
        config_key="auth_http_addresses", check=_check_auth_addresses),
    Setting("auth-http-request-method", STRING, "get",
        "How the auth server is asked: get or post.", check=_check_request_method),
    Setting("http-client-connect-timeout", DURATION, 2 * SECOND_NS,
        "How long to wait for a connection to an auth server or nsqlookupd."),
    Setting("http-client-request-timeout", DURATION, 5 * SECOND_NS,
        "How long to wait for an answer of an auth server or nsqlookupd."),
    Setting("topology-region", STRING, "",
        "Region of this nsqd (several zones), told to nsqlookupd and clients."),
    Setting("topology-zone", STRING, "",
        "Zone of this nsqd (what fails together), told to nsqlookupd and clients."),
    Setting("enable-experiment", STRINGS, (),
        f'Turn on an experiment ("{TOPOLOGY_AWARE}": nearer consumers are served first); may be repeated.'),
)

_DISK = (
    Setting("data-path", STRING, "", "Directory of the message logs; empty is the current directory."),
    Setting("mem-queue-size", INT, 10_000, "Messages of a topic to keep in memory beside the log."),
    # 256 MiB: all topics of a node with 100 busy ones keep their 10,000 messages of 200 bytes, and the backlogs of
    # 1,000,000 such messages that the bench measures stay in memory (217 MB).
    Setting("mem-queue-bytes", INT, 256 * 1024 * 1024,
        "Bytes of memory for messages, of all topics together, and for the buffers of connections. Beyond it those "
        "that are in a log are read from there, and ephemeral topics lose the newest.",
        check=_not_negative("mem-queue-bytes")),
    Setting("max-bytes-per-file", INT, 100 * 1024 * 1024,
        "Size in bytes at which a log goes on in a new file."),
    Setting("sync-every", INT, 2_500,
        "Messages between two fsyncs of a log; with 1, a publish is answered after its fsync."),
    Setting("sync-timeout", DURATION, 2 * SECOND_NS,
        "Longest time between two fsyncs of a log that was written to."),
    Setting("retention-time", by_topic(DURATION, 0), ByTopic(0),
        "How long finished messages are kept, to go back to; 0s is not at all. With topic= for topics of that name "
        "or pattern (`logs.*=24h`); may be repeated.", check=every_value(_not_negative("retention-time"))),
    Setting("retention-bytes", by_topic(INT, 0), ByTopic(0),
        "Bytes of a topic's newest messages that are kept though finished; 0 is none. By topic as --retention-time.",
        check=every_value(_not_negative("retention-bytes"))),
    Setting("max-topic-bytes", by_topic(INT, 0), ByTopic(0),
        "Bytes that the log of a topic may take; beyond it publishes fail. 0 is any number. "
        "By topic as --retention-time.", check=every_value(_not_negative("max-topic-bytes"))),
    Setting("max-disk-bytes", INT, 0,
        "Bytes that all logs together may take; beyond it publishes fail. 0 is any number.",
        check=_not_negative("max-disk-bytes")),
    Setting("min-free-disk-bytes", INT, 1024 * 1024,
        "Bytes to leave free on the disk; below it publishes fail, and what consumers do is still written.",
        check=_not_negative("min-free-disk-bytes")),
    Setting("queue-scan-selection-count", INT, 20,
        "Channels that one scan for overdue messages looks at.", step_note=_TIMER),
    Setting("queue-scan-worker-pool-max", INT, 4,
        "Workers that scan for overdue messages.", step_note=_TIMER),
)

_MESSAGES = (
    Setting("msg-timeout", DURATION, MINUTE_NS,
        "Time that a consumer has to finish a message, unless it asks for another; then it is queued again."),
    Setting("max-msg-timeout", DURATION, 15 * MINUTE_NS,
        "Longest such time, also with every TOUCH of the message."),
    Setting("max-msg-size", INT, 1024 * 1024, "Largest message in bytes."),
    Setting("max-body-size", INT, 5 * 1024 * 1024, "Largest body of one command in bytes, as of an MPUB."),
    Setting("max-req-timeout", DURATION, HOUR_NS,
        "Longest delay that a consumer may requeue a message with."),
    Setting("max-defer-timeout", DURATION, 0,
        "Longest delay that a publisher may defer a message by; 0s is the value of --max-req-timeout."),
    Setting("max-attempts", by_topic(INT, 0), ByTopic(0),
        "Deliveries after which a message that is not finished goes to --dead-letter-topic; 0 is any number. "
        "With topic= for topics of that name or pattern (`orders.*=5`); may be repeated.",
        check=every_value(_not_negative("max-attempts"))),
    Setting("dead-letter-topic", by_topic(STRING, ""), ByTopic(""),
        "Topic for messages that were tried --max-attempts times. By topic as --max-attempts.",
        check=every_value(_check_topic_name), default_text="the topic's name and .dead"),
    Setting("message-ttl", by_topic(DURATION, 0), ByTopic(0),
        "Age at which a message that is not finished is dropped, counted from when it is due; 0s is never. "
        "By topic as --max-attempts.", check=every_value(_not_negative("message-ttl"))),
)

_CLIENTS = (
    Setting("max-heartbeat-interval", DURATION, MINUTE_NS,
        "Longest time between heartbeats that a client may ask for."),
    Setting("max-rdy-count", INT, 2_500, "Highest RDY that a consumer may give."),
    Setting("max-output-buffer-size", INT, 64 * 1024,
        "Largest output buffer in bytes that a client may ask for."),
    Setting("max-output-buffer-timeout", DURATION, 30 * SECOND_NS,
        "Longest time in the output buffer that a client may ask for."),
    Setting("min-output-buffer-timeout", DURATION, 25 * MILLISECOND_NS,
        "Shortest time in the output buffer that a client may ask for."),
    Setting("output-buffer-timeout", DURATION, 250 * MILLISECOND_NS,
        "Upper bound of the time that output waits in a buffer, unless the client asks for another."),
    Setting("max-channel-consumers", INT, 0,
        "Most consumers that one channel takes on this nsqd; 0 is any number."),
    # A topic with a message takes 10 KB of memory, a channel 8: more than anybody uses, and no more than 1 GB.
    Setting("max-topics", INT, 50_000,
        "Most topics, ephemeral ones too; no more are made by publishing, subscribing or creating. "
        "Those that are on disk are all loaded. 0 is any number.", check=_not_negative("max-topics")),
    Setting("max-channels-per-topic", INT, 10_000,
        "Most channels of one topic, ephemeral ones too; no more are made. 0 is any number.",
        check=_not_negative("max-channels-per-topic")),
)

_STATSD = (
    Setting("statsd-address", STRING, "", "UDP address (host:port) of a statsd to send metrics to."),
    Setting("statsd-interval", DURATION, MINUTE_NS, "Time between two reports to statsd."),
    Setting("statsd-mem-stats", BOOL, True, "Report memory and garbage collection to statsd too."),
    Setting("statsd-prefix", STRING, "nsq.%s",
        "What the names of metrics begin with; %s stands for this nsqd's address."),
    Setting("statsd-udp-packet-size", INT, 508, "Size in bytes that statsd packets are filled to."),
    Setting("statsd-exclude-ephemeral", BOOL, False,
        "Leave ephemeral topics and channels out of the reports to statsd."),
    Setting("e2e-processing-latency-percentile", FLOATS, (),
        "Percentiles, each in (0,1], of the time from publish to finish to keep track of; may be repeated.",
        config_key="e2e_processing_latency_percentiles", check=_check_percentiles),
    Setting("e2e-processing-latency-window-time", DURATION, 10 * MINUTE_NS,
        "How far back these percentiles look."),
)

_SECURITY = (
    Setting("tls-cert", STRING, "", "Certificate file (PEM); turns TLS on."),
    KEY_SETTING,
    Setting("tls-client-auth-policy", STRING, "",
        "Certificates of clients: require (any), or require-verify (signed by --tls-root-ca-file).",
        check=check_auth_policy),
    ROOT_CA_SETTING,
    *REQUIREMENT_SETTINGS,
    HTTP_AUTH_SETTING,
    Setting("deflate", BOOL, True, "Let clients negotiate deflate compression."),
    Setting("max-deflate-level", INT, 6,
        "Highest deflate level that a client may ask for, 1 to 9; higher ones cost more processor time.",
        check=_check_deflate_level),
    Setting("snappy", BOOL, True, "Let clients negotiate snappy compression."),
)
# fmt: on

NSQD = Program(
    "nsqd",
    "nsqd-py",
    "Take messages from publishers, keep them, and deliver them to consumers. "
    "Flags may have one dash or two, and their values follow after a space or =.",
    {
        "General": _GENERAL,
        "Addresses": _ADDRESSES,
        "Messages": _MESSAGES,
        "Disk": _DISK,
        "Clients": _CLIENTS,
        "Limits": LIMIT_SETTINGS,
        "Discovery, authorization and topology": _LOOKUP,
        "TLS and compression": _SECURITY,
        "Metrics": _STATSD,
        "Looking at a data directory": CHECK_SETTINGS,
    },
)


# --- reading and checking them


def settled(options: Options) -> Options:
    """The options with what some of them imply for others."""
    changes = {"tls_required": implied_tls_required(options)}
    if options.max_defer_timeout_ns == 0:
        changes["max_defer_timeout_ns"] = options.max_req_timeout_ns
    return options.replace(**changes)


def read_options(argv: Sequence[str]) -> Options:
    """nsqd's options from its command line, as `Program.read` gives them, settled."""
    return settled(NSQD.read(argv))


def check_options(options: Options) -> None:
    """Raises BadOptions where nsqd cannot start with `options`. Reads the TLS files; changes nothing."""
    options.check()
    check_tls(options)
    check_auth_file(options)
    _check_lookupd_tls(options)
    if options.statsd_address and options.statsd_interval_ns <= 0:
        raise BadOptions("--statsd-interval must be above 0s")


def _check_lookupd_tls(options: Options) -> None:
    certificate, key = options.lookupd_tls_cert, options.lookupd_tls_key
    if options.lookupd_tls_root_ca_file:
        check_authorities(options.lookupd_tls_root_ca_file, "--lookupd-tls-root-ca-file")
    if key and not certificate:
        raise BadOptions("--lookupd-tls-key needs --lookupd-tls-cert")
    if certificate:
        import ssl

        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            set_level(context, options.tls_security_level)
            context.load_cert_chain(certificate, key or None, password="")
        except OSError as error:
            files = f"--lookupd-tls-cert {certificate}" + (f" with --lookupd-tls-key {key}" if key else "")
            raise BadOptions(f"cannot use {files}: {advised(error.strerror)}") from error
