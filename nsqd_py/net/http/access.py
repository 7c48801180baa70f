"""Access rules of the HTTP APIs: what a client needs to use each kind of route.

| route | without `--http-auth-file` | with it |
|---|---|---|
| FIGURES, PUBLISH | open | open |
| BODIES | open; refused if TCP clients must authorize (`--auth-http-address`) | credentials |
| ADMINISTER | open | credentials |
| SHUT_DOWN | only from this machine | as ADMINISTER |

Requests that a foreign web page may have caused are refused before (`nsqd_py.net.http.browsers`).
"""

from __future__ import annotations

from enum import Enum

from nsqd_py.errors import HttpError
from nsqd_py.net.addresses import host_of, is_loopback
from nsqd_py.net.http import answers
from nsqd_py.net.http.answers import Reply


class Access(Enum):
    """The kind of a route. Every route has one."""

    FIGURES = "read figures and names"
    PUBLISH = "publish"
    BODIES = "read messages"
    ADMINISTER = "administer"
    SHUT_DOWN = "end the process"


# Go's NSQ leaves these open, and its clients need them.
OPEN = frozenset({Access.FIGURES, Access.PUBLISH})
NEEDS_AUTH_FILE = answers.failure(HttpError(403, "HTTP_AUTH_FILE_REQUIRED"))


def refusal(access: Access, peer: str, *, has_guard: bool, clients_authorize: bool) -> Reply | None:
    """Return the answer to a request that is refused with any credentials; None if it may run or they decide.

    peer               `host:port` of the client, `@` or empty for a unix socket
    has_guard          True if credentials are required (`--http-auth-file`)
    clients_authorize  True if TCP clients have to AUTH
    """
    if access in OPEN or has_guard:
        return None
    if access is Access.BODIES and clients_authorize:
        return NEEDS_AUTH_FILE
    if access is Access.SHUT_DOWN and not is_local(peer):
        return NEEDS_AUTH_FILE
    return None


def is_local(peer: str) -> bool:
    """True for a client on this machine: a loopback address or a unix socket."""
    host = host_of(peer)
    return not host or is_loopback(host)
