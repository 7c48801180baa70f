"""Settings that several programs have: for the log, and for limits on clients."""

from __future__ import annotations

from nsqd_py.runtime.logs import INFO, TEXT
from nsqd_py.settings.declaration import Options, not_negative, setting
from nsqd_py.settings.durations import MINUTE_NS, SECOND_NS
from nsqd_py.settings.types import BOOL, DURATION, INT, LOG_FORMAT, LOG_LEVEL, STRING


def log_prefix_setting(default: str) -> str:
    """Declare `--log-prefix`, whose default differs by program."""
    return setting(STRING, default, "What every log line begins with.")


# fmt: off
class LogOptions(Options):
    """Settings of the log on standard error. A program overrides `log_prefix`."""

    log_level: int = setting(LOG_LEVEL, INFO,
        "Write log lines of this level and above: debug, info, warn, error, fatal.")
    log_format: str = setting(LOG_FORMAT, TEXT,
        "Form of the log on stderr: text (lines as Go's NSQ writes them), or json (an object a line).")
    log_prefix: str = log_prefix_setting("")


VERBOSE = setting(BOOL, False, "Deprecated, without effect: use --log-level.", config_key="")


class LimitOptions(Options, title="Limits"):
    """The limits of nsqd and nsqlookupd on their clients."""

    max_connections: int = setting(INT, 0,
        "Most connections, TCP and HTTP together; 0 is as many as there are file descriptors for, "
        "but for some that are kept for files.", check=not_negative)
    max_connections_per_address: int = setting(INT, 0,
        "Most connections from one IP address; 0 is any number.", check=not_negative)
    handshake_timeout_ns: int = setting(DURATION, 10 * SECOND_NS,
        "Time that a new TCP connection has to say which protocol it speaks; 0s is any time.", check=not_negative)
    http_head_timeout_ns: int = setting(DURATION, 30 * SECOND_NS,
        "Time that a new HTTP connection has to begin, that the head of a request has from its first byte on, "
        "and that its body has, with a second more for each KiB that came; 0s is any time.", check=not_negative)
    http_idle_timeout_ns: int = setting(DURATION, 11 * MINUTE_NS,
        "Time that an HTTP connection is kept for the next request; longer than clients and balancers "
        "keep theirs, so that no request meets a connection that is closing; 0s is any time.", check=not_negative)
    write_timeout_ns: int = setting(DURATION, MINUTE_NS,
        "Time after which a client is closed that takes nothing of what is sent to it; 0s is any time. "
        "On TCP, heartbeats that are not taken close it earlier.", check=not_negative)
# fmt: on
