"""The settings of nsqd. Names, kinds and defaults are those of Go's nsqd.

Those of a part are declared in its room, in an `options.py` that imports nothing else of it.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from nsqd_py.fsck.options import CheckOptions
from nsqd_py.lease.options import check_lease
from nsqd_py.net import tls_options
from nsqd_py.net.addresses import (
    check_broadcast_address,
    check_listen_address,
    check_peer_address,
    check_peer_addresses,
    check_port,
    optional,
)
from nsqd_py.net.tls_context import client_context
from nsqd_py.protocol.names import TOPOLOGY_AWARE, dead_letter_topic, is_valid_name
from nsqd_py.settings import program
from nsqd_py.settings.declaration import (
    BadOptions,
    Options,
    check_package,
    not_negative,
    positive,
    setting,
    string,
    strings,
    switch,
    urls,
)
from nsqd_py.settings.durations import HOUR_NS, MILLISECOND_NS, MINUTE_NS, SECOND_NS
from nsqd_py.settings.kinds import ByTopic, Kind, by_topic, choice
from nsqd_py.settings.types import BOOL, DURATION, FLOATS, INT, SIZE, STRING
from nsqd_py.settings.values import parse_size
from nsqd_py.standby.options import BackupOptions, StandbyOptions
from nsqd_py.store.options import StoreOptions, check_store

LOG_PREFIX = "[nsqd] "

_NODE_IDS = 1024
AUTO = -1
HOSTNAME = os.uname().nodename
_TIMER = "accepted for compatibility, without effect: one timer serves all deadlines"


def default_node_id(hostname: str, data_path_id: str = "") -> int:
    """Return the node id of a data path on a host. Go's nsqd takes the name of the host alone."""
    try:  # hashlib would load OpenSSL, which takes 3 ms of each start
        from _md5 import md5  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        from hashlib import md5
    digest = md5(f"{hostname}{data_path_id}".encode(), usedforsecurity=False).digest()
    return zlib.crc32(digest) % _NODE_IDS


# --- checks of single values


def _every(check: Callable[[Any], str | None]) -> Callable[[ByTopic[Any]], str | None]:
    """Return the check of a setting by topic: `check` for each of its values."""
    return lambda by_topic: next((problem for problem in map(check, by_topic.values) if problem), None)


def _check_topic_name(value: str) -> str | None:
    if not value or is_valid_name(value.encode()):
        return None
    return "must be a valid topic name"


def _check_auth_addresses(addresses: tuple[str, ...]) -> str | None:
    if addresses:
        from nsqd_py.auth.servers import auth_url  # slow to import: it has an HTTP client

        for address in addresses:
            try:
                auth_url(address)
            except ValueError as error:
                raise ValueError(f"{address}: {error}") from None
    return None


def _check_experiments(names: tuple[str, ...]) -> str | None:
    return None if set(names) <= {TOPOLOGY_AWARE} else f"must be {TOPOLOGY_AWARE}"


# --- the settings


def _parse_rate(text: str) -> int:
    return AUTO if text == "auto" else parse_size(text)


# Bytes a second, or AUTO.
RATE: Kind[int] = Kind(
    "size", _parse_rate, SIZE.from_native, lambda value: "auto" if value == AUTO else str(value)
)


def _check_rate(value: int) -> str | None:
    if value >= 0 or value == AUTO:
        return None
    return "must not be negative"


class _General(program.LogOptions, title="General"):
    log_prefix: str = program.log_prefix_setting(LOG_PREFIX)
    node_id: int | None = setting(
        INT,
        None,
        "Number of this node in [0,1024), part of every message id. It must be different for each nsqd of a cluster.",
        config_key="id",
        check=lambda value: None if value is None or 0 <= value < _NODE_IDS else f"must be [0,{_NODE_IDS})",
        default_text="a hash of the host name and of the data path's random id",
    )
    drain_timeout_ns: int = setting(
        DURATION,
        0,
        "Maximum time to deliver the backlog after SIGUSR1 or POST /drain, before nsqd exits; 0s means no limit.",
        check=not_negative,
    )
    verbose: bool = program.VERBOSE
    worker_id: bool = switch("Deprecated and without effect; use --node-id.", config_key="", hidden=True)
    obsolete_keys = program.OBSOLETE_VERBOSE | {"worker_id": "use id", "max_message_size": "use max_msg_size"}


class _Addresses(Options, title="Addresses"):
    tcp_address: str = setting(
        STRING,
        "0.0.0.0:4150",
        "Address for TCP clients: host:port, or the path of a unix socket.",
        check=check_listen_address,
    )
    http_address: str = setting(
        STRING,
        "0.0.0.0:4151",
        "Address for HTTP clients: host:port, or the path of a unix socket.",
        check=optional(check_listen_address),
    )
    https_address: str = setting(
        STRING, "0.0.0.0:4152", "Address for HTTPS clients: host:port.", check=optional(check_listen_address)
    )
    unix_socket: str = string(
        "Unix socket for TCP clients, in addition to --tcp-address.", check=optional(check_listen_address)
    )
    http_unix_socket: str = string(
        "Unix socket for HTTP clients, in addition to --http-address.", check=optional(check_listen_address)
    )
    broadcast_address: str = setting(
        STRING,
        HOSTNAME,
        "Host name or address of this nsqd for other machines, registered with nsqlookupd.",
        check=check_broadcast_address,
        default_text="the host name",
    )
    broadcast_tcp_port: int = setting(
        INT,
        0,
        "TCP port of this nsqd for other machines; 0 means the port of --tcp-address.",
        check=check_port,
    )
    broadcast_http_port: int = setting(
        INT,
        0,
        "HTTP port of this nsqd for other machines; 0 means the port of --http-address.",
        check=check_port,
    )


class _Discovery(Options, title="Discovery, authorization and topology"):
    lookupd_tcp_address: tuple[str, ...] = strings(
        "TCP address of an nsqlookupd to register with (may be given several times).",
        config_key="nsqlookupd_tcp_addresses",
        check=check_peer_addresses,
    )
    lookupd_tls: bool = switch("Use TLS to nsqlookupds, on their TCP and HTTP ports.")
    lookupd_tls_root_ca_file: str = tls_options.file_of_peer("--client-tls-root-ca-file", "nsqlookupds")
    lookupd_tls_cert: str = tls_options.file_of_peer("--client-tls-cert", "nsqlookupds")
    lookupd_tls_key: str = tls_options.file_of_peer("--client-tls-key", "nsqlookupds")
    lookupd_tls_insecure_skip_verify: bool = tls_options.skip_verify_of_peer("nsqlookupds")
    auth_http_address: tuple[str, ...] = urls(
        "Auth server that decides about the permissions of clients: host:port (with the path /auth) or a URL (may be "
        "given several times).",
        config_key="auth_http_addresses",
        check=_check_auth_addresses,
    )
    auth_http_request_method: str = setting(
        choice({"get": "get", "post": "post"}, word="method"),
        "get",
        "HTTP method of requests to auth servers: get or post.",
    )
    http_client_connect_timeout_ns: int = setting(
        DURATION, 2 * SECOND_NS, "Timeout for connecting to an auth server or nsqlookupd."
    )
    http_client_request_timeout_ns: int = setting(
        DURATION, 5 * SECOND_NS, "Timeout for a response of an auth server or nsqlookupd."
    )
    topology_region: str = string(
        "Region of this nsqd, which contains several zones; sent to nsqlookupd and clients."
    )
    topology_zone: str = string(
        "Zone of this nsqd, a part of the network that fails as one; sent to nsqlookupd and clients."
    )
    enable_experiment: tuple[str, ...] = strings(
        'Enable an experiment ("topology-aware-consumption": serve nearer consumers first; may be given several times).',
        check=_check_experiments,
    )


class _Disk(Options, title="Disk"):
    data_path: str = string("Directory of the message logs; by default the current directory.")
    mem_queue_size: int = setting(
        INT,
        10_000,
        "Number of messages of each topic that are kept in memory, in addition to the log.",
        check=not_negative,
    )
    # 256 MiB: all topics of a node with 100 busy ones keep their 10,000 messages of 200 bytes, and the backlogs of
    # 1,000,000 such messages stay in memory (217 MB).
    mem_queue_bytes: int = setting(
        SIZE,
        256 * 1024 * 1024,
        "Memory in bytes for the messages of all topics and the buffers of connections. Beyond it, messages are read "
        "from the log, and ephemeral topics drop the newest messages.",
        check=not_negative,
    )
    max_bytes_per_file: int = setting(
        SIZE, 100 * 1024 * 1024, "Size in bytes at which a log continues in a new file.", check=not_negative
    )
    sync_every: int = setting(
        INT,
        2_500,
        "Number of messages between two fsyncs of a log. With 1, a publish is answered after its fsync.",
    )
    sync_timeout_ns: int = setting(
        DURATION, 2 * SECOND_NS, "Maximum time from a write to a log to its fsync.", check=not_negative
    )
    retention_time_ns: ByTopic[int] = setting(
        by_topic(DURATION, 0),
        ByTopic(0),
        "Time for which finished messages are kept, so that channels can go back to them; 0s means not at all. With "
        "topic=, for topics with that name or pattern (`logs.*=24h`; may be given several "
        "times).",
        check=_every(not_negative),
    )
    retention_bytes: ByTopic[int] = setting(
        by_topic(SIZE, 0),
        ByTopic(0),
        "Bytes of the newest messages that are kept after they are finished; 0 means none. By topic as --retention-time.",
        check=_every(not_negative),
    )
    max_topic_bytes: ByTopic[int] = setting(
        by_topic(SIZE, 0),
        ByTopic(0),
        "Maximum size in bytes of the log of a topic; beyond it, publishes fail. 0 means no limit. By topic as --retention-time.",
        check=_every(not_negative),
    )
    max_disk_bytes: int = setting(
        SIZE,
        0,
        "Maximum size in bytes of all logs; beyond it, publishes fail. 0 means no limit.",
        check=not_negative,
    )
    min_free_disk_bytes: int = setting(
        SIZE,
        1024 * 1024,
        "Bytes to leave free on the disk; below it, publishes fail. Consumers continue, and their progress is written.",
        check=not_negative,
    )
    scrub_rate: int = setting(
        RATE,
        AUTO,
        "Bytes a second of the logs that are read again to check their checksums, on a primary and on a standby; what is "
        "damaged is repaired from the other one. By default so many that all is checked once a day, at least 1MB. 0 means "
        "that nothing is read again.",
        check=_check_rate,
        default_text="auto",
    )
    queue_scan_selection_count: int = setting(
        INT, 20, "Number of channels in one scan for overdue messages.", step_note=_TIMER, hidden=True
    )
    queue_scan_worker_pool_max: int = setting(
        INT, 4, "Number of workers that scan for overdue messages.", step_note=_TIMER, hidden=True
    )


class _Messages(Options, title="Messages"):
    msg_timeout_ns: int = setting(
        DURATION,
        MINUTE_NS,
        "Time after which a message that is not finished is requeued, unless the consumer asks for another.",
        check=positive,
    )
    max_msg_timeout_ns: int = setting(
        DURATION,
        15 * MINUTE_NS,
        "Maximum time in flight of one delivery, also if the consumer extends it with TOUCH.",
        check=positive,
    )
    max_msg_size: int = setting(SIZE, 1024 * 1024, "Maximum size of a message in bytes.", check=positive)
    max_body_size: int = setting(
        SIZE, 5 * 1024 * 1024, "Maximum size in bytes of the body of a command, such as MPUB.", check=positive
    )
    max_req_timeout_ns: int = setting(DURATION, HOUR_NS, "Maximum delay of a requeue.", check=not_negative)
    max_defer_timeout_ns: int = setting(
        DURATION,
        0,
        "Maximum delay of a deferred publish; 0s means the value of --max-req-timeout.",
        check=not_negative,
    )
    max_attempts: ByTopic[int] = setting(
        by_topic(INT, 0),
        ByTopic(0),
        "Number of attempts after which a message that is not finished is moved to --dead-letter-topic; 0 means no "
        "limit. With topic=, for topics with that name or pattern (`orders.*=5`; may be given several times).",
        check=_every(not_negative),
    )
    dead_letter_topic: ByTopic[str] = setting(
        by_topic(STRING, ""),
        ByTopic(""),
        "Topic for messages after --max-attempts attempts. By topic as --max-attempts.",
        check=_every(_check_topic_name),
        default_text="the topic's name followed by .dead",
    )
    message_ttl_ns: ByTopic[int] = setting(
        by_topic(DURATION, 0),
        ByTopic(0),
        "Time to live: a message that is not finished is dropped at this age, counted from the time when it is due. 0s "
        "means never. By topic as --max-attempts.",
        check=_every(not_negative),
    )


class _Clients(Options, title="Clients"):
    max_heartbeat_interval_ns: int = setting(
        DURATION, MINUTE_NS, "Maximum heartbeat interval that a client may request.", check=not_negative
    )
    max_rdy_count: int = setting(INT, 2_500, "Maximum RDY of a consumer.", check=positive)
    max_output_buffer_size: int = setting(
        SIZE, 64 * 1024, "Maximum output buffer in bytes that a client may request.", check=not_negative
    )
    max_output_buffer_timeout_ns: int = setting(
        DURATION,
        30 * SECOND_NS,
        "Maximum time in the output buffer that a client may request.",
        check=not_negative,
    )
    min_output_buffer_timeout_ns: int = setting(
        DURATION, 25 * MILLISECOND_NS, "Minimum time in the output buffer that a client may request."
    )
    output_buffer_timeout_ns: int = setting(
        DURATION,
        250 * MILLISECOND_NS,
        "Maximum time that output waits in a buffer, unless the client requests another.",
    )
    max_channel_consumers: int = setting(
        INT, 0, "Maximum number of consumers of a channel on this nsqd; 0 means no limit.", check=not_negative
    )
    # A topic with a message takes 10 KB of memory, a channel 8: more than anybody uses, and no more than 1 GB.
    max_topics: int = setting(
        INT,
        50_000,
        "Maximum number of topics, including ephemeral ones; 0 means no limit. Beyond it, no topic is created. Topics "
        "on disk are always loaded.",
        check=not_negative,
    )
    max_new_topics_per_second: int = setting(
        INT,
        100,
        "Number of topics and channels per second that the clients of one address create, after 100 times as many at "
        "once; beyond it, they get an error. 0 means no limit.",
        check=not_negative,
    )
    max_channels_per_topic: int = setting(
        INT,
        10_000,
        "Maximum number of channels of a topic, including ephemeral ones; 0 means no limit.",
        check=not_negative,
    )


class _Metrics(Options, title="Metrics"):
    statsd_address: str = string(
        "UDP address (host:port) of a statsd server that receives metrics.", check=check_peer_address
    )
    statsd_interval_ns: int = setting(DURATION, MINUTE_NS, "Time between two reports to statsd.")
    statsd_mem_stats: bool = setting(
        BOOL, True, "Include memory and garbage collection in the reports to statsd."
    )
    statsd_prefix: str = setting(
        STRING, "nsq.%s", "Prefix of the names of metrics; %s stands for the address of this nsqd."
    )
    statsd_udp_packet_size: int = setting(SIZE, 508, "Maximum size of statsd packets in bytes.")
    statsd_exclude_ephemeral: bool = switch(
        "Exclude ephemeral topics and channels from the reports to statsd."
    )
    e2e_processing_latency_percentile: tuple[float, ...] = setting(
        FLOATS,
        (),
        "Percentiles, in (0,1], of the time from publish to finish (may be given several times).",
        config_key="e2e_processing_latency_percentiles",
        check=lambda values: None if all(0 < value <= 1 for value in values) else "must be in (0,1]",
    )
    e2e_processing_latency_window_time_ns: int = setting(
        DURATION, 10 * MINUTE_NS, "Time span that the percentiles cover."
    )


class _Security(tls_options.ServerTlsOptions, tls_options.ClientTlsOptions, title="TLS and compression"):
    deflate: bool = setting(BOOL, True, "Allow deflate compression.")
    max_deflate_level: int = setting(
        INT,
        6,
        "Maximum deflate level that a client may request, 1 to 9. Higher levels take more processor time.",
        check=lambda value: None if 1 <= value <= 9 else "must be [1,9]",
    )
    snappy: bool = setting(BOOL, True, "Allow snappy compression.")


class NsqdOptions(
    program.ProgramOptions,
    _General,
    _Addresses,
    _Messages,
    _Disk,
    _Clients,
    program.LimitOptions,
    _Discovery,
    _Security,
    _Metrics,
    StandbyOptions,
    StoreOptions,
    BackupOptions,
    CheckOptions,
):
    """The options of nsqd."""


NSQD = program.Program(
    "nsqd",
    "nsqd-py",
    "Receive messages from publishers, store them, and deliver them to consumers. "
    "Flags have one dash or two, and take values after a space or =: durations as 250ms or 1h30m, sizes as 10MB or 64KiB.",
    NsqdOptions,
    removed=program.REMOVED_TIME_LIMITS
    | {
        "check-format": "use --log-format=json, which is the format of the report too",
        "standby-auth-secret-file": "use --standby-secret-file; a standby needs no AUTH",
        "repair": "start nsqd-py on the directory: a start sets aside what is damaged, and delivers the rest",
    },
)


# --- reading and checking them


def settled(options: NsqdOptions) -> NsqdOptions:
    """Return the options with the values that some of them imply for others."""
    changes = {"tls_required": tls_options.implied_tls_required(options)}
    if options.max_defer_timeout_ns == 0:
        changes["max_defer_timeout_ns"] = options.max_req_timeout_ns
    return options.replace(**changes)


def read_options(argv: Sequence[str]) -> NsqdOptions:
    """Return nsqd's options from its command line and config file, settled. Raises as `Program.read`."""
    return settled(NSQD.read(argv))


def check_options(options: NsqdOptions) -> None:
    """Raise BadOptions if nsqd cannot start with `options`. It reads the TLS files and changes nothing."""
    options.check_values()
    ports = ["tcp_address", "http_address"]
    if options.tls_cert:
        ports.append("https_address")
    options.check_distinct(*ports)
    tls_options.check_tls(options)
    if options.e2e_processing_latency_percentile:
        check_package("ddsketch", "latency", "--e2e-processing-latency-percentile")
        if options.e2e_processing_latency_window_time_ns <= 0:
            raise BadOptions("--e2e-processing-latency-window-time must be above 0s")
    if options.auth_http_address:
        check_package("re2", "regex", "--auth-http-address")
    for prefix in ("client", "lookupd", "standby", "lease"):
        _check_client_tls(options, prefix)
    if options.statsd_address and options.statsd_interval_ns <= 0:
        raise BadOptions("--statsd-interval must be above 0s")
    _check_dead_letter_topics(options)
    check_lease(options)
    check_store(options)


def _check_dead_letter_topics(options: NsqdOptions) -> None:
    """Raise BadOptions for topics that dead letters of each other come back to: --max-attempts would have no effect.

    A pattern may match the dead-letter topic of other topics, whose own messages then stay in it. But a topic that one of
    the two options names must have another one.
    """
    topics = options.dead_letter_topic
    limited = [name for name, attempts in options.max_attempts.rules if attempts]
    for name in [*(pattern for pattern, _ in topics.rules), *limited]:
        if topics.of(name) == name:
            raise BadOptions(
                f"--dead-letter-topic of topic {name} must be another topic, got {name}: --max-attempts would have no "
                "effect; by default it is the topic's name followed by .dead"
            )
    for name in filter(None, topics.values):
        circle = _circle_of(options, name)
        if circle:
            raise BadOptions(
                f"--dead-letter-topic: dead letters would move from {' to '.join(circle)}, without an end; give one of these "
                "topics another one, or no --max-attempts"
            )


def _circle_of(options: NsqdOptions, name: str) -> list[str]:
    """Return the topics that a dead letter passes from one topic back to it; [] if it does not come back."""
    passed = [name]
    while options.max_attempts.of(passed[-1]):
        following = options.dead_letter_topic.of(passed[-1]) or dead_letter_topic(passed[-1])
        if following == passed[-1]:  # it has no other one, and its messages stay in it
            return []
        if following in passed:
            return [*passed, following] if following == name else []
        passed.append(following)
    return []


def _check_client_tls(options: NsqdOptions, prefix: str) -> None:
    """Check the files of --client-tls-..., --lookupd-tls-..., --standby-tls-... or --lease-tls-..., as `prefix` says."""
    tls = tls_options.client_tls_family(options, prefix)
    if tls.key and not tls.cert:
        raise BadOptions(f"--{prefix}-tls-key needs --{prefix}-tls-cert")
    if tls.root_ca_file:
        tls_options.check_authorities(tls.root_ca_file, f"--{prefix}-tls-root-ca-file")
    if tls.cert:
        import ssl

        try:
            client_context(
                ssl.SSLContext,
                cert_file=tls.cert,
                key_file=tls.key,
                level=options.tls_security_level,
                verifies=False,
            )
        except OSError as error:
            raise BadOptions(f"--{prefix}-tls-cert: {error}") from error
