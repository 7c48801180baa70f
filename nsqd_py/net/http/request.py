"""One request, as handlers see it, and the query of its URL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from nsqd_py.errors import HttpError
from nsqd_py.runtime.logs import Log

if TYPE_CHECKING:
    from nsqd_py.net.http.answers import Reply
    from nsqd_py.net.http.browsers import KnownHosts
    from nsqd_py.net.http.guard import Guard
    from nsqd_py.net.http.response_limiter import ResponseLimiter
    from nsqd_py.net.http.router import Route, Target

UNLIMITED = 1 << 63
_MOST_PARTS = 64


class Application(Protocol):
    """The program behind an HTTP API.

    admin_guard        checks credentials for admin paths; None without `--http-auth-file`
    clients_authorize  True if TCP clients have to AUTH
    known_hosts        the host names that browsers may use
    response_limiter   bounds the memory of long answers
    """

    log: Log
    http_clients: dict[Any, None]
    admin_guard: Guard | None
    clients_authorize: bool
    known_hosts: KnownHosts
    response_limiter: ResponseLimiter


App = TypeVar("App", bound=Application)


class Request(Generic[App]):
    """A request whose head is read; its body is added to `parts`.

    connection   the client's connection
    ticket       index of the answer in the connection's output buffer
    reply        the answer if it is known before a handler runs
    credentials  an Authorization header whose password must be checked first; else empty
    user         the name for the log of who may use an admin path, once that is known; else empty
    is_unread    True if the rest of the body will not be read, so that the connection must end
    """

    __slots__ = (
        "app",
        "connection",
        "credentials",
        "is_http_1_0",
        "is_unread",
        "keep_alive",
        "method",
        "parts",
        "reply",
        "size_bytes",
        "size_limit",
        "target",
        "ticket",
        "url",
        "user",
    )

    def __init__(
        self, app: App, connection: Any, method: str, url: str, target: Target[App], is_http_1_0: bool, keep_alive: bool
    ) -> None:
        self.app = app
        self.connection = connection
        self.method = method
        self.url = url
        self.target = target
        self.is_http_1_0 = is_http_1_0
        self.keep_alive = keep_alive
        self.is_unread = False
        self.credentials = b""
        self.user = ""
        self.reply: Reply | None = None
        self.parts: list[bytes | bytearray] = []
        self.size_bytes = 0
        self.size_limit = UNLIMITED
        self.ticket = 0

    @property
    def route(self) -> Route[App]:
        """The route; call it only for requests that have one."""
        route = self.target.route
        assert route is not None
        return route

    @property
    def body(self) -> bytes:
        """The whole body; empty for routes that ignore it."""
        parts = self.parts
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def keep(self, part: bytes) -> None:
        """Add a part of the body. Beyond _MOST_PARTS, parts are joined, so that tiny ones cost no object each."""
        parts = self.parts
        if len(parts) < _MOST_PARTS:
            parts.append(part)
        else:
            if len(parts) == _MOST_PARTS:
                parts.append(bytearray())
            parts[-1] += part

    @property
    def params(self) -> dict[str, str]:
        """The parameters of the query. Raises HttpError 400 if it is malformed."""
        params = self.target.params
        if params is None:
            self.app.log.of_clients.error("failed to parse request params - %s", self.target.query_error)
            raise HttpError(400, "INVALID_REQUEST")
        return params


# ---- the query of a URL, parsed as strictly as Go's `net/url` does

_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,32}", re.ASCII)
_INT64 = range(-(1 << 63), 1 << 63)


class BadQuery(ValueError):
    """The query, or an escape in it, is malformed; str(error) says how."""


def parse_query(query: bytes) -> dict[str, str]:
    """Return the parameters of `a=b&c=d`; the first of a repeated one counts. Raises BadQuery.

    Bytes that are not UTF-8 become surrogates, as in file names.
    """
    params: dict[str, str] = {}
    for part in query.split(b"&"):
        if b";" in part:
            raise BadQuery("invalid semicolon separator in query")
        if part:
            key, _, value = part.partition(b"=")
            params.setdefault(_text(key), _text(value))
    return params


def _text(escaped: bytes) -> str:
    return unescape(escaped.replace(b"+", b" ")).decode("utf-8", "surrogateescape")


def unescape(escaped: bytes) -> bytes:
    """Return the bytes with escapes decoded: `%41` becomes `A`. Raises BadQuery."""
    return _PERCENT.sub(_byte, escaped) if b"%" in escaped else escaped


def _byte(match: re.Match[bytes]) -> bytes:
    digits = match[1]
    if digits is None:
        bad = match.string[match.start() : match.start() + 3]
        raise BadQuery(f'invalid URL escape "{bad.decode("ascii", "backslashreplace")}"')
    return bytes((int(digits, 16),))


def parse_int64(text: str) -> int:
    """Return a decimal number that fits in 64 bits with a sign. Raises ValueError for other texts."""
    if _INTEGER.fullmatch(text) is None:  # int() accepts more: spaces, underscores, other scripts' digits
        raise ValueError(f"not a number: {text!r}")
    number = int(text)
    if number not in _INT64:
        raise ValueError(f"out of range: {text}")
    return number
