"""The table of routes, and the lookup of a request's route in it.

As in Go's NSQ, a path that is nearly right is redirected, and a 405 lists the allowed methods.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic

from nsqd_py.errors import HttpError
from nsqd_py.net.http import answers
from nsqd_py.net.http.access import Access
from nsqd_py.net.http.answers import Reply
from nsqd_py.net.http.request import UNLIMITED, App, BadQuery, Request, parse_query, unescape

_TARGETS_KEPT = 1024
_LONGEST_TARGET_KEPT = 512  # bytes

_PLAIN = re.compile(r"[a-z0-9_-]+")
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?]*")


@dataclass(frozen=True, slots=True)
class BodyRule(Generic[App]):
    """The treatment of a route's body.

    limit      returns the most bytes that the body may have; None if the body is ignored
    too_big    the message of the 413 for a longer body
    cut_short  the answer if the body ends too early, or is malformed
    """

    limit: Callable[[App], int] | None
    too_big: str
    cut_short: Reply


IGNORED: BodyRule[Any] = BodyRule(None, "", answers.failure(HttpError(400, "INVALID_REQUEST")))


@dataclass(frozen=True, slots=True)
class Route(Generic[App]):
    """One path with one method.

    access       the route's kind, from which its access rule follows (`nsqd_py.net.http.access`)
    is_hot       True if the handler never blocks; it runs at once, in the event loop
    quick_bytes  with a longer body, the handler of a hot route runs in a greenlet, and pauses for others
    is_quick     returns False for a request of a hot route whose handler must run in a greenlet
    is_long      True if the answer grows with the daemon's data; see `nsqd_py.net.http.response_limiter`
    check_head   raises HttpError for a request that can be refused before its body is read
    """

    method: str
    path: str
    handler: Callable[[Request[App]], Reply]
    access: Access
    body: BodyRule[App] = IGNORED
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
    argument     the part of the path in the place of `:opt`
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
        self._open_ended = sorted({(path[: path.index(":")], path) for _, path in self._by_method_and_path if ":" in path})
        self._resolve_kept = lru_cache(_TARGETS_KEPT)(self._resolve)

    def resolve(self, method: str, url: str) -> Target[App]:
        """Return the target of a request line."""
        return self._resolve_kept(method, url) if len(url) <= _LONGEST_TARGET_KEPT else self._resolve(method, url)

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
        """Return (path in the table, part in the place of `:name`)."""
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
                status = 301 if method == "GET" else 307
                return Target(None, answers.redirect(status, f"{origin}{similar}{query}"), is_logged=False)
        methods = self._methods if path == "*" else [m for m in self._methods if (m, path) in self._by_method_and_path]
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
