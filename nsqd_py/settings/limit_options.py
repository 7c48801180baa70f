"""The settings that every server of NSQ has against abuse."""

from __future__ import annotations

from nsqd_py.settings.declaration import Setting
from nsqd_py.settings.durations import MINUTE_NS, SECOND_NS
from nsqd_py.settings.types import DURATION, INT


def check_not_negative(value: int) -> str | None:
    """Return what is wrong with a limit, or None."""
    return None if value >= 0 else "limits must not be negative; 0 is no limit"


# fmt: off
LIMIT_SETTINGS = (
    Setting("max-connections", INT, 0,
        "Most connections, TCP and HTTP together; 0 is as many as there are file descriptors for, "
        "but for some that are kept for files.", check=check_not_negative),
    Setting("max-connections-per-address", INT, 0,
        "Most connections from one IP address; 0 is any number.", check=check_not_negative),
    Setting("handshake-timeout", DURATION, 10 * SECOND_NS,
        "Time that a new TCP connection has to say which protocol it speaks; 0s is any time.",
        check=check_not_negative),
    Setting("http-head-timeout", DURATION, 30 * SECOND_NS,
        "Time that a new HTTP connection has to begin, that the head of a request has from its first byte on, "
        "and that its body has, with a second more for each KiB that came; 0s is any time.",
        check=check_not_negative),
    Setting("http-idle-timeout", DURATION, 11 * MINUTE_NS,
        "Time that an HTTP connection is kept for the next request; longer than clients and balancers "
        "keep theirs, so that no request meets a connection that is closing; 0s is any time.",
        check=check_not_negative),
    Setting("write-timeout", DURATION, MINUTE_NS,
        "Time after which a client is closed that takes nothing of what is sent to it; 0s is any time. "
        "On TCP, heartbeats that are not taken close it earlier.", check=check_not_negative),
)
# fmt: on
