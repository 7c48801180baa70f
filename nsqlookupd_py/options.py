"""The settings of nsqlookupd. Names, kinds and defaults are those of Go's; those for TLS are nsqd's."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from nsqd_py.net.tls_options import (
    HTTP_AUTH_SETTING,
    KEY_SETTING,
    REQUIREMENT_SETTINGS,
    ROOT_CA_SETTING,
    check_auth_file,
    check_tls,
    implied_tls_required,
)
from nsqd_py.settings.declaration import BadOptions, Options, Program, Setting
from nsqd_py.settings.durations import SECOND_NS
from nsqd_py.settings.limit_options import LIMIT_SETTINGS, check_not_negative
from nsqd_py.settings.log_options import VERBOSE_SETTING, log_settings
from nsqd_py.settings.types import DURATION, INT, STRING

LOG_PREFIX = "[nsqlookupd] "


def _check_auth_policy(value: str) -> str | None:
    # A misspelt policy would let every client in.
    return None if value in ("", "require-verify") else "--tls-client-auth-policy must be require-verify"


# Each: name, kind, default; then what it does.
# fmt: off
_GENERAL = (*log_settings(LOG_PREFIX), VERBOSE_SETTING)

_ADDRESSES = (
    Setting("tcp-address", STRING, "0.0.0.0:4160",
        "Where nsqd registers: host:port, or the path of a unix socket."),
    Setting("http-address", STRING, "0.0.0.0:4161",
        "Where consumers and tools ask: host:port, or the path of a unix socket."),
    Setting("broadcast-address", STRING, socket.gethostname(),
        "Host name or address under which nsqd reaches this nsqlookupd's HTTP port.",
        default_text="the host name"),
)

_PRODUCERS = (
    Setting("inactive-producer-timeout", DURATION, 300 * SECOND_NS,
        "How long an nsqd is still named after its last sign of life."),
    Setting("tombstone-lifetime", DURATION, 45 * SECOND_NS,
        "How long an nsqd that was tombstoned for a topic is not named for it."),
)

_REGISTRATIONS = (
    Setting("max-topics-and-channels", INT, 200_000,
        "Most topics and channels that are known, together. Names that no nsqd has give way to new ones of nsqds; "
        "0 is any number.", check=check_not_negative),
    Setting("max-registrations", INT, 2_000_000,
        "Most topics and channels that all nsqds register, each counted once for each nsqd that has it; "
        "0 is any number.", check=check_not_negative),
    Setting("max-registrations-per-nsqd", INT, 100_000,
        "Most topics and channels that one nsqd registers; 0 is any number.", check=check_not_negative),
)

_TLS = (
    Setting("tls-cert", STRING, "",
        "Certificate file (PEM); lets clients speak TLS, on the TCP and on the HTTP port."),
    KEY_SETTING,
    Setting("tls-client-auth-policy", STRING, "",
        "Certificates of clients: require-verify (one signed by --tls-root-ca-file).", check=_check_auth_policy),
    ROOT_CA_SETTING,
    *REQUIREMENT_SETTINGS,
    HTTP_AUTH_SETTING,
)
# fmt: on

NSQLOOKUPD = Program(
    "nsqlookupd",
    "nsqlookupd-py",
    "Know which nsqd has which topics and channels, and tell consumers. "
    "Flags may have one dash or two, and their values follow after a space or =.",
    {
        "General": _GENERAL, "Addresses": _ADDRESSES, "Producers": _PRODUCERS,
        "Limits": (*_REGISTRATIONS, *LIMIT_SETTINGS), "TLS": _TLS,
    },  # fmt: skip
)


def read_options(argv: Sequence[str]) -> Options:
    """nsqlookupd's options from its command line, as `Program.read` gives them, settled."""
    options = NSQLOOKUPD.read(argv)
    return options.replace(tls_required=implied_tls_required(options))


def check_options(options: Options) -> None:
    """Raises BadOptions where nsqlookupd cannot start with `options`. Reads the TLS files; changes nothing."""
    options.check()
    if options.tls_client_auth_policy and not options.tls_root_ca_file:
        raise BadOptions("--tls-client-auth-policy=require-verify needs --tls-root-ca-file")
    check_tls(options)
    check_auth_file(options)
