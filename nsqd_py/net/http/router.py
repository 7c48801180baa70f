"""Which path does what, and what a request is for.

Paths that are nearly right are redirected, wrong methods are told the right ones, as the routers of Go's NSQ do.
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
from nsqd_py.net.http.query import BadQuery, parse_query, unescape
from nsqd_py.net.http.request import UNLIMITED, App, Request

_TARGETS_KEPT = 1024
_LONGEST_TARGET_KEPT = 512  # bytes

_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?]*")


@dataclass(frozen=True, slots=True)
class BodyRule(Generic[App]):
    """What becomes of a route's body.

    limit      gives the most bytes that it may have; None: any number, none is kept
    too_big    the message of the 413 for more
    cut_short  the answer when the body ends too early, or is malformed
    """

    limit: Callable[[App], int] | None
    too_big: str
    cut_short: Reply


IGNORED: BodyRule[Any] = BodyRule(None, "", answers.failure(HttpError(400, "INVALID_REQUEST")))


@dataclass(frozen=True, slots=True)
class Route(Generic[App]):
    """One path with one method.

    access      what it lets its client do, which decides who may (`nsqd_py.net.http.access`)
    is_hot      the handler never blocks, and runs at once
    quick_bytes  a body longer than this takes the handler a while: it runs in a greenlet, and rests
    is_quick    False for a request that takes longer than a hot one may: it runs in a greenlet, and rests
    is_long     the answer grows with what the daemon holds: memory for it is bounded (`nsqd_py.net.http.answer_room`)
    check_head  what can be refused before the body is read; raises HttpError
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
    """What a method and a URL ask for: a route, or an answer that is known already.

    params    of the query; None when that is malformed, for which `query_error` has the reason
    argument  the part of the path that stands for `:opt`
    """

    route: Route[App] | None
    reply: Reply | None = None
    params: dict[str, str] | None = None
    query_error: str = ""
    argument: str = ""
    is_logged: bool = True


class Router(Generic[App]):
    """A table of routes, and what is made of it. In a path, `:name` at the end stands for any one part."""

    def __init__(self, routes: Sequence[Route[App]]) -> None:
        self._by_method_and_path = {(route.method, route.path): route for route in routes}
        self._methods = sorted({route.method for route in routes})
        # (what the path begins with, the path as the table has it), for paths that end in `:name`
        self._open_ended = sorted(
            {(path[: path.index(":")], path) for _, path in self._by_method_and_path if ":" in path}
        )
        self._resolve_kept = lru_cache(_TARGETS_KEPT)(self._resolve)

    def resolve(self, method: str, url: str) -> Target[App]:
        """The target of a request line."""
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
        """The path as the table has it, and what stands for `:name` in it."""
        for beginning, pattern in self._open_ended:
            argument = path.removeprefix(beginning)
            if path.startswith(beginning) and argument and "/" not in argument:
                return pattern, argument
        return path, ""

    def _no_route(self, method: str, path: str, origin: str, query: str) -> Target[App]:
        """A redirect to what was meant, the methods that there are, or NOT_FOUND."""
        if method != "CONNECT" and path != "/":
            meant = self._meant_path(method, path)
            if meant is not None:
                status = 301 if method == "GET" else 307
                return Target(None, answers.redirect(status, f"{origin}{meant}{query}"), is_logged=False)
        methods = self._methods if path == "*" else [m for m in self._methods if (m, path) in self._by_method_and_path]
        if not methods:
            return Target(None, answers.failure(HttpError(404, "NOT_FOUND")))
        allow = f"Allow: {', '.join(sorted([*methods, 'OPTIONS']))}\r\n"
        if method == "OPTIONS":
            return Target(None, Reply(200, allow), is_logged=False)
        return Target(None, answers.failure(HttpError(405, "METHOD_NOT_ALLOWED"), allow))

    def _meant_path(self, method: str, path: str) -> str | None:
        """The path of this method from which `path` differs only in case, slashes and dots."""
        clean = posixpath.normpath("/" + path.lstrip("/")).lower()
        for candidate in (clean, clean + "/"):
            if (method, candidate) in self._by_method_and_path and candidate != path:
                return candidate
        return None


def _split_origin(method: str, url: str) -> tuple[str, str]:
    """(`http://host`, `/path?query`) of a URL with both; CONNECT asks for a host only, which has no path."""
    if url.startswith("/"):
        return "", url
    absolute = _ABSOLUTE.match(url)
    if absolute is not None:
        return absolute.group(), url[absolute.end() :]
    return "", "" if method == "CONNECT" else url
