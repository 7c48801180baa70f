"""Which path does what, and what a request is for.

Paths that are nearly right are redirected, wrong methods are told the right ones, as the router of Go's nsqd does.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from nsqd_py.errors import HttpError
from nsqd_py.http import answers, handlers
from nsqd_py.http.answers import Reply
from nsqd_py.http.query import BadQuery, parse_query, unescape
from nsqd_py.http.request import Request

_TARGETS_KEPT = 1024
_LONGEST_TARGET_KEPT = 512  # bytes
_CONFIG = "/config/"

_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?]*")


@dataclass(frozen=True, slots=True)
class BodyRule:
    """What becomes of a route's body.

    limit      the option with the most bytes that it may have; empty: any number, none is kept
    too_big    the message of the 413 for more
    cut_short  the answer when the body ends too early, or is malformed
    """

    limit: str
    too_big: str
    cut_short: Reply


IGNORED = BodyRule("", "", answers.failure(HttpError(400, "INVALID_REQUEST")))
MESSAGE = BodyRule("max_msg_size", "MSG_TOO_BIG", answers.INTERNAL_ERROR)
OPTION = BodyRule("max_msg_size", "INVALID_VALUE", answers.INTERNAL_ERROR)
MESSAGES = BodyRule("max_body_size", "BODY_TOO_BIG", answers.INTERNAL_ERROR)


@dataclass(frozen=True, slots=True)
class Route:
    """One path with one method.

    is_hot      the handler never blocks, and runs at once
    check_head  what can be refused before the body is read; raises HttpError
    """

    method: str
    path: str
    handler: Callable[[Request], Reply]
    body: BodyRule = IGNORED
    is_hot: bool = False
    is_logged: bool = True
    check_head: Callable[[Request], object] | None = None


PUB = Route("POST", "/pub", handlers.pub, MESSAGE, is_hot=True, is_logged=False)
ROUTES = (
    PUB,
    Route("GET", "/ping", handlers.ping, is_hot=True),
    Route("GET", "/info", handlers.info),
    Route("GET", "/stats", handlers.stats),
    Route("POST", "/mpub", handlers.mpub, MESSAGES, is_hot=True, is_logged=False, check_head=handlers.topic_name),
    Route("POST", "/topic/create", handlers.create_topic),
    Route("POST", "/topic/delete", handlers.delete_topic),
    Route("POST", "/topic/empty", handlers.empty_topic),
    Route("POST", "/topic/pause", partial(handlers.pause_topic, paused=True)),
    Route("POST", "/topic/unpause", partial(handlers.pause_topic, paused=False)),
    Route("POST", "/channel/create", handlers.create_channel),
    Route("POST", "/channel/delete", handlers.delete_channel),
    Route("POST", "/channel/empty", handlers.empty_channel),
    Route("POST", "/channel/pause", partial(handlers.pause_channel, paused=True)),
    Route("POST", "/channel/unpause", partial(handlers.pause_channel, paused=False)),
    Route("GET", "/config/:opt", handlers.get_option),
    Route("PUT", "/config/:opt", handlers.put_option, OPTION),
)
_BY_METHOD_AND_PATH = {(route.method, route.path): route for route in ROUTES}
_METHODS = sorted({route.method for route in ROUTES})


@dataclass(frozen=True, slots=True)
class Target:
    """What a method and a URL ask for: a route, or an answer that is known already.

    params    of the query; None when that is malformed, for which `query_error` has the reason
    argument  the part of the path that stands for `:opt`
    """

    route: Route | None
    reply: Reply | None = None
    params: dict[str, str] | None = None
    query_error: str = ""
    argument: str = ""
    is_logged: bool = True


def resolve(method: str, url: str) -> Target:
    """The target of a request line."""
    return _resolve_kept(method, url) if len(url) <= _LONGEST_TARGET_KEPT else _resolve(method, url)


def _resolve(method: str, url: str) -> Target:
    origin, path_and_query = _split_origin(method, url)
    escaped_path, question, query = path_and_query.partition("?")
    try:
        path = unescape(escaped_path.encode("latin-1")).decode("latin-1")
    except BadQuery:
        return Target(None, answers.refused_by_http(400), is_logged=False)
    if url == "*" and method == "OPTIONS":
        return Target(None, Reply(200), is_logged=False)
    pattern, argument = _pattern(path)
    route = _BY_METHOD_AND_PATH.get((method, pattern))
    if route is None:
        return _no_route(method, pattern, origin, question + query)
    try:
        params = parse_query(query.encode("latin-1"))
    except BadQuery as error:
        return Target(route, query_error=str(error), is_logged=route.is_logged, argument=argument)
    return Target(route, params=params, is_logged=route.is_logged, argument=argument)


def _pattern(path: str) -> tuple[str, str]:
    """The path as the table has it, and what stands for `:opt` in it."""
    argument = path.removeprefix(_CONFIG)
    if path.startswith(_CONFIG) and argument and "/" not in argument:
        return f"{_CONFIG}:opt", argument
    return path, ""


_resolve_kept = lru_cache(_TARGETS_KEPT)(_resolve)


def _split_origin(method: str, url: str) -> tuple[str, str]:
    """(`http://host`, `/path?query`) of a URL with both; CONNECT asks for a host only, which has no path."""
    if url.startswith("/"):
        return "", url
    absolute = _ABSOLUTE.match(url)
    if absolute is not None:
        return absolute.group(), url[absolute.end() :]
    return "", "" if method == "CONNECT" else url


def _no_route(method: str, path: str, origin: str, query: str) -> Target:
    """A redirect to what was meant, the methods that there are, or NOT_FOUND."""
    if method != "CONNECT" and path != "/":
        meant = _meant_path(method, path)
        if meant is not None:
            status = 301 if method == "GET" else 307
            return Target(None, answers.redirect(status, f"{origin}{meant}{query}"), is_logged=False)
    methods = _METHODS if path == "*" else [m for m in _METHODS if (m, path) in _BY_METHOD_AND_PATH]
    if not methods:
        return Target(None, answers.failure(HttpError(404, "NOT_FOUND")))
    allow = f"Allow: {', '.join(sorted([*methods, 'OPTIONS']))}\r\n"
    if method == "OPTIONS":
        return Target(None, Reply(200, allow), is_logged=False)
    return Target(None, answers.failure(HttpError(405, "METHOD_NOT_ALLOWED"), allow))


def _meant_path(method: str, path: str) -> str | None:
    """The path of this method from which `path` differs only in case, slashes and dots."""
    clean = posixpath.normpath("/" + path.lstrip("/")).lower()
    for candidate in (clean, clean + "/"):
        if (method, candidate) in _BY_METHOD_AND_PATH and candidate != path:
            return candidate
    return None
