"""The settings of nsqd. Names, kinds and defaults are those of Go's nsqd."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from nsqd_py.fsck.options import CheckOptions
from nsqd_py.net.tls_context import client_context
from nsqd_py.net.tls_options import (
    ServerTlsOptions,
    check_authorities,
    check_tls,
    implied_tls_required,
)
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.queue.position import TOPOLOGY_AWARE
from nsqd_py.settings.declaration import BadOptions, Options, not_negative, setting
from nsqd_py.settings.durations import HOUR_NS, MILLISECOND_NS, MINUTE_NS, SECOND_NS
from nsqd_py.settings.groups import VERBOSE, LimitOptions, LogOptions, log_prefix_setting
from nsqd_py.settings.program import Program, ProgramOptions
from nsqd_py.settings.types import BOOL, DURATION, FLOATS, INT, STRING, STRINGS, ByTopic, by_topic

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
    return None if 0 <= value < _NODE_IDS else f"must be [0,{_NODE_IDS})"


def _every(check: Callable[[Any], str | None]) -> Callable[[ByTopic[Any]], str | None]:
    """Return the check of a setting by topic: `check` for each of its values."""
    return lambda by_topic: next((problem for problem in map(check, by_topic.values) if problem), None)


def _check_topic_name(value: str) -> str | None:
    return None if not value or is_valid_name(value.encode()) else "must be a valid topic name"


def _check_deflate_level(value: int) -> str | None:
    return None if 1 <= value <= 9 else "must be [1,9]"


def _check_request_method(value: str) -> str | None:
    return None if value in ("get", "post") else "must be get or post"


def _check_auth_addresses(addresses: tuple[str, ...]) -> str | None:
    if addresses:
        from nsqd_py.auth.servers import auth_url  # slow to import: it has an HTTP client

        for address in addresses:
            try:
                auth_url(address)
            except ValueError as error:
                raise ValueError(f"{address}: {error}") from None
    return None


def _check_percentiles(values: tuple[float, ...]) -> str | None:
    return None if all(0 < value <= 1 for value in values) else "must be in (0,1]"


# --- the settings

_HOSTNAME = socket.gethostname()
_TIMER = "accepted for compatibility; one timer serves all deadlines"

# Each: name, kind, default; then what it does.
# fmt: off
class _General(LogOptions, title="General"):
    log_prefix: str = log_prefix_setting(LOG_PREFIX)
    node_id: int = setting(INT, default_node_id(_HOSTNAME),
        "Number of this node in [0,1024), part of every message id; give each nsqd of a cluster its own.",
        config_key="id", check=_check_node_id, default_text="a hash of the host name")
    drain_timeout_ns: int = setting(DURATION, 0,
        "Longest time to deliver what is there after SIGUSR1 or POST /drain, before nsqd ends; 0s is any time.",
        check=not_negative)
    verbose: bool = VERBOSE
    worker_id: bool = setting(BOOL, False, "Deprecated, without effect: use --node-id.", config_key="")


class _Addresses(Options, title="Addresses"):
    tcp_address: str = setting(STRING, "0.0.0.0:4150",
        "Where TCP clients connect: host:port, or the path of a unix socket.")
    http_address: str = setting(STRING, "0.0.0.0:4151",
        "Where HTTP clients connect: host:port, or the path of a unix socket.")
    https_address: str = setting(STRING, "0.0.0.0:4152", "Where HTTPS clients connect: host:port.")
    unix_socket: str = setting(STRING, "",
        "Path of a unix socket where TCP clients connect too, beside --tcp-address.")
    http_unix_socket: str = setting(STRING, "",
        "Path of a unix socket where HTTP clients connect too, beside --http-address.")
    broadcast_address: str = setting(STRING, _HOSTNAME,
        "Host name or address under which other machines reach this nsqd; nsqlookupd is told it.",
        default_text="the host name")
    broadcast_tcp_port: int = setting(INT, 0,
        "TCP port under which other machines reach it; 0 is the port of --tcp-address.")
    broadcast_http_port: int = setting(INT, 0,
        "HTTP port under which other machines reach it; 0 is the port of --http-address.")


class _Discovery(Options, title="Discovery, authorization and topology"):
    lookupd_tcp_address: tuple[str, ...] = setting(STRINGS, (),
        "TCP address of an nsqlookupd to register with; may be repeated.",
        config_key="nsqlookupd_tcp_addresses")
    lookupd_tls: bool = setting(BOOL, False,
        "Speak TLS with nsqlookupds, on their TCP and on their HTTP port.")
    lookupd_tls_root_ca_file: str = setting(STRING, "",
        "File with the certificate authorities that sign for nsqlookupds (PEM); empty is those of the system.")
    lookupd_tls_cert: str = setting(STRING, "", "Certificate file (PEM) to show to nsqlookupds.")
    lookupd_tls_key: str = setting(STRING, "",
        "Key file of that certificate (PEM); may be empty where the certificate file holds the key.")
    lookupd_tls_insecure_skip_verify: bool = setting(BOOL, False,
        "Take any certificate from nsqlookupds: encrypted, but with whomever.")
    auth_http_address: tuple[str, ...] = setting(STRINGS, (),
        "Auth server to ask what a client may do, as host:port (the path is /auth) or URL; may be repeated.",
        config_key="auth_http_addresses", check=_check_auth_addresses)
    auth_http_request_method: str = setting(STRING, "get",
        "How the auth server is asked: get or post.", check=_check_request_method)
    http_client_connect_timeout_ns: int = setting(DURATION, 2 * SECOND_NS,
        "How long to wait for a connection to an auth server or nsqlookupd.")
    http_client_request_timeout_ns: int = setting(DURATION, 5 * SECOND_NS,
        "How long to wait for an answer of an auth server or nsqlookupd.")
    topology_region: str = setting(STRING, "",
        "Region of this nsqd (several zones), told to nsqlookupd and clients.")
    topology_zone: str = setting(STRING, "",
        "Zone of this nsqd (what fails together), told to nsqlookupd and clients.")
    enable_experiment: tuple[str, ...] = setting(STRINGS, (),
        f'Turn on an experiment ("{TOPOLOGY_AWARE}": nearer consumers are served first); may be repeated.')


class _Disk(Options, title="Disk"):
    data_path: str = setting(STRING, "", "Directory of the message logs; empty is the current directory.")
    mem_queue_size: int = setting(INT, 10_000, "Messages of a topic to keep in memory beside the log.")
    # 256 MiB: all topics of a node with 100 busy ones keep their 10,000 messages of 200 bytes, and the backlogs of
    # 1,000,000 such messages that the bench measures stay in memory (217 MB).
    mem_queue_bytes: int = setting(INT, 256 * 1024 * 1024,
        "Bytes of memory for messages, of all topics together, and for the buffers of connections. Beyond it those "
        "that are in a log are read from there, and ephemeral topics lose the newest.",
        check=not_negative)
    max_bytes_per_file: int = setting(INT, 100 * 1024 * 1024,
        "Size in bytes at which a log goes on in a new file.")
    sync_every: int = setting(INT, 2_500,
        "Messages between two fsyncs of a log; with 1, a publish is answered after its fsync.")
    sync_timeout_ns: int = setting(DURATION, 2 * SECOND_NS,
        "Longest time between two fsyncs of a log that was written to.")
    retention_time_ns: ByTopic[int] = setting(by_topic(DURATION, 0), ByTopic(0),
        "How long finished messages are kept, to go back to; 0s is not at all. With topic= for topics of that name "
        "or pattern (`logs.*=24h`); may be repeated.", check=_every(not_negative))
    retention_bytes: ByTopic[int] = setting(by_topic(INT, 0), ByTopic(0),
        "Bytes of a topic's newest messages that are kept though finished; 0 is none. By topic as --retention-time.",
        check=_every(not_negative))
    max_topic_bytes: ByTopic[int] = setting(by_topic(INT, 0), ByTopic(0),
        "Bytes that the log of a topic may take; beyond it publishes fail. 0 is any number. "
        "By topic as --retention-time.", check=_every(not_negative))
    max_disk_bytes: int = setting(INT, 0,
        "Bytes that all logs together may take; beyond it publishes fail. 0 is any number.",
        check=not_negative)
    min_free_disk_bytes: int = setting(INT, 1024 * 1024,
        "Bytes to leave free on the disk; below it publishes fail, and what consumers do is still written.",
        check=not_negative)
    queue_scan_selection_count: int = setting(INT, 20,
        "Channels that one scan for overdue messages looks at.", step_note=_TIMER)
    queue_scan_worker_pool_max: int = setting(INT, 4,
        "Workers that scan for overdue messages.", step_note=_TIMER)


class _Messages(Options, title="Messages"):
    msg_timeout_ns: int = setting(DURATION, MINUTE_NS,
        "Time that a consumer has to finish a message, unless it asks for another; then it is queued again.")
    max_msg_timeout_ns: int = setting(DURATION, 15 * MINUTE_NS,
        "Longest such time, also with every TOUCH of the message.")
    max_msg_size: int = setting(INT, 1024 * 1024, "Largest message in bytes.")
    max_body_size: int = setting(INT, 5 * 1024 * 1024, "Largest body of one command in bytes, as of an MPUB.")
    max_req_timeout_ns: int = setting(DURATION, HOUR_NS,
        "Longest delay that a consumer may requeue a message with.")
    max_defer_timeout_ns: int = setting(DURATION, 0,
        "Longest delay that a publisher may defer a message by; 0s is the value of --max-req-timeout.")
    max_attempts: ByTopic[int] = setting(by_topic(INT, 0), ByTopic(0),
        "Deliveries after which a message that is not finished goes to --dead-letter-topic; 0 is any number. "
        "With topic= for topics of that name or pattern (`orders.*=5`); may be repeated.",
        check=_every(not_negative))
    dead_letter_topic: ByTopic[str] = setting(by_topic(STRING, ""), ByTopic(""),
        "Topic for messages that were tried --max-attempts times. By topic as --max-attempts.",
        check=_every(_check_topic_name), default_text="the topic's name and .dead")
    message_ttl_ns: ByTopic[int] = setting(by_topic(DURATION, 0), ByTopic(0),
        "Age at which a message that is not finished is dropped, counted from when it is due; 0s is never. "
        "By topic as --max-attempts.", check=_every(not_negative))


class _Clients(Options, title="Clients"):
    max_heartbeat_interval_ns: int = setting(DURATION, MINUTE_NS,
        "Longest time between heartbeats that a client may ask for.")
    max_rdy_count: int = setting(INT, 2_500, "Highest RDY that a consumer may give.")
    max_output_buffer_size: int = setting(INT, 64 * 1024,
        "Largest output buffer in bytes that a client may ask for.")
    max_output_buffer_timeout_ns: int = setting(DURATION, 30 * SECOND_NS,
        "Longest time in the output buffer that a client may ask for.")
    min_output_buffer_timeout_ns: int = setting(DURATION, 25 * MILLISECOND_NS,
        "Shortest time in the output buffer that a client may ask for.")
    output_buffer_timeout_ns: int = setting(DURATION, 250 * MILLISECOND_NS,
        "Upper bound of the time that output waits in a buffer, unless the client asks for another.")
    max_channel_consumers: int = setting(INT, 0,
        "Most consumers that one channel takes on this nsqd; 0 is any number.")
    # A topic with a message takes 10 KB of memory, a channel 8: more than anybody uses, and no more than 1 GB.
    max_topics: int = setting(INT, 50_000,
        "Most topics, ephemeral ones too; no more are made by publishing, subscribing or creating. "
        "Those that are on disk are all loaded. 0 is any number.", check=not_negative)
    max_channels_per_topic: int = setting(INT, 10_000,
        "Most channels of one topic, ephemeral ones too; no more are made. 0 is any number.",
        check=not_negative)


class _Metrics(Options, title="Metrics"):
    statsd_address: str = setting(STRING, "", "UDP address (host:port) of a statsd to send metrics to.")
    statsd_interval_ns: int = setting(DURATION, MINUTE_NS, "Time between two reports to statsd.")
    statsd_mem_stats: bool = setting(BOOL, True, "Report memory and garbage collection to statsd too.")
    statsd_prefix: str = setting(STRING, "nsq.%s",
        "What the names of metrics begin with; %s stands for this nsqd's address.")
    statsd_udp_packet_size: int = setting(INT, 508, "Size in bytes that statsd packets are filled to.")
    statsd_exclude_ephemeral: bool = setting(BOOL, False,
        "Leave ephemeral topics and channels out of the reports to statsd.")
    e2e_processing_latency_percentile: tuple[float, ...] = setting(FLOATS, (),
        "Percentiles, each in (0,1], of the time from publish to finish to keep track of; may be repeated.",
        config_key="e2e_processing_latency_percentiles", check=_check_percentiles)
    e2e_processing_latency_window_time_ns: int = setting(DURATION, 10 * MINUTE_NS,
        "How far back these percentiles look.")


class _Security(ServerTlsOptions, title="TLS and compression"):
    deflate: bool = setting(BOOL, True, "Let clients negotiate deflate compression.")
    max_deflate_level: int = setting(INT, 6,
        "Highest deflate level that a client may ask for, 1 to 9; higher ones cost more processor time.",
        check=_check_deflate_level)
    snappy: bool = setting(BOOL, True, "Let clients negotiate snappy compression.")
# fmt: on


class NsqdOptions(
    ProgramOptions, _General, _Addresses, _Messages, _Disk, _Clients, LimitOptions, _Discovery, _Security, _Metrics,
    CheckOptions,
):  # fmt: skip
    """The options of nsqd."""


NSQD = Program(
    "nsqd",
    "nsqd-py",
    "Take messages from publishers, keep them, and deliver them to consumers. "
    "Flags may have one dash or two, and their values follow after a space or =.",
    NsqdOptions,
)


# --- reading and checking them


def settled(options: NsqdOptions) -> NsqdOptions:
    """Return the options with the values that some of them imply for others."""
    changes = {"tls_required": implied_tls_required(options)}
    if options.max_defer_timeout_ns == 0:
        changes["max_defer_timeout_ns"] = options.max_req_timeout_ns
    return options.replace(**changes)


def read_options(argv: Sequence[str]) -> NsqdOptions:
    """Return nsqd's options from its command line and config file, settled. Raises as `Program.read`."""
    return settled(NSQD.read(argv))


def check_options(options: NsqdOptions) -> None:
    """Raise BadOptions if nsqd cannot start with `options`. It reads the TLS files and changes nothing."""
    options.check()
    check_tls(options)
    _check_lookupd_tls(options)
    if options.statsd_address and options.statsd_interval_ns <= 0:
        raise BadOptions("--statsd-interval must be above 0s")


def _check_lookupd_tls(options: NsqdOptions) -> None:
    authorities, certificate, key = (
        options.lookupd_tls_root_ca_file, options.lookupd_tls_cert, options.lookupd_tls_key,
    )  # fmt: skip
    if key and not certificate:
        raise BadOptions("--lookupd-tls-key needs --lookupd-tls-cert")
    if authorities:
        check_authorities(authorities, "--lookupd-tls-root-ca-file")
    if certificate:
        import ssl

        try:
            client_context(
                ssl.SSLContext,
                cert_file=certificate, key_file=key, level=options.tls_security_level, verifies=False,
            )  # fmt: skip
        except OSError as error:
            raise BadOptions(f"--lookupd-tls-cert: {error}") from error
