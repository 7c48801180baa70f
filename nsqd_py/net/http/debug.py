"""The paths under /debug. All are admin paths: they show the inside of the process, and take time."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from time import monotonic
from typing import Any

import gevent

from nsqd_py.debug.memory import free_memory
from nsqd_py.debug.stacks import PROFILER, ProfileUnderWay, stacks_text
from nsqd_py.errors import HttpError
from nsqd_py.net.http import answers
from nsqd_py.net.http.answers import Reply
from nsqd_py.net.http.router import Access, Request, Route, parse_int64
from nsqd_py.runtime.pacing import WorkSlices
from nsqd_py.runtime.threads import GreenletLock
from nsqd_py.settings.declaration import Setting
from nsqd_py.settings.flags import shown_words

DEFAULT_PROFILE_S = 10
PROFILE_S = range(1, 121)
# The least time between two collections on request, because the whole process waits for one.
FREEING_INTERVAL_S = 10.0

# Browsers must neither guess another content type nor cache these pages.
_HEADERS = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
_INDEX = """\
GET  /debug/greenlets      stacks of greenlets and threads
GET  /debug/pprof/profile  folded stacks of the next 10 s (?seconds=1 to 120), for a flame graph
GET  /debug/pprof/cmdline  the command line, its words separated by NUL
POST /debug/freememory     collect garbage, return unused memory to the system
"""

_Request = Request[Any]

# For handlers that go through all objects in slices: the slices of many handlers together would stall the loop.
_ONE_AT_A_TIME = GreenletLock()


def _text(body: str) -> Reply:
    return answers.plain(200, body, _HEADERS)


def index(request: _Request) -> Reply:
    """List these paths."""
    return _text(_INDEX)


def greenlets(request: _Request) -> Reply:
    """Show the stacks of all greenlets and threads."""
    with _ONE_AT_A_TIME:
        return _text(stacks_text(WorkSlices()))


def profile(request: _Request) -> Reply:
    """Profile the next seconds, and return folded stacks: lines that flame-graph programs read."""
    try:
        seconds = parse_int64(request.params.get("seconds", str(DEFAULT_PROFILE_S)))
    except ValueError:
        seconds = 0
    if seconds not in PROFILE_S:
        raise HttpError(400, "INVALID_ARG_SECONDS")
    try:
        return _text(PROFILER.profile(seconds))
    except ProfileUnderWay:
        raise HttpError(409, "PROFILE_UNDER_WAY") from None


class _Freeing:
    """Frees memory on request, at most every FREEING_INTERVAL_S."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def free(self, request: _Request) -> Reply:
        """Return unused memory to the system, and report how much."""
        if monotonic() < self._next_s:
            raise HttpError(429, "FREED_LATELY")
        self._next_s = monotonic() + FREEING_INTERVAL_S
        return _text(free_memory(gevent.get_hub().threadpool))


def command_line(request: _Request, secrets: Iterable[Setting] = ()) -> Reply:
    """Return the command line of the process; passwords and tokens in it are hidden."""
    return _text("\0".join(shown_words(sys.orig_argv, secrets)))


def debug_routes(secrets: Iterable[Setting] = ()) -> tuple[Route[Any], ...]:
    """Return the routes under /debug of one daemon, without the index. `secrets`: its settings with secrets."""
    paths = (
        ("GET", "/debug/greenlets", greenlets),
        ("GET", "/debug/pprof/goroutine", greenlets),
        ("GET", "/debug/pprof/profile", profile),
        ("GET", "/debug/pprof/cmdline", partial(command_line, secrets=tuple(secrets))),
        ("POST", "/debug/freememory", _Freeing().free),
    )
    return tuple(Route(method, path, handler, Access.ADMINISTER) for method, path, handler in paths)
