"""The settings of nsqlookupd. Names, types and defaults are those of Go's; the TLS settings are nsqd's."""

from __future__ import annotations

import os
from collections.abc import Sequence

from nsqd_py.net.addresses import check_broadcast_address, check_listen_address
from nsqd_py.net.tls_options import ServerTlsOptions, check_auth_policy, check_tls, implied_tls_required
from nsqd_py.settings import program
from nsqd_py.settings.declaration import BadOptions, Options, not_negative, positive, setting, string
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.types import DURATION, INT, STRING

LOG_PREFIX = "[nsqlookupd] "


class _LookupdGeneral(program.LogOptions, title="General"):
    log_prefix: str = program.log_prefix_setting(LOG_PREFIX)
    verbose: bool = program.VERBOSE
    obsolete_keys = program.OBSOLETE_VERBOSE


class _LookupdAddresses(Options, title="Addresses"):
    tcp_address: str = setting(
        STRING,
        "0.0.0.0:4160",
        "Address for nsqds: host:port, or the path of a unix socket.",
        check=check_listen_address,
    )
    http_address: str = setting(
        STRING,
        "0.0.0.0:4161",
        "Address for consumers and tools: host:port, or the path of a unix socket.",
        check=check_listen_address,
    )
    broadcast_address: str = setting(
        STRING,
        os.uname().nodename,
        "Host name or address of this nsqlookupd's HTTP port for nsqds.",
        check=check_broadcast_address,
        default_text="the host name",
    )


class _Producers(Options, title="Producers"):
    inactive_producer_timeout_ns: int = setting(
        DURATION,
        300 * SECOND_NS,
        "Time since the last ping of an nsqd after which it is no longer listed.",
        check=positive,
    )
    tombstone_lifetime_ns: int = setting(
        DURATION,
        45 * SECOND_NS,
        "Time for which an nsqd is not listed for a topic after it was tombstoned.",
        check=not_negative,
    )


class _Registrations(program.LimitOptions, title="Limits"):
    max_topics_and_channels: int = setting(
        INT,
        200_000,
        "Maximum number of topics and channels in total; 0 means no limit. At the limit, new names of nsqds "
        "replace names that no nsqd has.",
        check=not_negative,
    )
    max_registrations: int = setting(
        INT,
        2_000_000,
        "Maximum number of registrations: topics and channels, each counted once for each nsqd that has it; "
        "0 means no limit.",
        check=not_negative,
    )
    max_registrations_per_nsqd: int = setting(
        INT,
        100_000,
        "Maximum number of topics and channels that one nsqd can register; 0 means no limit.",
        check=not_negative,
    )


class _Tls(ServerTlsOptions, title="TLS"):
    tls_cert: str = string("Server certificate (PEM file). Enables TLS on the TCP and HTTP ports.")
    tls_client_auth_policy: str = string(
        "Client certificates: require-verify (signed by --tls-root-ca-file).",
        check=check_auth_policy("require-verify"),
    )


class NsqlookupdOptions(
    program.ProgramOptions, _LookupdGeneral, _LookupdAddresses, _Producers, _Registrations, _Tls
):
    """The options of nsqlookupd."""


NSQLOOKUPD = program.Program(
    "nsqlookupd",
    "nsqlookupd-py",
    "A directory of nsqds, their topics and their channels, for consumers. "
    "Flags have one dash or two; their values follow after a space or =.",
    NsqlookupdOptions,
    removed=program.REMOVED_TIME_LIMITS,
)


def read_options(argv: Sequence[str]) -> NsqlookupdOptions:
    """Return nsqlookupd's options from its command line and config file. Raises as `Program.read`."""
    options = NSQLOOKUPD.read(argv)
    return options.replace(tls_required=implied_tls_required(options))


def check_options(options: NsqlookupdOptions) -> None:
    """Raise BadOptions if nsqlookupd cannot start with `options`. Read the TLS files, and change nothing."""
    options.check_values()
    options.check_distinct("tcp_address", "http_address")
    if options.tls_client_auth_policy and not options.tls_root_ca_file:
        raise BadOptions("--tls-client-auth-policy=require-verify needs --tls-root-ca-file")
    check_tls(options)
