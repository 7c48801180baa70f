"""The table of routes, the lookup of a request's route in it, and a request as handlers see it.

As in Go's NSQ, a path that is nearly right is redirected, and a 405 lists the allowed methods.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from nsqd_py.errors import HttpError
from nsqd_py.net.http import answers
from nsqd_py.net.http.answers import Reply
from nsqd_py.net.http.browsers import KnownHosts
from nsqd_py.net.http.failures import INVALID_REQUEST
from nsqd_py.net.http.limiter import ResponseLimiter
from nsqd_py.runtime.logs.daemon_log import Log

if TYPE_CHECKING:
    from nsqd_py.net.http.guard import Guard

_CACHED_TARGETS = 1024
_LONGEST_CACHED_TARGET = 512  # bytes
_MOST_SEPARATORS = 4096  # escapes, parameters and slashes in a URL; they take 3 ms to parse

_PLAIN = re.compile(r"[a-z0-9_-]+")
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?]*")


UNLIMITED = 1 << 63
_MOST_PARTS = 64

_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,32}", re.ASCII)
_INT64 = range(-(1 << 63), 1 << 63)


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


class Access(Enum):
    """The kind of a route. Every route has one."""

    STATISTICS = "read statistics and names"
    PUBLISH = "publish"
    BODIES = "read messages"
    ADMINISTER = "administer"
    SHUT_DOWN = "end the process"

    @property
    def is_open(self) -> bool:
        """True if all clients have it without an account. Go's NSQ leaves these open, and its clients need them."""
        return self is Access.STATISTICS or self is Access.PUBLISH


@dataclass(frozen=True, slots=True)
class BodyRule(Generic[App]):
    """The treatment of a route's body.

    limit      returns the most bytes that the body may have; None if the body is ignored
    too_big    the message of the 413 for a longer body
    cut_short  the answer if the body ends too early, or is malformed
    """

    limit: Callable[[App], int] | None = None
    too_big: str = ""
    cut_short: Reply = INVALID_REQUEST


@dataclass(frozen=True, slots=True)
class Route(Generic[App]):
    """One path with one method.

    access       the route's kind, from which its access rule follows (`nsqd_py.net.http.handling`)
    is_hot       True if the handler never blocks; it runs at once, in the event loop
    quick_bytes  with a longer body, the handler of a hot route runs in a greenlet, and pauses for others
    is_quick     returns False for a request of a hot route whose handler must run in a greenlet
    is_long      True if the answer grows with the daemon's data; see `nsqd_py.net.http.limiter`
    check_head   raises HttpError for a request that can be refused before its body is read
    """

    method: str
    path: str
    handler: Callable[[Request[App]], Reply]
    access: Access
    body: BodyRule[App] = field(default_factory=BodyRule)
    is_hot: bool = False
    is_quick: Callable[[Request[App]], bool] | None = None
    is_long: bool = False
    is_logged: bool = True
    quick_bytes: int = UNLIMITED
    check_head: Callable[[Request[App]], object] | None = None


@dataclass(frozen=True, slots=True)
class Target(Generic[App]):
    """The result of the lookup of a method and a URL: a route, or an answer.

    params       the parameters of the query; None if it is malformed
    query_error  the reason why the query is malformed
    argument     the part of the path that `:opt` stands for
    """

    route: Route[App] | None
    reply: Reply | None = None
    params: dict[str, str] | None = None
    query_error: str = ""
    argument: str = ""
    is_logged: bool = True


class Router(Generic[App]):
    """Finds the route of a request. In the path of a route, `:name` at the end stands for any one part."""

    def __init__(self, routes: Sequence[Route[App]]) -> None:
        self._by_method_and_path = {(route.method, route.path): route for route in routes}
        self._methods = sorted({route.method for route in routes})
        # (beginning of the path, path in the table) for paths that end in `:name`
        self._open_ended = sorted(
            {(path[: path.index(":")], path) for _, path in self._by_method_and_path if ":" in path}
        )
        self._resolve_cached = lru_cache(_CACHED_TARGETS)(self._resolve)

    def resolve(self, method: str, url: str) -> Target[App]:
        """Return the target of a request line."""
        if len(url) > _LONGEST_CACHED_TARGET and sum(map(url.count, "%&/")) > _MOST_SEPARATORS:
            return Target(None, answers.refused_by_http(431), is_logged=False)
        if len(url) <= _LONGEST_CACHED_TARGET:
            return self._resolve_cached(method, url)
        return self._resolve(method, url)

    def _resolve(self, method: str, url: str) -> Target[App]:
        origin, path_and_query = _split_origin(method, url)
        escaped_path, question, query = path_and_query.partition("?")
        try:
            path = unescape(escaped_path.encode("latin-1")).decode("latin-1")
        except BadQuery:
            return Target(None, answers.refused_by_http(400), is_logged=False)
        if url == "*" and method == "OPTIONS":
            return Target(None, Reply(200), is_logged=False)
        pattern, argument = self._pattern(path)
        route = self._by_method_and_path.get((method, pattern))
        if route is None:
            return self._no_route(method, pattern, origin, question + query)
        try:
            params = parse_query(query.encode("latin-1"))
        except BadQuery as error:
            return Target(route, query_error=str(error), is_logged=route.is_logged, argument=argument)
        return Target(route, params=params, is_logged=route.is_logged, argument=argument)

    def _pattern(self, path: str) -> tuple[str, str]:
        """Return (path in the table, part that `:name` stands for)."""
        for beginning, pattern in self._open_ended:
            argument = path.removeprefix(beginning)
            if path.startswith(beginning) and argument and "/" not in argument:
                return pattern, argument
        return path, ""

    def _no_route(self, method: str, path: str, origin: str, query: str) -> Target[App]:
        """Return a redirect to a similar path, a 405 with the allowed methods, or NOT_FOUND."""
        if method != "CONNECT" and path != "/":
            similar = self._similar_path(method, path)
            if similar is not None:
                status = 301 if method == "GET" else 308
                return Target(None, answers.redirect(status, f"{origin}{similar}{query}"), is_logged=False)
        methods = (
            self._methods
            if path == "*"
            else [m for m in self._methods if (m, path) in self._by_method_and_path]
        )
        if not methods:
            return Target(None, answers.failure(HttpError(404, "NOT_FOUND")))
        allow = f"Allow: {', '.join(sorted([*methods, 'OPTIONS']))}\r\n"
        if method == "OPTIONS":
            return Target(None, Reply(200, allow), is_logged=False)
        return Target(None, answers.failure(HttpError(405, "METHOD_NOT_ALLOWED"), allow))

    def _similar_path(self, method: str, path: str) -> str | None:
        """Return the path of this method from which `path` differs only in case, slashes and dots."""
        clean = posixpath.normpath("/" + path.lstrip("/")).lower()
        for candidate in (clean, clean + "/"):
            pattern, argument = self._pattern(candidate)
            is_plain = not argument or _PLAIN.fullmatch(argument)  # it becomes a header
            if (method, pattern) in self._by_method_and_path and candidate != path and is_plain:
                return candidate
        return None


def _split_origin(method: str, url: str) -> tuple[str, str]:
    """Return (`http://host`, `/path?query`) of a URL, the first empty if it has none. CONNECT has no path."""
    if url.startswith("/"):
        return "", url
    absolute = _ABSOLUTE.match(url)
    if absolute is not None:
        return absolute.group(), url[absolute.end() :]
    return "", "" if method == "CONNECT" else url


# ---- requests


@dataclass(slots=True, eq=False, repr=False)
class Request(Generic[App]):
    """A request whose head is read; its body is added to `parts`.

    connection   the client's connection
    ticket       index of the answer in the connection's output buffer
    reply        the answer if it is known before a handler runs
    credentials  an Authorization header whose password must be checked first; else empty
    user         the name for the log of who may use an admin path, once that is known; else empty
    is_unread    True if the rest of the body will not be read, so that the connection must end
    """

    app: App
    connection: Any
    method: str
    url: str
    target: Target[App]
    is_http_1_0: bool
    keep_alive: bool
    is_unread: bool = False
    credentials: bytes = b""
    user: str = ""
    reply: Reply | None = None
    parts: list[bytes | bytearray] = field(default_factory=list)
    size_bytes: int = 0
    size_limit: int = UNLIMITED
    ticket: int = 0

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


def required(request: Request[Any], key: str) -> str:
    """Return a parameter of the query. Raises HttpError 400 if it is missing."""
    value = request.params.get(key)
    if value is None:
        raise HttpError(400, f"MISSING_ARG_{key.upper()}")
    return value


# ---- the query of a URL, parsed as strictly as Go's `net/url` does


class BadQuery(ValueError):
    """The query of a URL, or an escape in its path or query, is malformed; str(error) says how."""


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
    if b"%" in escaped:
        return _PERCENT.sub(_byte, escaped)
    return escaped


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
