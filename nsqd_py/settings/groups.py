"""Settings that several programs have: for the log, and for limits on clients."""

from __future__ import annotations

from nsqd_py.runtime.logs import INFO, JSON, LEVELS, TEXT
from nsqd_py.settings.declaration import Options, not_negative, setting
from nsqd_py.settings.durations import MINUTE_NS, SECOND_NS
from nsqd_py.settings.types import BOOL, DURATION, INT, STRING, Kind, choice

LOG_LEVEL: Kind[int] = choice(LEVELS, word="level")


def log_prefix_setting(default: str) -> str:
    """Declare `--log-prefix`, whose default differs by program."""
    return setting(STRING, default, "Prefix of every log line.")


class LogOptions(Options):
    """Settings of the log on standard error. A program overrides `log_prefix`."""

    log_level: int = setting(LOG_LEVEL, INFO, "Write log lines of this level and above: debug, info, warn, error, fatal.")
    log_format: str = setting(
        choice({TEXT: TEXT, JSON: JSON}, word="format"),
        TEXT,
        "Format of the log on stderr: text (lines as Go's NSQ writes them) or json (one object a line).",
    )
    log_prefix: str = log_prefix_setting("")


VERBOSE = setting(BOOL, False, "Deprecated and without effect; use --log-level.", config_key="")
OBSOLETE_VERBOSE = {"verbose": "use log_level"}


class LimitOptions(Options, title="Limits"):
    """The limits of nsqd and nsqlookupd on their clients."""

    max_connections: int = setting(
        INT,
        0,
        "Maximum number of TCP and HTTP connections; 0 means all file descriptors except a reserve for files.",
        check=not_negative,
    )
    max_connections_per_address: int = setting(
        INT, 0, "Maximum number of connections from one IP address; 0 means no limit.", check=not_negative
    )
    handshake_timeout_ns: int = setting(
        DURATION,
        10 * SECOND_NS,
        "Timeout for the first four bytes of a TCP connection, which name its protocol; 0s means none.",
        check=not_negative,
    )
    http_head_timeout_ns: int = setting(
        DURATION,
        30 * SECOND_NS,
        "Timeout for the first byte of a request, for its headers, and for its body. The timeout of a body grows by "
        "one second with each KiB received. 0s means none.",
        check=not_negative,
    )
    http_idle_timeout_ns: int = setting(
        DURATION,
        11 * MINUTE_NS,
        "Time after which an idle HTTP connection is closed; 0s means never. It must be longer than in clients and "
        "load balancers, or they will send requests on connections that are being closed.",
        check=not_negative,
    )
    write_timeout_ns: int = setting(
        DURATION,
        MINUTE_NS,
        "Time after which a client that does not read is disconnected; 0s means never. TCP clients that do not "
        "answer heartbeats are disconnected earlier.",
        check=not_negative,
    )
