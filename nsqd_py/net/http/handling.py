"""From a request to its answer: its checks, whether it may have to wait, its handler, and its line in the log."""

from __future__ import annotations

from nsqd_py.errors import HttpError
from nsqd_py.net.addresses import host_of
from nsqd_py.net.http import access, answers
from nsqd_py.net.http.access import OPEN
from nsqd_py.net.http.answers import Reply
from nsqd_py.net.http.heads import Head
from nsqd_py.net.http.request import App, Request
from nsqd_py.protocol.names import quote
from nsqd_py.runtime.logs import INFO, Log
from nsqd_py.settings.durations import format_duration

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
    refusal = access.refusal(request.route.access, peer, has_guard=guard is not None, clients_authorize=app.clients_authorize)
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
