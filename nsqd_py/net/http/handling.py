"""From a request to its answer: access rules and other checks, its handler, and its line in the log.

A client needs for each kind of route:

| route | without `--http-auth-file` | with it |
|---|---|---|
| STATISTICS, PUBLISH | open | open |
| BODIES | open; refused if TCP clients must authorize (`--auth-http-address`) | credentials |
| ADMINISTER | open | credentials |
| SHUT_DOWN | only from this machine | as ADMINISTER |

Requests that a foreign web page may have caused are refused before (`nsqd_py.net.http.browsers`).
"""

from __future__ import annotations

from nsqd_py.errors import HttpError
from nsqd_py.net.addresses import host_of, is_loopback
from nsqd_py.net.http import answers
from nsqd_py.net.http.answers import Reply
from nsqd_py.net.http.heads import Head
from nsqd_py.net.http.router import OPEN, Access, App, Request
from nsqd_py.protocol.names import quote
from nsqd_py.runtime.logs import INFO, Log
from nsqd_py.settings.durations import format_duration

NEEDS_AUTH_FILE = answers.failure(HttpError(403, "HTTP_AUTH_FILE_REQUIRED"))


def access_refusal(access: Access, peer: str, *, has_guard: bool, clients_authorize: bool) -> Reply | None:
    """Return the answer to a request that is refused with any credentials; None if it may run or they decide.

    peer               `host:port` of the client, `@` or empty for a unix socket
    has_guard          True if credentials are required (`--http-auth-file`)
    clients_authorize  True if TCP clients have to AUTH
    """
    if access in OPEN or has_guard:
        return None
    is_refused = not is_local(peer) if access is Access.SHUT_DOWN else access is Access.BODIES and clients_authorize
    return NEEDS_AUTH_FILE if is_refused else None


def is_local(peer: str) -> bool:
    """True for a client on this machine: a loopback address or a unix socket."""
    host = host_of(peer)
    return not host or is_loopback(host)


# Two texts, because `nsqd_py.runtime.logs` limits lines by text: many GETs must not hide changes.
CHANGED = "%d %s %s (%s) %s"
ASKED = "%d %s %s (%s) %.320s"


def check_route(request: Request[App], head: Head, peer: str) -> Reply | None:
    """Return the refusal of a request that follows from its route and head; None if there is none."""
    route = request.route
    if route.access not in OPEN:
        refusal = _check_access(request, head, peer)
        if refusal is not None:
            return refusal
    if route.body.limit is not None:
        request.size_limit = route.body.limit(request.app)
        if head.content_length > request.size_limit:
            return answers.failure(HttpError(413, route.body.too_big))
    if route.check_head is not None:
        try:
            route.check_head(request)
        except HttpError as error:
            return answers.failure(error)
    return None


def _check_access(request: Request[App], head: Head, peer: str) -> Reply | None:
    """Return the refusal of a client that may not use the route. `perform` checks passwords later."""
    app = request.app
    guard = app.admin_guard
    refusal = access_refusal(request.route.access, peer, has_guard=guard is not None, clients_authorize=app.clients_authorize)
    if refusal is not None or guard is None:
        return refusal
    authorization = head.fields.get(b"authorization", b"")
    passes = guard.known(authorization, host_of(peer))
    if passes is None:
        request.credentials = authorization
    elif passes:
        request.user = guard.user_of(authorization)
    return answers.UNAUTHORIZED if passes is False else None


def is_quick(request: Request[App], peer: str) -> bool:
    """True if the request can be answered at once, without a greenlet that may wait."""
    if request.reply is not None:
        return True
    route = request.route
    if not route.is_hot or request.credentials or request.size_bytes > route.quick_bytes:
        return False
    if route.is_quick is not None and not route.is_quick(request):
        return False
    # It does not wait for running handlers: a hot handler ends before the loop continues.
    return not route.is_long or request.app.response_limiter.has_room(peer)


def perform(request: Request[App], peer: str, log: Log) -> Reply:
    """Check the password if there is one, and run the handler. Return the answer. May block."""
    try:
        guard = request.app.admin_guard
        if guard is not None and request.credentials:
            refusal = guard.check(request.credentials, host_of(peer))
            if refusal is not None:
                return refusal
            request.user = guard.user_of(request.credentials)
        return request.route.handler(request)
    except HttpError as error:
        return answers.failure(error)
    except OSError as error:
        log.of_clients.error("failure in %s - %s", request.url, error)
    except Exception as error:  # noqa: BLE001  a bug in one handler costs that request only
        log.of_clients.exception("panic in HTTP handler - %r", error)
    return answers.INTERNAL_ERROR


def log_answer(log: Log, request: Request[App], reply: Reply, peer: str, elapsed_ns: int) -> None:
    """Write the request and its status to the log, if its route is logged."""
    if request.target.is_logged and log.level <= INFO:
        is_change = request.method not in ("GET", "HEAD")
        by = f" by={quote(request.user.encode())}" if request.user else ""
        lines = log if is_change and by else log.of_clients  # no action of a known user is left out
        lines.info(
            CHANGED if is_change else ASKED, reply.status, request.method, request.url, peer, format_duration(elapsed_ns) + by
        )
