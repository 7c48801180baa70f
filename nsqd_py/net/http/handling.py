"""From the head of a request to its answer: what HTTP forbids, access rules, its handler, and its line in the log.

A client needs for each kind of route:

| route | without `--http-auth-file` | with it |
|---|---|---|
| STATISTICS, PUBLISH | open | open |
| BODIES | open; refused if TCP clients must authorize (`--auth-http-address`) | credentials |
| ADMINISTER | open | credentials |
| SHUT_DOWN | only from this machine, not through a proxy | as ADMINISTER |

Requests that a foreign web page may have caused are refused before (`nsqd_py.net.http.browsers`).
"""

from __future__ import annotations

import re

from nsqd_py.errors import HttpError
from nsqd_py.net.addresses import host_of, is_loopback
from nsqd_py.net.http import answers, browsers, proxies
from nsqd_py.net.http.answers import Reply, plain, refused_by_http
from nsqd_py.net.http.failures import RETRY_AFTER, UNAUTHORIZED
from nsqd_py.net.http.router import Access, App, Request
from nsqd_py.protocol.names import quote
from nsqd_py.runtime.logs.bugs import report_bug
from nsqd_py.runtime.logs.daemon_log import INFO, Log
from nsqd_py.settings.durations import format_duration

MAX_HEAD_BYTES = (1 << 20) + 4096  # Go's default, with its slack

_RELEVANT = {
    b"authorization",
    b"content-length",
    b"expect",
    b"host",
    b"transfer-encoding",
    *browsers.HEADERS,
    *proxies.HEADERS,
}
# The first one counts, as in Go.
_MAY_BE_DOUBLED = {
    b"accept-language",
    b"authorization",
    b"referer",
    b"sec-fetch-mode",
    b"user-agent",
    *proxies.HEADERS,
}
_HOST = re.compile(rb"[A-Za-z0-9!$%&()*+,\-.:;='\[\]_~]*")
_VERSIONS = {"1.0", "1.1"}

NEEDS_AUTH_FILE = answers.failure(HttpError(403, "HTTP_AUTH_FILE_REQUIRED"))

# Two texts, because `nsqd_py.runtime.logs.daemon_log` limits lines by text: many GETs must not hide changes.
CHANGED = "%d %s %s (%s) %s"
ASKED = "%d %s %s (%s) %.320s"


class Refused(Exception):
    """The head is invalid or not supported. The connection sends `reply` and ends."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


class Head:
    """The head of a request, which the parser fills.

    content_length  size of the body in bytes; 0 without that header
    fields          the relevant headers, by name in lower case
    """

    __slots__ = (
        "_doubled",
        "content_length",
        "fields",
        "keep_alive",
        "method",
        "size_bytes",
        "url",
        "version",
    )

    def __init__(self) -> None:
        self.url = b""
        self.method = ""
        self.version = ""
        self.keep_alive = False
        self.size_bytes = 0
        self.content_length = 0
        self.fields: dict[bytes, bytes] = {}
        self._doubled = False

    def add(self, name: bytes, value: bytes) -> None:
        """Add a header. The parser has checked that a content length is a number below 2**64."""
        self.size_bytes += len(name) + len(value) + 4
        name = name.lower()
        if name in _RELEVANT:
            if name in self.fields:
                if name in _MAY_BE_DOUBLED:
                    return
                self._doubled = True
            self.fields[name] = value
            if name == b"content-length":
                self.content_length = int(value.lstrip(b"0 ") or b"0")  # int() raises for thousands of zeros

    @property
    def is_chunked(self) -> bool:
        return b"transfer-encoding" in self.fields

    @property
    def has_body(self) -> bool:
        return self.is_chunked or self.content_length > 0

    @property
    def expects_continue(self) -> bool:
        """True if the client sends the body only after 100 Continue."""
        return b"expect" in self.fields and self.has_body and self.version == "1.1"

    @property
    def is_plain(self) -> bool:
        """True if only URL and body matter for the answer, and Content-Length gives the body's size."""
        is_usual = self.version == "1.1" and self.keep_alive and b"expect" not in self.fields
        return is_usual and self.content_length > 0 and not self.is_chunked

    def check(self) -> None:
        """Raise Refused, with the answer of Go's HTTP server, if the head is invalid or not supported."""
        fields = self.fields
        if self.version == "0.9":  # also the parser's version of a request line without one
            raise Refused(refused_by_http(400))
        if self.version not in _VERSIONS:
            raise Refused(refused_by_http(505, "unsupported protocol version"))
        if self.size_bytes + len(self.url) > MAX_HEAD_BYTES:
            raise Refused(refused_by_http(431))
        if self._doubled:
            raise Refused(refused_by_http(400))
        if b"host" not in fields and self.version == "1.1" and self.method != "CONNECT":
            raise Refused(refused_by_http(400, "missing required Host header"))
        if _HOST.fullmatch(fields.get(b"host", b"")) is None:
            raise Refused(refused_by_http(400, "malformed Host header"))
        if fields.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            raise Refused(plain(501, "Unsupported transfer encoding"))
        if fields.get(b"expect", b"100-continue").lower() != b"100-continue":
            raise Refused(Reply(417))

    def without_upgrade(self) -> bytes:
        """Return the head's relevant parts as bytes, without the header Upgrade, at which the parser would stop."""
        lines = [f"{self.method} ".encode() + self.url + b" HTTP/1.1"]
        lines += [name + b": " + value for name, value in self.fields.items()]
        if not self.keep_alive:
            lines.append(b"Connection: close")
        return b"\r\n".join(lines) + b"\r\n\r\n"


# ---- access, handler, log


def access_refusal(
    access: Access, peer: str, *, has_guard: bool, clients_authorize: bool, is_passed_on: bool = False
) -> Reply | None:
    """Return the answer to a request that is refused with any credentials; None if it may run or they decide.

    peer               `host:port` of the client, `@` or empty for a unix socket
    has_guard          True if credentials are required (`--http-auth-file`)
    clients_authorize  True if TCP clients have to AUTH
    is_passed_on       True if a proxy passed the request on: then the peer is the proxy, and the client may be anybody
    """
    if access.is_open or has_guard:
        return None
    if access is Access.SHUT_DOWN:
        is_refused = is_passed_on or not is_local(peer)
    else:
        is_refused = access is Access.BODIES and clients_authorize
    return NEEDS_AUTH_FILE if is_refused else None


def is_local(peer: str) -> bool:
    """True for a client on this machine: a loopback address or a unix socket."""
    host = host_of(peer)
    return not host or is_loopback(host)


def check_route(request: Request[App], head: Head, peer: str) -> Reply | None:
    """Return the refusal of a request that follows from its route and head; None if there is none."""
    route = request.route
    if not route.access.is_open:
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
    refusal = access_refusal(
        request.route.access,
        peer,
        has_guard=guard is not None,
        clients_authorize=app.clients_authorize,
        is_passed_on=proxies.is_passed_on(head.fields),
    )
    if refusal is not None or guard is None:
        return refusal
    authorization = head.fields.get(b"authorization", b"")
    passes = guard.known(authorization, host_of(peer))
    if passes is None:
        request.credentials = authorization
    elif passes:
        request.user = guard.user_of(authorization)
    return UNAUTHORIZED if passes is False else None


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
        if isinstance(error, TimeoutError):
            return answers.failure(HttpError(503, f"TIMEOUT: {error.strerror or error}"), RETRY_AFTER)
        return answers.failure(HttpError(500, f"INTERNAL_ERROR: {error.strerror or error}"))
    except Exception as error:  # noqa: BLE001  a bug in one handler costs that request only
        return answers.failure(HttpError(500, f"INTERNAL_ERROR: {report_bug(log, 'HTTP handler', error)}"))


def log_answer(log: Log, request: Request[App], reply: Reply, peer: str, elapsed_ns: int) -> None:
    """Write the request and its status to the log, if its route is logged."""
    if request.target.is_logged and log.level <= INFO:
        is_change = request.method not in ("GET", "HEAD")
        by = f" by={quote(request.user.encode())}" if request.user else ""
        lines = log if is_change and by else log.of_clients  # no action of a known user is left out
        lines.info(
            CHANGED if is_change else ASKED,
            reply.status,
            request.method,
            request.url,
            peer,
            format_duration(elapsed_ns) + by,
        )
